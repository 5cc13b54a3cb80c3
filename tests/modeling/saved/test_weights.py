"""A model is loaded whole and finite, or refused in one line: whoever loads it, ours or a stock one."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, PreTrainedModel, modeling_utils

from tercet import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetElmoModel,
    TercetEncoderConfig,
    TercetEncoderForSequenceClassification,
    TercetEncoderModel,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.model_folder import load_config
from tercet.modeling.saved.weights import is_finite
from tercet.modeling.stock.models import load_stock
from tercet.tools.doctor.examined_model import load_examined_model

from ...small_elmo import small_config
from ...small_taggers import save_characters, save_static

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
}
Tensors = dict[str, Tensor]


MODELS: dict[str, Callable[[Path], object]] = {
    "decoder": lambda folder: TercetDecoderForCausalLM(TercetDecoderConfig(**SIZES)).save_pretrained(folder),
    "classifier": lambda folder: TercetEncoderForSequenceClassification(
        TercetEncoderConfig(**SIZES)
    ).save_pretrained(folder),
    "seq2seq": lambda folder: TercetSeq2SeqForConditionalGeneration(
        TercetSeq2SeqConfig(**SIZES)
    ).save_pretrained(folder),
    "elmo": lambda folder: TercetElmoModel(small_config()).save_pretrained(folder),
    "characters": save_characters,
    "word vectors": save_static,
    "stock": lambda folder: BertForMaskedLM(BertConfig(**SIZES, max_position_embeddings=32)).save_pretrained(
        folder
    ),
}


def load(folder: Path) -> PreTrainedModel:
    """Load what lies in a folder as the commands do."""
    is_ours = json.loads((folder / "config.json").read_text())["model_type"].startswith("tercet")
    return Checkpoint.open(str(folder)).ours() if is_ours else load_stock(Checkpoint.open(str(folder)))


def change(folder: Path, spoil: Callable[[Tensors, str], None]) -> str:
    """Spoil a matrix of saved weights, below the head, and name it."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    matrices = [
        name
        for name, tensor in sorted(tensors.items())
        if tensor.dim() == 2 and tensor.is_floating_point() and not name.startswith(("cls", "classifier"))
    ]
    name = matrices[len(matrices) // 2]
    spoil(tensors, name)
    save_file(tensors, file, {"format": "pt"})
    return name


def remove(tensors: Tensors, name: str) -> None:
    del tensors[name]


def cut(tensors: Tensors, name: str) -> None:
    tensors[name] = tensors[name][:-1].clone()


def add(tensors: Tensors, name: str) -> None:
    tensors[f"{name}.more"] = torch.ones(2)


def make_nan(tensors: Tensors, name: str) -> None:
    tensors[name][0, 0] = torch.nan


def make_infinite(tensors: Tensors, name: str) -> None:
    tensors[name][-1, -1] = -torch.inf


SPOILT = {
    remove: "lacks 1 tensor (NAME) of ",
    cut: "and config.json do not belong together (NAME is ",
    add: "has 1 tensor (NAME.more) for which ",
    make_nan: "has weights that are not finite in 1 tensor (NAME)",
    make_infinite: "has weights that are not finite in 1 tensor (NAME)",
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_weights_that_are_not_the_model_are_refused_by_name(model, spoil, tmp_path):
    MODELS[model](tmp_path)
    load(tmp_path)
    name = change(tmp_path, spoil)
    with pytest.raises(ValueError) as told:  # noqa: PT011
        load(tmp_path)
    assert str(told.value).startswith(f"{tmp_path / 'model.safetensors'} ")
    assert SPOILT[spoil].replace("NAME", name) in str(told.value)


def test_a_message_names_a_few_tensors_of_many(tmp_path):
    MODELS["decoder"](tmp_path)
    configure(tmp_path, num_hidden_layers=4)
    with pytest.raises(ValueError, match=r"lacks 18 tensors \(\S+, \S+, \S+, \S+, and 14 more\) of Tercet"):
        load(tmp_path)


def test_layers_that_the_configuration_leaves_out_are_not_dropped_in_silence(tmp_path):
    MODELS["decoder"](tmp_path)
    configure(tmp_path, num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"has 9 tensors \(model.layers.1.\S+ .* has no place"):
        load(tmp_path)


def test_a_head_that_nobody_wants_may_stay_unread(tmp_path):
    MODELS["classifier"](tmp_path)
    assert isinstance(Checkpoint.open(str(tmp_path)).ours(TercetEncoderModel), TercetEncoderModel)


def configure(folder: Path, **fields) -> None:
    """Change a saved configuration."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize("model", ["decoder", "stock"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_labels", 10**9),
        ("num_hidden_layers", 10**9),
        ("vocab_size", 2**31),
        ("intermediate_size", 2**40),
        ("hidden_size", 2**40),
    ],
)
@pytest.mark.parametrize("examines", [False, True])
def test_sizes_beyond_the_weights_take_no_memory(examines, field, value, model, tmp_path):
    MODELS[model](tmp_path)
    configure(tmp_path, **{field: value})
    with pytest.raises(ValueError, match=r"use the config\.json that was saved with these weights"):
        load_examined_model(Checkpoint.open(str(tmp_path))) if examines else load(tmp_path)


@pytest.mark.parametrize("field", ["max_position_embeddings", "type_vocab_size", "chunk_size_feed_forward"])
def test_positions_beyond_the_weights_make_nothing(field, tmp_path):
    """BERT has a number for each position, which is in no file: 8 GB for a thousand millions."""
    MODELS["stock"](tmp_path)
    configure(tmp_path, **{field: 10**9})
    for read in (load_config, load_examined_model):
        with pytest.raises(
            ValueError, match=rf"says {field} = 1,000,000,000, but .* 18,600 numbers: use the"
        ):
            read(tmp_path if read is load_config else Checkpoint.open(str(tmp_path)))


def test_sizes_that_take_no_memory_are_as_large_as_they_are(tmp_path):
    """Positions that turn go on for millions; what is no field of the model may be any number."""
    MODELS["decoder"](tmp_path)
    rotary = {"rope_theta": 10**9}
    configure(tmp_path, max_position_embeddings=10_485_760, rope_parameters=rotary, num_parameters=7 * 10**9)
    assert load(tmp_path).config.max_position_embeddings == 10_485_760


def test_an_adapter_beside_a_model_is_not_added_to_it(tmp_path):
    """It changes the model that was looked at, and its configuration names modules that PEFT imports."""
    MODELS["stock"](tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "megatron_core": "antigravity"}')
    for read in (load, lambda folder: load_examined_model(Checkpoint.open(str(folder)))):
        with pytest.raises(ValueError, match=r"has an adapter beside the model .*: merge the two with PEFT"):
            read(tmp_path)


@pytest.mark.parametrize("examines", [False, True])
@pytest.mark.parametrize("named", ["them/kernel", {"": "them/kernel"}], ids=["text", "dictionary"])
@pytest.mark.parametrize("model", ["decoder", "stock"])
def test_no_kernel_is_fetched_because_a_configuration_names_one(
    model, named, examines, tmp_path, monkeypatch
):
    """It is a repository that would be downloaded, and whose code would be run, without a question."""

    def fetch(*names: object, **options: object) -> None:
        raise AssertionError(f"{names} was fetched")

    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", fetch)
    MODELS[model](tmp_path)
    configure(tmp_path, attn_implementation=named)
    loaded = load_examined_model(Checkpoint.open(str(tmp_path))).model if examines else load(tmp_path)
    assert loaded.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("start", [40, 2**31, -1])
def test_a_decoder_begins_with_a_token_that_it_knows(start, tmp_path):
    MODELS["seq2seq"](tmp_path)
    configure(tmp_path, decoder_start_token_id=start)
    with pytest.raises(ValueError, match=rf"decoder_start_token_id = {start}, but .* ids below 40"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("model", ["decoder", "stock"])
def test_a_pipe_among_the_files_is_not_waited_for(name, model, tmp_path):
    MODELS[model](tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} is no file but a pipe, a socket or a device"):
        load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_one_number_that_is_not_finite_is_found(dtype, value):
    numbers = torch.zeros(3, 4, dtype=dtype)
    numbers[0, 0] = torch.finfo(dtype).max
    assert is_finite(numbers)
    numbers[1, 2] = value
    assert not is_finite(numbers)


def test_integers_and_nothing_are_finite():
    assert is_finite(torch.arange(3))
    assert is_finite(torch.ones(0, 3))
