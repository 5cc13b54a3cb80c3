"""How much of a text its tokenizer does not know is counted, shown and warned of."""

import json
import math

import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from tercet.data.prepared import PiecewiseArray
from tercet.data.tokenizers.special_tokens import share_of_unknown, tell_of_unknown
from tercet.data.tokenizers.tokenization import tokenize
from tercet.data.tokenizers.tokenizer import train_tokenizer

from ..reported import pretrain

TEXTS = ["the cat sat under the tree.", "a big dog ran over the fish."] * 20


@pytest.mark.parametrize(
    ("kind", "expected"), [("wordpiece", 3 / 6), ("characters", 7 / 18), ("byte_bpe", 0)]
)
def test_the_share_is_that_of_the_tokens(kind, expected):
    """Three words of six, seven letters of eighteen; bytes are all known."""
    tokenizer = train_tokenizer(TEXTS, kind, 300 if kind == "byte_bpe" else 80)
    tokens = np.array(tokenizer("кот сат the cat. Ж", add_special_tokens=False)["input_ids"])
    assert share_of_unknown([tokens[:3], tokens[3:]], tokenizer) == pytest.approx(expected)


@pytest.mark.parametrize(("unknown", "roles"), [("</s>", {"unk_token": "</s>"}), ("[UNK]", {})])
def test_an_unknown_token_counts_whatever_its_role(unknown, roles):
    backend = Tokenizer(WordLevel({unknown: 0, "the": 1}, unknown))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", **roles)
    assert share_of_unknown([tokenize(["the cat"], tokenizer).tokens], tokenizer) == 1 / 2


def test_the_end_of_a_text_is_not_unknown_where_all_bytes_are_known():
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 300)
    tokenizer.unk_token = tokenizer.eos_token
    assert share_of_unknown([np.array([5, tokenizer.eos_token_id])], tokenizer) == 0


def test_tokens_in_shards_are_counted_alike():
    tokenizer = train_tokenizer(TEXTS, "wordpiece", 80)
    tokens = np.array(tokenizer("кот сат the cat. Ж", add_special_tokens=False)["input_ids"])
    shards = PiecewiseArray([2, len(tokens) - 2], tokens.dtype, lambda piece: np.split(tokens, [2])[piece])
    assert share_of_unknown([shards], tokenizer) == share_of_unknown([tokens], tokenizer) > 0


def test_of_no_tokens_the_share_is_undefined():
    tokenizer = train_tokenizer(TEXTS, "characters", 80)
    assert math.isnan(share_of_unknown([np.array([], dtype=np.int64)], tokenizer))


@pytest.mark.filterwarnings("error")
def test_a_small_share_is_shown(capsys):
    tell_of_unknown(0.004, "the held-out text")
    assert capsys.readouterr().err == "the held-out text: 0.40% of the tokens are unknown to the tokenizer\n"


def test_a_large_share_is_warned_of():
    with pytest.warns(UserWarning, match="30.0% of the tokens of the held-out text are unknown"):
        tell_of_unknown(0.3, "the held-out text")


@pytest.mark.parametrize("kind", ["causal_language_modeling", "translation"])
def test_a_run_shows_it_and_keeps_it_beside_the_scores(kind, texts, recipe_of, tmp_path, capsys):
    pretrain(recipe_of(kind, texts, tmp_path / "run"))
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["held_out"] == {"unknown_tokens": 0}
    assert "the held-out text: 0.00% of the tokens are unknown" in capsys.readouterr().err
