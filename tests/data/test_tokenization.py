"""A tokenized corpus against its definition: tokenizing every document by itself."""

import random
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from tercet.data.corpus import ARRAYS
from tercet.data.documents import open_documents
from tercet.data.tokenizers import tokenization
from tercet.data.tokenizers.tokenization import tokenize, tokenized_corpus
from tercet.data.tokenizers.tokenizer import KINDS, LONGEST_WORD, train_tokenizer
from tercet.data.tokenizers.words import word_numbers

from ..word_level import word_level
from . import tokenizer_kinds

TEXTS = [
    "The house is old. It has two doors, both red!\nNobody lives there.",
    "Why? Because the doors are red, and the [MASK] </s> <extra_id_0> says [SEP] so.  Two spaces.",
    "One word.",
    "Unbelievable 😀 houses; it's 3.5 metres\n\nhigh.",
] * 3


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return train_tokenizer(TEXTS, request.param, 600, sentinels=2)


@pytest.mark.parametrize("kind", tokenizer_kinds.KINDS)
def test_a_corpus_holds_what_its_tokenizer_gives(kind):
    tokenizer = tokenizer_kinds.KINDS[kind]()
    texts = [*tokenizer_kinds.TEXTS.values(), *TEXTS[:4], ""]
    corpus = tokenize(texts, tokenizer)
    special = {number for number in tokenizer.all_special_ids if number != tokenizer.unk_token_id}
    for index, text in enumerate(texts):
        expected = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        if special.isdisjoint(expected):  # its model takes names in a text for tokens
            assert corpus.document(index).tolist() == expected, text
    assert corpus.num_documents == len(texts)
    assert (np.diff(corpus.sentence_offsets) > 0).all()
    assert corpus.word_starts[corpus.sentence_offsets[:-1]].all()


@pytest.mark.parametrize("kind", tokenizer_kinds.KINDS)
def test_words_are_the_same_whatever_the_tokenizer(kind):
    text = "The ferry left at noon, and it didn't matter! A boy counted 1,250 gulls."
    corpus = tokenize([text], tokenizer_kinds.KINDS[kind]())
    numbers, _ = word_numbers(text)
    num_words = len({numbers[place] for place in range(len(text)) if text[place] != " "})
    has_tokens_across_words = kind in {"bytes without cuts", "unigram", "metaspace"}
    assert num_words - 2 * has_tokens_across_words <= corpus.word_starts.sum() <= num_words


def test_sentences_are_those_of_the_text(tokenizer):
    assert tokenize(TEXTS, tokenizer).num_sentences == 3 * (3 + 3 + 1 + 2)


def test_a_token_across_two_sentences_belongs_to_the_first():
    tokenizer = tokenizer_kinds.KINDS["bytes by threes"]()
    corpus = tokenize(["- first item.\n- second item;\n"], tokenizer)
    sentences = [tokenizer.decode(corpus.sentence(index)) for index in range(corpus.num_sentences)]
    assert sentences == ["- first item.\n", "- second item;\n"]


def test_text_never_becomes_a_special_token(tokenizer):
    signs = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert signs.isdisjoint(tokenize(TEXTS, tokenizer).tokens.tolist())


def test_bytes_are_those_of_the_text(tokenizer):
    assert tokenize(TEXTS, tokenizer).document_bytes.tolist() == [len(text.encode()) for text in TEXTS]


def test_a_text_without_tokens_is_an_empty_document():
    tokenizer = train_tokenizer(TEXTS, "wordpiece", 400)
    corpus = tokenize(["One.", "\x00\u200b", "Two."], tokenizer)
    assert np.diff(corpus.token_offsets)[1] == 0
    assert corpus.num_documents == 3
    assert (np.diff(corpus.sentence_offsets) > 0).all()


@pytest.fixture
def calls(monkeypatch):
    """Record every batch that is really tokenized."""
    batches = []
    original = tokenization._tokenize
    monkeypatch.setattr(
        tokenization, "_tokenize", lambda texts, *others: batches.append(texts) or original(texts, *others)
    )
    return batches


def test_a_corpus_is_tokenized_once(tmp_path, calls):
    file = tmp_path / "texts.txt"
    file.write_text("\n\n".join(TEXTS[:2]))
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 400)
    first, second = (tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache") for _ in range(2))
    assert len(calls) == 1
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
        np.testing.assert_array_equal(getattr(first, name), getattr(tokenize(TEXTS[:2], tokenizer), name))


def test_a_changed_file_or_tokenizer_is_tokenized_anew(tmp_path, calls, monkeypatch):
    file = tmp_path / "texts.txt"
    file.write_text("One text.")
    tokenizer, other = (train_tokenizer(TEXTS, "byte_bpe", size) for size in (300, 400))
    tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache")
    tokenized_corpus(open_documents(file), other, tmp_path / "cache")
    file.write_text("Another text.")
    changed = tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache")
    assert calls == [["One text."], ["One text."], ["Another text."]]
    assert tokenizer.decode(changed.document(0)) == "Another text."
    monkeypatch.setattr(tokenization, "tokenizers_version", "of tomorrow")
    tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache")
    assert len(calls) == 4


def test_a_file_that_changes_while_it_is_read_leaves_nothing_in_the_cache(tmp_path, monkeypatch):
    """Its tokens would be those of a hash that is of other contents."""
    file, original = tmp_path / "texts.txt", tokenization._tokenize
    file.write_text("One text.")
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 300)

    def tokenize_slowly(*arguments):
        file.write_text("One text, and more of it.")
        return original(*arguments)

    monkeypatch.setattr(tokenization, "_tokenize", tokenize_slowly)
    with pytest.raises(ValueError, match=r"corpus .*texts\.txt has changed while it was read"):
        tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache")
    assert not [*(tmp_path / "cache" / "tokenized").iterdir()]
    monkeypatch.undo()
    corpus = tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache")
    assert tokenizer.decode(corpus.document(0)) == "One text, and more of it."


def test_batches_do_not_change_the_corpus(tmp_path, monkeypatch, calls):
    file = tmp_path / "texts.txt"
    file.write_text("\n\n".join(TEXTS[::2]))
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 400)
    whole = tokenized_corpus(open_documents(file), tokenizer, tmp_path / "whole")
    monkeypatch.setattr(tokenization, "CHARACTERS_AT_ONCE", 20)
    parts = tokenized_corpus(open_documents(file), tokenizer, tmp_path / "parts")
    calls.clear()
    in_memory = tokenize(TEXTS[::2], tokenizer)
    assert len(calls) == 4
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
        np.testing.assert_array_equal(getattr(whole, name), getattr(in_memory, name))


WORDS = [
    "the",
    "doors",
    "Are",
    "red,",
    "and",
    "3.5",
    "houses",
    "old;",
    "unbelievable\u00e9",
    "says",
    "\U0001f600",
    "(so)",
]


def long_text(characters):
    """A text without an end of a sentence."""
    draw = random.Random(0)
    return "".join(draw.choice(WORDS) + draw.choice([" ", " ", "  ", "\t"]) for _ in range(characters // 6))


def test_long_documents_are_the_same_through_windows(tokenizer, monkeypatch):
    words = " ".join(["x" * (LONGEST_WORD + 10)] * 3)  # which only a part of has pieces
    texts = [long_text(20_000), "One. " + long_text(6000), words, "x" * 6000, "\x00", TEXTS[1]]
    whole = tokenize(texts, tokenizer)
    monkeypatch.setattr(tokenization, "WINDOW", 3000)
    assert tokenization.OVERLAP >= 2 * LONGEST_WORD
    pieces = tokenize(texts, tokenizer)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))


PEAK = """
import resource, sys
from tercet.data.tokenizers.tokenization import tokenized_corpus
from tercet.data.documents import open_documents
from tercet.data.tokenizers.tokenizer import load_tokenizer
from pathlib import Path
folder = Path(sys.argv[1])
tokenizer = load_tokenizer(str(folder))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tokenized_corpus(open_documents(folder / "text.txt"), tokenizer, folder / "cache")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_a_vocabulary_is_the_same_however_long_the_texts_are_that_it_is_learned_from(monkeypatch, kind):
    texts = [long_text(30_000)]
    whole = train_tokenizer(texts, kind, 300)
    monkeypatch.setattr("tercet.data.tokenizers.tokenizer.LONGEST_PIECE", 200)
    assert train_tokenizer(texts, kind, 300).get_vocab() == whole.get_vocab()


@pytest.mark.slow
@pytest.mark.parametrize("end", [" ", ".\n"])
def test_a_document_of_megabytes_takes_a_bounded_share_of_memory(tmp_path, end):
    train_tokenizer(TEXTS, "byte_bpe", 400).save_pretrained(tmp_path)
    line = "The doors are red and the house is old and nobody lives there" + end
    (tmp_path / "text.txt").write_text(line * (6_000_000 // len(line)))
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout.splitlines()[-1]) < 300_000  # KiB; all at once it was 600,000 and more


def test_a_broken_corpus_leaves_no_cache(tmp_path):
    (tmp_path / "texts.txt").write_bytes(b"good text\n\n\xe9")
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 400)
    with pytest.raises(ValueError, match="is not UTF-8"):
        tokenized_corpus(open_documents(tmp_path / "texts.txt"), tokenizer, tmp_path / "cache")
    assert list((tmp_path / "cache" / "tokenized").iterdir()) == []


def test_skipped_records_are_told_of_again_when_the_corpus_comes_from_the_cache(tmp_path, calls):
    file = tmp_path / "texts.txt"
    file.write_bytes(b"One text.\n\n\xe9\n\nAnother.")
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 400)
    documents = open_documents(file, skip_bad_records=True)
    for _ in range(2):
        with pytest.warns(
            UserWarning, match=r"skipped 1 of 3 records as bad: .*texts\.txt, line 3: byte 0xe9"
        ):
            corpus = tokenized_corpus(documents, tokenizer, tmp_path / "cache")
        assert corpus.num_documents == 2
        assert (corpus.tally.records, corpus.tally.num_left_out) == (3, 1)
    assert len(calls) == 1
    with pytest.raises(ValueError, match="line 3"):
        tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache")


@pytest.mark.parametrize(("tokenized_before", "kept"), [(1, 0), (5, 4), (8, 8)])
def test_an_interrupted_tokenization_goes_on_with_the_next_shard(
    tmp_path, calls, monkeypatch, tokenized_before, kept
):
    """Shards of two documents here: what is whole is not tokenized again, and the corpus is the same."""
    file = tmp_path / "texts.txt"
    file.write_bytes(b"\xe9\n\n" + "\n\n".join(TEXTS[:3] * 3).encode())
    documents = open_documents(file, skip_bad_records=True)
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 400)
    with pytest.warns(UserWarning, match="skipped 1 of 10"):
        whole = tokenized_corpus(documents, tokenizer, tmp_path / "whole")
    monkeypatch.setattr(tokenization, "CHARACTERS_AT_ONCE", 1)
    monkeypatch.setattr(tokenization, "BATCHES_OF_A_SHARD", 2)
    recorded, calls[:] = tokenization._tokenize, []

    def interrupted(texts, *others):
        if len(calls) == tokenized_before:
            raise KeyboardInterrupt
        return recorded(texts, *others)

    monkeypatch.setattr(tokenization, "_tokenize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tokenized_corpus(documents, tokenizer, tmp_path / "cache")
    monkeypatch.setattr(tokenization, "_tokenize", recorded)
    calls.clear()
    with pytest.warns(UserWarning, match="skipped 1 of 10"):
        corpus = tokenized_corpus(documents, tokenizer, tmp_path / "cache")
    assert calls == [[text] for text in (TEXTS[:3] * 3)[kept:]]
    assert corpus.tally == whole.tally
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(whole, name), getattr(corpus, name))
    assert [folder.name for folder in (tmp_path / "cache" / "tokenized").iterdir()] == [corpus.folder.name]


def test_ids_may_leave_others_out():
    words = {"[UNK]": 0, "[PAD]": 3, "here": 7, "there": 70_000}
    tokenizer = word_level(words, split=pre_tokenizers.Whitespace(), pad_token="[PAD]", unk_token="[UNK]")
    assert tokenize(["here there here"], tokenizer).tokens.tolist() == [7, 70_000, 7]


def test_a_tokenizer_must_be_fast():
    with pytest.raises(ValueError, match="is not a fast tokenizer"):
        tokenize(TEXTS, object())  # pyright: ignore[reportArgumentType]
