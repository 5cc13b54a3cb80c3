"""A model goes on learning with a tokenizer that has got more tokens, or that pads with the end of a text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from tercet import TercetDecoderConfig, TercetDecoderForCausalLM
from tercet.configs.recipe import parse_recipe
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.model_folder import save_tokenizer
from tercet.pretraining.continuation import ContinuedModel
from tercet.pretraining.finished import cut_to
from tercet.pretraining.model import FirstModel
from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.pretraining.tokenizer import TokenizerSource, fit_length
from tercet.tools.plan.model_costs import build_planned_model

from ..pretraining_parts import first_model_of, model_of
from ..word_level import word_level
from .conftest import recipe_data_of, unread_recipe

END = 38


def tokenizer_of(*numbers: int) -> PreTrainedTokenizerFast:
    words = [*(f"w{number}" for number in numbers), "[PAD]", "[EOS]", "[UNK]"]
    return word_level(words, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of 40 words."""
    return tokenizer_of(*range(37))


def causal_recipe(**model) -> PretrainingRecipe:
    return unread_recipe("causal_language_modeling", model)


def preset(**model) -> PretrainingRecipe:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2}
    return causal_recipe(preset="decoder-tiny", overrides=sizes, **model)


@pytest.fixture
def trained(tmp_path, tokenizer) -> Path:
    """Save a small decoder with rows for more tokens than its tokenizer has."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = TercetDecoderConfig(vocab_size=42, max_position_embeddings=64, **sizes)
    TercetDecoderForCausalLM(config).save_pretrained(tmp_path / "trained")
    tokenizer.save_pretrained(tmp_path / "trained")
    return tmp_path / "trained"


@pytest.mark.parametrize(("num_added", "rows"), [(0, 42), (2, 42), (5, 45)])
def test_a_model_that_goes_on_has_room_for_added_tokens(trained, tokenizer, num_added, rows, capsys):
    tokenizer.add_tokens([f"new{number}" for number in range(num_added)])
    tokenizer.save_pretrained(trained)
    recipe = causal_recipe(path=str(trained))
    model = model_of(recipe, tokenizer)
    assert model.config.vocab_size == rows
    assert build_planned_model(recipe).config.vocab_size == rows
    before = Checkpoint.open(str(trained)).transformer().get_input_embeddings().weight
    table = model.get_input_embeddings().weight
    assert torch.equal(table[:42], before)
    torch.testing.assert_close(table[42:], before.mean(0).expand(rows - 42, -1))
    words = "the vocabulary grows from 42 to 45 tokens; the new ones begin with the mean of the old ones"
    assert (words in capsys.readouterr().err) == (rows > 42)


def test_a_model_that_goes_on_may_get_the_room_that_a_recipe_says(trained, tokenizer):
    model = model_of(causal_recipe(path=str(trained), overrides={"vocab_size": 64}), tokenizer)
    assert model.get_input_embeddings().num_embeddings == 64
    with pytest.raises(ValueError, match=r"overrides.vocab_size is 39, but the tokenizer's ids need 40"):
        model_of(causal_recipe(path=str(trained), overrides={"vocab_size": 39}), tokenizer)


def test_tokens_keep_their_vectors_under_other_ids(trained, tokenizer, capsys):
    """The vocabularies are equally large, so that nothing else says so."""
    model = model_of(causal_recipe(path=str(trained)), tokenizer_of(1, 0, *range(2, 37)))
    before = Checkpoint.open(str(trained)).transformer().get_input_embeddings().weight
    table = model.get_input_embeddings().weight
    assert torch.equal(table, before[[1, 0, *range(2, 40)]])
    assert "from 42 to 40 rows: 40 are those of one token" in capsys.readouterr().err


def test_a_model_that_goes_on_is_opened_once(trained, texts, tmp_path, hub):
    fetched = hub({"somebody/model": trained})
    data = recipe_data_of("causal_language_modeling", texts, tmp_path / "run", tokens_per_step=64) | {
        "tokenizer": {}
    }
    pretrain(parse_recipe(PretrainingRecipe, data | {"model": {"path": "somebody/model"}}))
    assert fetched == {"somebody/model": 1}


def test_an_end_that_also_pads_is_a_target(tokenizer):
    examples = [{"input_ids": np.array([*ids, END])} for ids in ([5, 6, 7], [8], [9, 5])]
    batches = []
    for pad in ("[PAD]", "[EOS]"):
        tokenizer.pad_token = pad
        objective = preset().objective.build(ObjectiveContext(tokenizer, 32, seed=0))
        batches.append(objective.collate(examples, 0))
    own, shared = batches
    assert objective.targets(shared) == objective.targets(own) == {"clm": torch.tensor(6)}
    tokenizer.pad_token = "[EOS]"
    model = model_of(preset(), tokenizer).eval()
    assert model.config.pad_token_id == model.config.eos_token_id == END
    rows = torch.tensor([[5, 6, 7, END], [8, END, END, END], [9, 5, END, END]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
    packed = sum(objective.losses(model, shared).values())
    padded = model(rows, attention_mask=mask, labels=rows, reduction="sum").loss
    torch.testing.assert_close(padded, packed)


OWN = {"path": "published"}


@pytest.mark.parametrize(
    ("model", "path", "limit", "expected"),
    [
        ({"preset": "decoder-tiny"}, "other", 16, 64),
        ({"preset": "decoder-tiny"}, "other", 512, 64),
        ({"preset": "decoder-tiny"}, "other", None, 64),
        ({"preset": "decoder-tiny"}, None, 16, 64),
        (OWN, "other", 16, 64),
        (OWN, None, 16, 16),
        (OWN, None, 512, 64),
        (OWN | {"overrides": {"max_position_embeddings": 64}}, None, 16, 64),
    ],
)
def test_a_tokenizer_cuts_texts_to_the_positions_of_its_model(
    model, path, limit, expected, tokenizer, tmp_path, capsys
):
    """Otherwise the finished model reads the beginnings of texts alone, or more than it has positions for."""
    recipe = unread_recipe("causal_language_modeling", model, tokenizer={"path": path})
    tokenizer.model_max_length = limit or VERY_LARGE_INTEGER
    config = TercetDecoderConfig(vocab_size=42, max_position_embeddings=64)
    about = str(recipe.model.origin), recipe.objective, config, recipe.model.applied_overrides
    checkpoint: Any = None
    is_preset = recipe.model.path is None
    begun = FirstModel(*about) if is_preset else ContinuedModel(*about, checkpoint, checkpoint)
    is_own = not is_preset and recipe.tokenizer.path == recipe.model.path
    fit_length(tokenizer, begun.positions_with(tokenizer, is_own=is_own), "words")
    told = "no texts" if limit is None else f"texts to {limit} tokens"
    line = f"words: the tokenizer cuts {told}; beside the model, it cuts them to its 64 positions\n"
    assert capsys.readouterr().err == (line if expected != limit else "")
    save_tokenizer(tokenizer, tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == expected


@pytest.mark.parametrize(("limit", "expected"), [(16, 16), (512, 64)])
def test_a_student_with_fewer_positions_has_a_tokenizer_that_cuts_to_these(limit, expected, tokenizer):
    """And the teacher's stays as it is."""
    tokenizer.model_max_length = limit
    own = cut_to(tokenizer, TercetDecoderConfig(vocab_size=42, max_position_embeddings=64))
    assert (own.model_max_length, tokenizer.model_max_length) == (expected, limit)
    assert own.init_kwargs.get("model_max_length") == (64 if limit > 64 else None)


def test_a_tokenizer_that_was_trained_beforehand_fits_the_model(tmp_path, tokenizer, capsys):
    tokenizer.model_max_length = 16
    save_tokenizer(tokenizer, tmp_path)
    recipe = preset()
    source = TokenizerSource(recipe.tokenizer, "text", None, False, (), recipe.objective, (), None)
    assert source.load_or_train(first_model_of(recipe), tmp_path).model_max_length == 512
    assert f"{tmp_path}: the tokenizer cuts texts to 16 tokens" in capsys.readouterr().err
