"""How much of a text its tokenizer does not know is counted, shown and warned of."""

import json
import math

import numpy as np
import pytest

from tercet.pretraining.run import pretrain
from tercet.text.special_tokens import share_of_unknown, tell_of_unknown
from tercet.text.tokenizer import train_tokenizer

TEXTS = ["the cat sat under the tree.", "a big dog ran over the fish."] * 20


@pytest.mark.parametrize(
    ("kind", "expected"), [("wordpiece", 3 / 6), ("characters", 7 / 18), ("byte_bpe", 0)]
)
def test_the_share_is_that_of_the_tokens(kind, expected):
    """Three words of six, seven letters of eighteen; bytes are all known."""
    tokenizer = train_tokenizer(TEXTS, kind, 300 if kind == "byte_bpe" else 80)
    tokens = np.array(tokenizer("кот сат the cat. Ж", add_special_tokens=False)["input_ids"])
    assert share_of_unknown([tokens[:3], tokens[3:]], tokenizer) == pytest.approx(expected)


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


@pytest.mark.parametrize("kind", ["masked_language_modeling", "causal_language_modeling", "translation"])
def test_a_run_shows_it_and_keeps_it_beside_the_scores(kind, texts, recipe_of, tmp_path, capsys):
    pretrain(recipe_of(kind, texts, tmp_path / "run"))
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["held_out"] == {"unknown_tokens": 0}
    assert "the held-out text: 0.00% of the tokens are unknown" in capsys.readouterr().err
