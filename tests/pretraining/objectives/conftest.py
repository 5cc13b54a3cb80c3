"""Tokenizers of words: of pairs, as in pretraining, and with the signs of every objective."""

import pytest
from transformers import PreTrainedTokenizerFast

from tercet.pretraining.objectives.fill_in_the_middle import FIM_TOKENS
from tercet.pretraining.objectives.mixture_of_denoisers import MODES

from ...word_level import ROLES, SIGNS, word_level
from ..conftest import pair_tokenizer  # noqa: F401


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer that all objectives but those of whole words can use."""
    names = [*(f"<extra_id_{i}>" for i in range(9)), *FIM_TOKENS, *MODES]
    roles = ROLES | {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    return word_level([*SIGNS, *(f"w{i}" for i in range(50))], extra_special_tokens=names, **roles)
