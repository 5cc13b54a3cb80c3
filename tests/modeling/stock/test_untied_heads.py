"""Heads of their own come in from many files and go out again, also where the stock class would tie them."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import GPTNeoXForCausalLM, PreTrainedModel

from tercet.__main__ import main
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.stock import from_stock, to_stock
from tercet.modeling.stock.models import load_stock

pytestmark = pytest.mark.usefixtures("short_texts")

VERSION_1_1 = {"feed_forward_proj": "gated-gelu", "d_kv": 4, "tie_word_embeddings": False}
"""T5's; with heads of this width the factor of its scores is a power of two, and nothing is rounded."""


@pytest.fixture
def untied(stock):
    """Build a stock model with an LM head of its own."""

    def build(name: str, **options) -> PreTrainedModel:
        model = stock(name, **options)
        head = model.get_output_embeddings()
        head.weight = nn.Parameter(torch.randn_like(head.weight))
        return model

    return build


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("T5ForConditionalGeneration", VERSION_1_1),
        pytest.param("MT5ForConditionalGeneration", VERSION_1_1, marks=pytest.mark.slow),
        ("GPTNeoXForCausalLM", {"tie_word_embeddings": False}),
        ("LlamaForCausalLM", {"tie_word_embeddings": False}),
    ],
)
def test_untied_head_in_many_files_goes_in_and_out_again(untied, tmp_path: Path, name: str, options) -> None:
    model = untied(name, **options)
    source, ours, back = (tmp_path / folder for folder in ("stock", "ours", "back"))
    model.save_pretrained(source, max_shard_size="8KB")
    assert len(list(source.glob("*.safetensors"))) > 2
    assert main(["import", str(source), str(ours)]) == 0
    assert json.loads((ours / "config.json").read_text())["tie_word_embeddings"] is False
    assert main(["export", str(ours), str(back), "--to", model.config.model_type]) == 0
    assert json.loads((back / "config.json").read_text())["tie_word_embeddings"] is False
    loaded, found = getattr(transformers, name).from_pretrained(back, output_loading_info=True)
    assert not found["missing_keys"]
    assert loaded.lm_head.weight is not loaded.get_input_embeddings().weight
    for tensor, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[tensor], value), tensor


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "GPT2LMHeadModel", "BertForMaskedLM", "BartForConditionalGeneration"]
)
def test_head_of_its_own_comes_in_whatever_is_said_of_it(untied, tmp_path: Path, name: str) -> None:
    """Files have both tensors, and the configuration says that they are one (transformers issue 42612)."""
    model = untied(name, tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "stock")
    loaded = load_stock(Checkpoint.open(str(tmp_path / "stock")))
    assert torch.equal(loaded.get_output_embeddings().weight, model.get_output_embeddings().weight)
    from_stock(loaded).save_pretrained(tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["tie_word_embeddings"] is False
    ours = Checkpoint.open(str(tmp_path / "ours")).ours()
    for table in ("get_input_embeddings", "get_output_embeddings"):
        assert torch.equal(getattr(ours, table)().weight, getattr(model, table)().weight), table


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "MT5ForConditionalGeneration"])
def test_tied_head_stays_tied(stock, name: str) -> None:
    back = to_stock(from_stock(stock(name)))
    assert back.lm_head.weight is back.get_input_embeddings().weight
    assert back.config.tie_word_embeddings


def test_head_is_found_by_its_earlier_name(untied, tmp_path: Path) -> None:
    model = untied("GPTNeoXForCausalLM")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    head = next(name for name in ("lm_head.weight", "embed_out.weight") if name in tensors)
    save_file(tensors | {"embed_out.weight": tensors.pop(head)}, file, {"format": "pt"})
    loaded = load_stock(Checkpoint.open(str(tmp_path)))
    assert isinstance(loaded, GPTNeoXForCausalLM)
    assert torch.equal(from_stock(loaded).lm_head.weight, model.lm_head.weight)
