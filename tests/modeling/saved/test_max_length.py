"""However a model is read, it reads as many tokens of a text: one rule for all commands.

What its positions allow is a bound, below which the tokenizer says how many they are.
"""

from shutil import copytree

import pytest
import torch
from datasets import Dataset
from transformers import (
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from tercet.configs.recipe import parse_recipe
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.fewshot.prompts.request import Request
from tercet.fewshot.subject import load_subject
from tercet.finetune.inputs import find_inputs as find_inputs_of_rows
from tercet.finetune.model import load_task_model
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.splits import encoder_of
from tercet.finetune.tasks.task import build_task
from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
)
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.model_folder import keep_option, save_tokenizer
from tercet.modeling.saved.sentence_vectors import SentenceVectors, sentence_files, write_files
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.tools.embed.embedding import load_embedder
from tercet.tools.play.loaded_model import load_model

from ...pretraining_parts import tokenizer_of

SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
ROWS = {"query": ["a cat", "a dog"], "positive": ["the cat", "the dog"], "text": ["a cat", "a dog"]}
ROWS |= {"label": ["x", "y"]}
OBJECTIVES = {"encoder": "masked_language_modeling", "decoder": "causal_language_modeling"}
OBJECTIVES |= {"seq2seq": "denoising"}


def model_of(kind: str, positions: int | None, ids: dict[str, int]) -> PreTrainedModel:
    """Build a model that has so many positions for tokens, or no bound."""
    if kind == "encoder":
        config = TercetEncoderConfig(**SIZES, max_position_embeddings=positions, **ids)
        return TercetEncoderForMaskedLM(config)
    if kind == "rotary decoder":
        rotary = {"position_embedding_type": "rotary", "max_position_embeddings": positions}
        return TercetDecoderForCausalLM(TercetDecoderConfig(**SIZES, **rotary, **ids))
    if kind == "roberta":  # whose first positions are those of pads
        assert positions is not None
        behind_pads = positions + ids["pad_token_id"] + 1
        return RobertaForMaskedLM(RobertaConfig(**SIZES, max_position_embeddings=behind_pads, **ids))
    if kind == "mamba":
        return MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=1, state_size=4, **ids))
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=ids["pad_token_id"], **ids))


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Return the function that saves a model with a tokenizer that says how many tokens it reads."""
    folders = {}
    tokenizer = train_tokenizer(["a cat the dog"] * 9, "wordpiece", 40, template="single")
    roles = ("pad_token_id", "bos_token_id", "eos_token_id")

    def save(kind: str, positions: int | None, told: int | None):
        key = kind, positions, told
        if key not in folders:
            folder = folders[key] = tmp_path_factory.mktemp("model")
            torch.manual_seed(0)
            ids = {"vocab_size": len(tokenizer)} | {role: getattr(tokenizer, role) for role in roles}
            model_of(kind, positions, ids).save_pretrained(folder)
            keep_option(tokenizer, "model_max_length", told or int(1e30))
            save_tokenizer(tokenizer, folder)
        return folders[key]

    return save


def fine_tuning(folder, kind="classification"):
    data = {"model": {"path": str(folder)}, "task": {"kind": kind}, "data": {"train": "x.jsonl"}}
    inputs = find_inputs_of_rows(parse_recipe(FineTuningRecipe, data | {"output": "runs/x"}))
    task = build_task(inputs.task.recipe, Dataset.from_dict(ROWS))
    pretrained = load_task_model(inputs.settings[0].start, task, seed=0)
    return encoder_of(pretrained.model, pretrained.tokenizer, inputs.data.max_length).max_length


def ranking(folder):
    return fine_tuning(folder, "ranking")


def embedding(folder):
    return load_embedder(str(folder)).max_length


def prompting(folder):
    """Count the tokens that are read of a context that is too long."""
    subject = load_subject(Checkpoint.open(str(folder)))
    request = Request(context=(1,) * 5000, answer=(1,))
    return 5000 - subject.excess(request) + (subject.member == "encoder")


def playing(folder):
    return load_model(str(folder)).max_length


def pretraining(folder):
    text, kind = folder / "text.txt", OBJECTIVES[Checkpoint.open(str(folder)).member]
    text.write_text("a cat the dog\n\n" * 40)
    corpus = {"train": str(text), "validation": str(text), "sequence_length": 16}
    corpus["cache"] = str(folder / "cache")
    recipe = {"model": {"path": str(folder)}, "corpus": corpus, "objective": {"kind": kind}}
    recipe |= {"training": {"steps": 1}, "output": str(folder / "run")}
    recipe = parse_recipe(PretrainingRecipe, recipe)
    return tokenizer_of(recipe).model_max_length


LENGTHS = [(512, 256, 256), (256, 512, 256)]
"""Positions, what the tokenizer says, and the tokens that are read."""

WITHOUT_BOUND = [(None, 256, 256), (None, 3000, 3000), (None, None, 2048)]
"""The same of models that read texts of any length."""

READERS = [fine_tuning, ranking, embedding, prompting, playing, pretraining]
CASES = {
    "encoder": (READERS, LENGTHS),
    "rotary decoder": (READERS, LENGTHS),
    "roberta": (READERS, LENGTHS),
    "t5": ([fine_tuning, embedding, prompting, playing], WITHOUT_BOUND),
    "mamba": ([prompting, playing], WITHOUT_BOUND),
}


@pytest.mark.parametrize(
    ("kind", "reader", "lengths"),
    [
        pytest.param(kind, reader, lengths, id=f"{kind}-{reader.__name__}-{lengths[0]}-{lengths[1]}")
        for kind, (readers, cases) in CASES.items()
        for reader in readers
        for lengths in cases
    ],
)
def test_every_reader_reads_as_many_tokens(kind, reader, lengths, folder_of):
    positions, told, wanted = lengths
    assert reader(folder_of(kind, positions, told)) == wanted


@pytest.mark.slow  # the import is certified
def test_a_model_without_a_bound_that_is_pretrained_on_reads_as_many_tokens(folder_of):
    assert pretraining(folder_of("t5", None, 3000)) == 3000


@pytest.mark.parametrize("reader", [ranking, embedding])
@pytest.mark.parametrize(("told", "wanted"), [(128, 128), (384, 384), (1024, 512)])
def test_of_vectors_the_folder_says_how_long_texts_are(reader, told, wanted, folder_of, tmp_path):
    copytree(folder_of("encoder", 512, 256), tmp_path, dirs_exist_ok=True)
    write_files(sentence_files(SentenceVectors("mean", max_length=told), 16), tmp_path)
    assert reader(tmp_path) == wanted
