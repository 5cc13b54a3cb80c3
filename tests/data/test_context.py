"""Stretches in their context: every token is a target once, and what surrounds it is read."""

import numpy as np
import pytest

from tercet.data.chunks import StretchesInContext
from tercet.data.corpus import TokenizedCorpus
from tercet.data.steps.examples import gather, pick
from tercet.data.steps.objective import IGNORE

from ..corpora import make_corpus

END = 2
SIZES = (11, 1, 4, 0, 8)


@pytest.fixture
def corpus() -> TokenizedCorpus:
    return make_corpus([[size] for size in SIZES])


def stream_of(corpus: TokenizedCorpus) -> list[int]:
    documents = (corpus.document(number).tolist() for number in range(corpus.num_documents))
    return [END, *(token for document in documents for token in (*document, END))]


def test_an_example_is_a_stretch_of_the_stream_with_its_context(corpus):
    source = StretchesInContext(corpus, 8, 2, [END])
    examples = [source[number] for number in range(len(source))]
    assert [example["input_ids"].tolist() for example in examples[:3]] == [
        [END, 10, 11, 12, 13, 14, 15],  # no context before the text but what begins it
        [12, 13, 14, 15, 16, 17, 18, 19],
        [16, 17, 18, 19, 20, END],
    ]
    i = IGNORE
    assert [example["labels"].tolist() for example in examples[:3]] == [
        [END, 10, 11, 12, 13, i, i],
        [i, i, 14, 15, 16, 17, i, i],
        [i, i, 18, 19, 20, END],
    ]
    assert examples[3]["input_ids"].tolist() == examples[3]["labels"].tolist() == [END, 21, END]


@pytest.mark.parametrize("is_isolated", [True, False])
@pytest.mark.parametrize(("length", "context"), [(8, 2), (9, 4), (40, 5), (3, 1)])
def test_every_token_is_a_target_once_in_both_directions(length, context, is_isolated, corpus):
    source = StretchesInContext(corpus, length, context, [END], is_isolated)
    stream = stream_of(corpus)
    assert source.lengths.max() <= length
    forward, backward = [], []
    for number in range(len(source)):
        ids, labels = source[number]["input_ids"], source[number]["labels"]
        assert len(ids) == source.lengths[number]
        assert all(label in (IGNORE, token) for label, token in zip(labels, ids, strict=True))
        forward += [label for label in labels[1:].tolist() if label != IGNORE]
        backward += [label for label in labels[:-1].tolist() if label != IGNORE]
    assert forward == stream[1:]
    assert backward == stream[:-1]


def test_context_ends_with_the_document_if_documents_are_isolated(corpus):
    alone, joined = (StretchesInContext(corpus, 16, 3, [END], flag) for flag in (True, False))
    inner = [source[number]["input_ids"][1:-1] for source in [alone] for number in range(len(source))]
    assert all(END not in ids for ids in inner)
    assert any(END in joined[number]["input_ids"][1:-1] for number in range(len(joined)))


def test_many_at_once_are_single_ones(corpus):
    source = StretchesInContext(corpus, 7, 2, [END])
    chosen = np.array([5, 0, 3, 1])
    packed = pick(source.epoch(0), chosen)
    for name in ("input_ids", "labels"):
        expected = [source[int(number)][name] for number in chosen]
        assert gather(packed, name).values.tolist() == np.concatenate(expected).tolist()
    assert [example["index"] for example in packed] == chosen.tolist()


@pytest.mark.parametrize(("length", "context"), [(8, 0), (8, 4)])
def test_context_that_leaves_no_room_is_refused(length, context, corpus):
    with pytest.raises(ValueError, match=f"sequence_length is {length}, of which {context} tokens on either"):
        StretchesInContext(corpus, length, context, [END])
