"""Examples against their definitions: every token once, nothing across documents, the same windows again."""

import numpy as np
import pytest

from tercet.data.chunks import FullSequences, ParallelPairs
from tercet.data.corpus import TokenizedCorpus
from tercet.data.steps.examples import (
    Examples,
    ExampleSource,
    PackableExamples,
    gather,
    tell_of_left_out,
)

from ..corpora import make_corpus

OPENING, CLOSING, END = 1000, 1001, 1002


def corpus_of(*documents: list[int]) -> TokenizedCorpus:
    """A corpus of the ids 0, 1, 2, ... in documents of sentences of these lengths; even ones begin words."""
    ids = np.arange(sum(map(sum, documents)), dtype=np.uint16)
    return make_corpus(documents, ids, ids % 2 == 0)


CORPUS = corpus_of([3, 4], [], [10, 1, 1], [2])


def ids(examples: Examples) -> list[list[int]]:
    return [examples[index]["input_ids"].tolist() for index in range(len(examples))]


@pytest.mark.parametrize("isolate_documents", [True, False])
@pytest.mark.parametrize("document_end", [[], [END]])
def test_every_token_comes_exactly_once(isolate_documents, document_end):
    sequences = FullSequences(
        CORPUS, 6, [OPENING], [CLOSING], isolate_documents, document_end, fewest_tokens=1
    )
    text = [token for sequence in ids(sequences) for token in sequence if token < OPENING]
    assert text == CORPUS.tokens.tolist()
    ends = [token for sequence in ids(sequences) for token in sequence if token == END]
    assert len(ends) == CORPUS.num_documents * len(document_end)


def test_isolated_documents_are_cut_one_by_one():
    assert ids(FullSequences(CORPUS, 7, [OPENING], [CLOSING], fewest_tokens=2)) == [
        [OPENING, 0, 1, 2, 3, 4, CLOSING],
        [OPENING, 5, 6, CLOSING],
        [OPENING, 7, 8, 9, 10, 11, CLOSING],
        [OPENING, 12, 13, 14, 15, 16, CLOSING],
        [OPENING, 17, 18, CLOSING],
        [OPENING, 19, 20, CLOSING],
    ]


def test_joined_documents_fill_every_sequence_but_the_last():
    sequences = FullSequences(
        corpus_of([3, 4], [12], [2]), 8, isolate_documents=False, document_end_ids=[END], fewest_tokens=1
    )
    assert ids(sequences) == [
        [0, 1, 2, 3, 4, 5, 6, END],
        [7, 8, 9, 10, 11, 12, 13, 14],
        [15, 16, 17, 18, END, 19, 20, END],
    ]


def test_joined_documents_are_separated_by_the_suffix():
    sequences = FullSequences(corpus_of([2], [2]), 8, [OPENING], [CLOSING], isolate_documents=False)
    assert ids(sequences) == [[OPENING, 0, 1, CLOSING, 2, 3, CLOSING, CLOSING]]


def test_a_document_ends_where_its_last_sequence_does():
    sequences = FullSequences(corpus_of([5], [3]), 5, [OPENING], [], document_end_ids=[END], fewest_tokens=1)
    assert ids(sequences) == [[OPENING, 0, 1, 2, 3], [OPENING, 4, END], [OPENING, 5, 6, 7, END]]


@pytest.mark.parametrize("isolate_documents", [True, False])
def test_lengths_are_those_of_the_sequences(isolate_documents):
    sequences = FullSequences(CORPUS, 9, [OPENING], [CLOSING], isolate_documents)
    assert sequences.lengths.tolist() == [len(sequence) for sequence in ids(sequences)]
    assert max(sequences.lengths) <= 9


def test_short_sequences_are_left_out_and_counted():
    sequences = FullSequences(CORPUS, 10, fewest_tokens=7)
    assert ids(sequences) == [[*range(7)], [*range(7, 17)]]
    (left_out,) = sequences.left_out
    assert left_out[:5] == ("sequences", 2, 4, 4, 21)
    assert not FullSequences(CORPUS, 10).left_out, "by default, every token is in a sequence"


def test_words_and_sentences_begin_where_they_do_in_the_corpus():
    sequences = FullSequences(CORPUS, 7, [OPENING], [CLOSING], fewest_tokens=2)
    first, second = sequences[0], sequences[1]
    assert first["word_starts"].tolist() == [True, True, False, True, False, True, True]
    assert first["sentence_starts"].tolist() == [False, True, False, False, True, False, False]
    assert second["word_starts"].tolist() == [True, True, True, True], "the text's first token begins a word"
    assert second["sentence_starts"].tolist() == [False, True, False, False]
    assert [sequences[index]["index"] for index in range(len(sequences))] == [*range(len(sequences))]


@pytest.mark.parametrize("prefix", [[], [OPENING], [OPENING, OPENING + 9]])
@pytest.mark.parametrize("suffix", [[], [CLOSING], [CLOSING, CLOSING + 9]])
@pytest.mark.parametrize("document_end", [[], [END], [END, END + 9, END + 10]])
@pytest.mark.parametrize("isolate_documents", [True, False])
@pytest.mark.parametrize("room", [2, 3, 7, 100])
def test_packed_sequences_equal_those_made_one_by_one(prefix, suffix, document_end, isolate_documents, room):
    """Also those that begin or end amid the signs of a document's end, and over empty documents."""
    length = room + len(prefix) + len(suffix)
    corpus = corpus_of([3, 4], [], [10, 1, 1], [], [], [2], [1])
    sequences = FullSequences(
        corpus, length, prefix, suffix, isolate_documents, document_end, fewest_tokens=1
    )
    indices = np.random.default_rng(0).permutation(len(sequences))
    assert_packing_equals_making_one_by_one(sequences, indices)
    assert_packing_equals_making_one_by_one(sequences, indices[:1])


def assert_packing_equals_making_one_by_one(examples: Examples, indices: np.ndarray) -> None:
    assert isinstance(examples, PackableExamples)
    packed, expected = examples.pack(indices), [examples[int(index)] for index in indices]
    assert list(packed.makers) == list(expected[0])
    for name in packed.makers:
        joined = gather(expected, name)
        assert gather(packed, name).values.tolist() == joined.values.tolist(), name
        assert gather(packed, name).lengths.tolist() == joined.lengths.tolist(), name
        assert gather(packed, name).values.dtype == joined.values.dtype, name
    assert [example["index"] for example in packed] == indices.tolist()


def test_examples_do_not_change_the_corpus():
    before = CORPUS.word_starts.copy()
    ids(FullSequences(CORPUS, 7, fewest_tokens=1))
    np.testing.assert_array_equal(CORPUS.word_starts, before)


def test_sequences_need_room_and_text():
    with pytest.raises(ValueError, match=r"corpus\.sequence_length is 2.*raise it"):
        FullSequences(CORPUS, 2, [OPENING], [CLOSING])
    with pytest.raises(ValueError, match="no document of 3 tokens"):
        FullSequences(corpus_of([2], [1]), 16, fewest_tokens=3)


def test_pairs_are_the_documents_of_both_sides_closed():
    pairs = ParallelPairs(corpus_of([2], [3], [1]), corpus_of([1, 1], [2], [4]), 5, [END])
    assert [
        (pair["input_ids"].tolist(), pair["labels"].tolist()) for pair in map(pairs.__getitem__, range(3))
    ] == [
        ([0, 1, END], [0, 1, END]),
        ([2, 3, 4, END], [2, 3, END]),
        ([5, END], [4, 5, 6, 7, END]),
    ]
    assert pairs.lengths.tolist() == [6, 7, 7]


@pytest.mark.parametrize("closing", [[END], [END, END + 1], []])
def test_packed_pairs_equal_those_made_one_by_one(closing):
    pairs = ParallelPairs(corpus_of([2], [3], [1], [1, 1]), corpus_of([1, 1], [2], [4], [2]), 6, closing)
    assert_packing_equals_making_one_by_one(pairs, np.array([3, 0, 2, 1]))


def test_pairs_that_are_too_long_or_empty_are_left_out_and_counted():
    pairs = ParallelPairs(corpus_of([4], [3], [1], []), corpus_of([1], [3], [4], [9]), 4, [END])
    assert ids(pairs) == [[4, 5, 6, END]]
    assert [each[:5] for each in pairs.left_out] == [("pairs", 2, 4, 10, 25), ("pairs", 1, 4, 9, 25)]
    with pytest.warns(UserWarning, match="are left out") as told:
        tell_of_left_out(pairs.left_out, "the text")
    assert [str(warning.message) for warning in told] == [
        "the text: 2 of 4 pairs (10 of 25 tokens) have a side longer than 4 tokens and are left out: raise "
        "corpus.sequence_length to keep them",
        "the text: 1 of 4 pairs (9 of 25 tokens) have a side without tokens and are left out",
    ]
    with pytest.raises(ValueError, match="no pair of at most 2 tokens"):
        ParallelPairs(corpus_of([4]), corpus_of([1]), 2, [END])


def test_sequences_and_pairs_are_the_same_in_every_epoch():
    for source in (FullSequences(CORPUS, 8), ParallelPairs(CORPUS, CORPUS, 100, [END])):
        assert isinstance(source, ExampleSource)
        assert isinstance(source, Examples)
        assert source.epoch(3) is source.epoch(0)
