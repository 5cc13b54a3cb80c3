"""Which ids are text and which are signs."""

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from tercet.text.special_tokens import is_special, required_token_id, sentinel_ids


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Sentinels with descending ids, as T5 has them, and an id that no token has."""
    vocabulary = {"<pad>": 0, "<unk>": 1, "a": 2, "b": 3, "<extra_id_1>": 5, "<extra_id_0>": 6}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, "<unk>")),
        pad_token="<pad>",
        unk_token="<unk>",
        extra_special_tokens=["<extra_id_0>", "<extra_id_1>"],
    )


def test_only_words_are_ordinary(tokenizer):
    assert np.flatnonzero(~is_special(tokenizer)).tolist() == [2, 3]


def test_sentinels_come_in_the_order_of_their_names(tokenizer):
    assert sentinel_ids(tokenizer).tolist() == [6, 5]


def test_a_missing_token_is_named_with_its_remedy(tokenizer):
    assert required_token_id(tokenizer, "pad", "padding") == 0
    with pytest.raises(ValueError, match=r"denoising needs the tokenizer's mask_token, but it is None: add"):
        required_token_id(tokenizer, "mask", "denoising")
