"""Windows against their definition: the text encoded as a whole."""

import random

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tercet.data.tokenizers import tokenization
from tercet.data.tokenizers.tokenization import Encoded, encode, encode_long, text_backend
from tercet.data.tokenizers.tokenizer import LONGEST_WORD

from .tokenizer_kinds import KINDS, TEXTS


@pytest.fixture(scope="module", params=KINDS)
def backend(request):
    return text_backend(KINDS[request.param]())


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(tokenization, "OVERLAP", 400)
    monkeypatch.setattr(tokenization, "WINDOW", 1000)


def long_text(sentences: int) -> str:
    draw = random.Random(0)
    return "".join(
        draw.choice([*TEXTS.values()]) + draw.choice([" ", "\n", "\n\n"]) for _ in range(sentences)
    )


def assert_equal(ours: Encoded, theirs: Encoded) -> None:
    for name, values in theirs._asdict().items():
        np.testing.assert_array_equal(getattr(ours, name), values, err_msg=name)


def test_a_long_text_has_the_tokens_of_the_whole(backend):
    text = long_text(120)
    whole = Encoded.of([backend.encode(text, add_special_tokens=False)])
    through_windows = encode_long(text, backend, 1000)
    assert_equal(through_windows, whole._replace(starts=np.maximum.accumulate(whole.starts)))


def test_long_and_short_texts_keep_their_order(backend, monkeypatch):
    monkeypatch.setattr(tokenization, "OVERLAP", 2 * LONGEST_WORD)
    monkeypatch.setattr(tokenization, "WINDOW", 3000)
    texts = ["One.", long_text(80), "", "Two.", long_text(15) + "x" * 5000]
    assert len(texts[1]) > tokenization.WINDOW
    whole = Encoded.of([backend.encode(text, add_special_tokens=False) for text in texts])
    assert_equal(encode(texts, backend)._replace(starts=whole.starts), whole)


def test_windows_that_agree_nowhere_grow():
    """Digits in threes from the left: only windows that begin at a multiple of three agree."""
    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(pattern_of_three(), "isolated")
    text = "7" * 5000
    assert_equal(encode_long(text, backend, 1000), Encoded.of([backend.encode(text)]))


def pattern_of_three():
    from tokenizers import Regex

    return Regex(r"\d{1,3}")


def test_a_text_that_is_one_word_stays_whole():
    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    assert encode_long("one word " * 1000, backend, 1000).lengths.tolist() == [1]


def test_windows_join_where_there_is_nothing_but_white_space():
    backend = text_backend(KINDS["wordpiece"]())
    text = "The ferry left." + " " * 5000 + "Nobody waved."
    assert_equal(
        encode_long(text, backend, 1000), Encoded.of([backend.encode(text, add_special_tokens=False)])
    )
