"""Texts are read as their tokenizer reads them, pairs are framed as it frames them, and cuts are told of."""

import logging
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

import pytest
from transformers import PreTrainedTokenizerFast

from tercet.finetune.encoding import TextEncoder
from tercet.finetune.frames import separate_pairs

TEXTS = [
    "The house is old.",
    "doors",
    "👨\u200d👩 שלום e\u0301 中文 " * 3,
    "Nobody lives in the new house; " * 3,
]
OTHERS = [
    "its windows are clean and its doors are new. " * 4,
    "Nobody",
    "a b c",
    "everybody lives in the house. " * 3,
]

FRAMING = ["wordpiece", "uncased", "characters", "ended", "roberta", "untrimmed", "llama"]
FRAMELESS = ["byte_bpe", "unigram"]
LONG = 10_000


@pytest.fixture
def encode(families):
    """Encode with a family's tokenizer; give the fields as lists."""

    def encode(name, *columns, max_length=LONG, has_token_types=True):
        encoder = TextEncoder(families[name], max_length, has_token_types=has_token_types)
        return {key: [row.tolist() for row in field] for key, field in encoder.encode(*columns).items()}

    return encode


@pytest.fixture
def separating(families):
    """Give those that frame nothing with what separates pairs."""

    def separating(name):
        tokenizer = deepcopy(families[name])
        separate_pairs(tokenizer)
        return tokenizer

    return separating


def read(tokenizer, *columns, **options):
    encoded = tokenizer(*columns, return_token_type_ids=True, **options)
    return {name: encoded[name] for name in ("input_ids", "token_type_ids")}


@pytest.mark.parametrize("name", FRAMING + FRAMELESS)
def test_texts_are_read_as_the_tokenizer_reads_them(families, encode, name):
    assert encode(name, TEXTS) == read(families[name], TEXTS)
    assert [encode(name, [text])["input_ids"][0] for text in TEXTS] == encode(name, TEXTS)["input_ids"]


@pytest.mark.parametrize("name", FRAMING)
def test_pairs_are_framed_as_the_tokenizer_frames_them(families, encode, name):
    found = encode(name, TEXTS, OTHERS)
    assert found == read(families[name], TEXTS, OTHERS)
    assert encode(name, TEXTS, OTHERS, has_token_types=False) == {"input_ids": found["input_ids"]}


@pytest.mark.parametrize("name", FRAMELESS)
def test_pairs_without_a_frame_are_separated_by_the_end_of_a_text(families, separating, name):
    own, tokenizer = families[name], separating(name)
    sides = (own(side, add_special_tokens=False)["input_ids"] for side in (TEXTS, OTHERS))
    pairs = [*zip(*sides, strict=True)]
    end = own.eos_token_id
    found = tokenizer(TEXTS, OTHERS, return_token_type_ids=True)
    assert found["input_ids"] == [[*first, end, *second] for first, second in pairs]
    expected = [[0] * (len(first) + 1) + [1] * len(second) for first, second in pairs]
    assert found["token_type_ids"] == expected
    assert tokenizer(TEXTS)["input_ids"] == own(TEXTS)["input_ids"]
    separate_pairs(tokenizer)
    assert tokenizer(TEXTS, OTHERS)["input_ids"] == found["input_ids"]


@pytest.mark.parametrize("name", FRAMING + FRAMELESS)
@pytest.mark.filterwarnings("ignore:.*they are truncated")
def test_of_a_pair_that_is_cut_both_are_there(families, encode, name):
    """And the frame is whole."""
    tokenizer = families[name]
    found = encode(name, TEXTS, OTHERS, max_length=16)
    for ids, types, text, other in zip(*found.values(), TEXTS, OTHERS, strict=True):
        assert len(ids) <= 16
        sides = [[*tokenizer(side, add_special_tokens=False)["input_ids"]] for side in (text, other)]
        for ids_of_side in sides:
            assert any(token in ids for token in ids_of_side[:1])
        if name in ("wordpiece", "uncased", "characters"):
            assert ids[0] == tokenizer.cls_token_id
            assert (ids.count(tokenizer.sep_token_id), ids[-1]) == (2, tokenizer.sep_token_id)
            assert types == sorted(types)
            assert set(types) == {0, 1}


@pytest.mark.parametrize("name", FRAMING)
@pytest.mark.filterwarnings("ignore:.*they are truncated")
def test_what_is_too_long_is_cut_as_the_tokenizer_cuts_it(families, encode, name):
    for columns in ([TEXTS], [TEXTS, OTHERS]):
        expected = read(families[name], *columns, truncation="longest_first", max_length=12)
        assert encode(name, *columns, max_length=12) == expected


@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe"])
@pytest.mark.parametrize("paired", [False, True])
def test_a_warning_counts_what_is_cut(families, encode, recwarn, caplog, name, paired):
    """Once, in our words only; nothing is said where nothing is cut."""
    columns = [["doors", "the house " * 30, "a"], *([["a", "b", "the house " * 40]] if paired else [])]
    longest = max(map(len, encode(name, *columns)["input_ids"]))
    assert not recwarn.list
    families[name].model_max_length, before = 10, families[name].model_max_length
    with caplog.at_level(logging.WARNING, logger="transformers"):
        encode(name, *columns, max_length=20)
    families[name].model_max_length = before
    (warning,) = recwarn.list
    assert str(warning.message) == (
        f"{2 if paired else 1} of 3 texts are longer than 20 tokens, the longest has {longest}: "
        "they are truncated; they begin 'the house the house the house the house '"
        + (", 'a'" if paired else "")
    )
    assert not caplog.records


@pytest.mark.parametrize("name", FRAMING + FRAMELESS)
@pytest.mark.filterwarnings("ignore:.*they are truncated")
def test_a_tokenizer_is_left_as_it_was(families, name):
    """Or it would be saved with the model, and cut the texts of others."""
    encoder = TextEncoder(families[name], 8, has_token_types=False)
    before = encoder.tokenizer.backend_tokenizer.to_str()
    encoder.encode(TEXTS, OTHERS)
    encoder.encode(TEXTS)
    encoder.encode_words([text.split() for text in TEXTS])
    assert encoder.tokenizer.backend_tokenizer.to_str() == before


@pytest.mark.parametrize("name", FRAMELESS)
def test_a_text_of_which_nothing_is_left_is_told(encode, name):
    with pytest.raises(ValueError, match="row 2 has no text that the tokenizer knows: take it out"):
        encode(name, ["a", ""])


def test_a_frame_is_something_left(families, encode):
    tokenizer = families["wordpiece"]
    assert encode("wordpiece", ["\u200b"])["input_ids"] == [[tokenizer.cls_token_id, tokenizer.sep_token_id]]


@pytest.mark.parametrize(
    ("name", "columns", "least"),
    [("wordpiece", 1, 3), ("wordpiece", 2, 5), ("byte_bpe", 1, 1), ("byte_bpe", 2, 2), ("roberta", 2, 6)],
)
@pytest.mark.filterwarnings("ignore:.*they are truncated")
def test_a_room_too_small_for_a_frame_is_refused(encode, name, columns, least):
    texts = [TEXTS] * columns
    assert max(map(len, encode(name, *texts, max_length=least)["input_ids"])) <= least
    with pytest.raises(
        ValueError,
        match=rf"a row needs at least {least} tokens, but the maximum is {least - 1}: raise data\.max_length",
    ):
        encode(name, *texts, max_length=least - 1)


def test_a_pair_without_anything_to_put_between_is_refused(families):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=families["byte_bpe"].backend_tokenizer)
    with pytest.raises(
        ValueError, match="no eos token to separate the two texts of a row: set its eos_token"
    ):
        separate_pairs(tokenizer)


def test_a_tokenizer_that_is_not_fast_is_refused():
    with pytest.raises(ValueError, match="SimpleNamespace is not a fast tokenizer"):
        TextEncoder(cast(Any, SimpleNamespace(is_fast=False)), LONG, has_token_types=False)


def test_words_behind_the_end_are_told_to_have_no_label_of_their_own(families):
    encoder = TextEncoder(families["wordpiece"], 12, has_token_types=False)
    message = (
        r"1 of 2 texts .* truncated, and words behind the end get the most frequent label; they begin 'over"
    )
    with pytest.warns(UserWarning, match=message):
        encoder.encode_words([["the", "cat"], ["over", *["the"] * 20]])
