"""Tokenizers of words: of pairs, as in pretraining, and with the signs of every objective."""

import pytest
from pydantic import TypeAdapter
from transformers import PreTrainedTokenizerFast

from tercet.pretraining.objectives.fill_in_the_middle import FIM_TOKENS
from tercet.pretraining.objectives.mixture_of_denoisers import MODES
from tercet.pretraining.objectives.recipes import ObjectiveRecipe

from ...word_level import ROLES, SIGNS, word_level
from ..conftest import pair_tokenizer  # noqa: F401


def read(kind: str, **fields) -> ObjectiveRecipe:
    """Read the `objective` part of a recipe."""
    return TypeAdapter(ObjectiveRecipe).validate_python({"kind": kind} | fields)


def tokenizer_of(
    num_sentinels: int = 9, signs: tuple[str, ...] = (*FIM_TOKENS, *MODES), **changes: str | None
) -> PreTrainedTokenizerFast:
    """Build a tokenizer that all objectives but those of whole words can use, unless it is changed."""
    names = [*(f"<extra_id_{i}>" for i in range(num_sentinels)), *signs]
    roles = ROLES | {"bos_token": "[CLS]", "eos_token": "[SEP]"} | changes
    return word_level([*SIGNS, *(f"w{i}" for i in range(50))], extra_special_tokens=names, **roles)


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return tokenizer_of()
