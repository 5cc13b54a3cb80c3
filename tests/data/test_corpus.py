"""The arrays of a tokenized corpus, on disk and in memory."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from tercet.data.corpus import ARRAYS, TokenizedCorpus, offsets, save_corpus, token_kind
from tercet.data.files.problems import Tally


def corpus_of(*documents: list[list[int]]) -> TokenizedCorpus:
    """A corpus of documents of sentences of ids; every odd id begins a word."""
    sentences = [sentence for document in documents for sentence in document]
    tokens = np.array([token for sentence in sentences for token in sentence], dtype=np.uint16)
    return TokenizedCorpus(
        tokens=tokens,
        word_starts=tokens % 2 == 1,
        sentence_offsets=offsets(np.array([len(sentence) for sentence in sentences])),
        document_offsets=offsets(np.array([len(document) for document in documents])),
        document_bytes=np.array([10 * len(document) for document in documents]),
    )


PARTS = [corpus_of([[1, 2, 3], [4, 5]], [[6]]), corpus_of([[7, 8]], [], [[9], [10, 11]])]
WHOLE = corpus_of([[1, 2, 3], [4, 5]], [[6]], [[7, 8]], [], [[9], [10, 11]])


@pytest.fixture
def saved(tmp_path: Path) -> TokenizedCorpus:
    save_corpus(PARTS, tmp_path / "corpus", vocabulary_size=100, tally=Tally())
    return TokenizedCorpus.load(tmp_path / "corpus")


def test_documents_and_sentences_are_found():
    assert (WHOLE.num_tokens, WHOLE.num_sentences, WHOLE.num_documents) == (11, 6, 5)
    assert [WHOLE.document(index).tolist() for index in range(5)] == [
        [1, 2, 3, 4, 5],
        [6],
        [7, 8],
        [],
        [9, 10, 11],
    ]
    assert WHOLE.sentence(1).tolist() == [4, 5]
    assert WHOLE.token_offsets.tolist() == [0, 5, 6, 8, 8, 11]


def test_parts_saved_one_after_another_are_the_whole(saved):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(saved, name), getattr(WHOLE, name))


def test_a_saved_corpus_is_mapped_not_read(saved):
    assert isinstance(saved.tokens.base, np.memmap)
    assert not saved.tokens.flags.writeable


def test_a_mapped_corpus_travels_by_the_name_of_its_folder(saved):
    many = TokenizedCorpus.load(saved.folder)
    assert len(pickle.dumps(many)) < 500
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(many)).tokens, WHOLE.tokens)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(WHOLE)).tokens, WHOLE.tokens)


def test_an_empty_corpus_can_be_saved(tmp_path):
    save_corpus([], tmp_path / "empty", vocabulary_size=100, tally=Tally())
    assert TokenizedCorpus.load(tmp_path / "empty").num_documents == 0


@pytest.mark.parametrize(("size", "kind"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_ids_take_as_few_bytes_as_they_can(size, kind):
    assert token_kind(size) == kind
    assert np.iinfo(kind).max >= size - 1
