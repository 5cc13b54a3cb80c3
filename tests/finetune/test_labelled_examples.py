"""Examples are the same one by one and many at once."""

import numpy as np
import pytest

from tercet.data.steps.examples import gather, has_field, pick
from tercet.data.steps.packing import ragged
from tercet.finetune.encoding import LabelledExamples, numbers, select, vectors


@pytest.fixture
def examples():
    rng = np.random.default_rng(0)
    lengths = [4, 1, 7, 2, 0, 3]
    fields = {
        name: ragged([rng.integers(0, 50, length) for length in lengths]) for name in ("input_ids", "words")
    }
    scores = rng.random((6, 3)).astype(np.float32)
    return LabelledExamples(fields | {"label": numbers(np.arange(6) * 10), "scores": vectors(scores)})


@pytest.mark.parametrize("chosen", [[0], [3, 3], [5, 0, 2], [4], [], range(6)])
def test_many_at_once_are_the_same_as_one_by_one(examples, chosen):
    indices = np.array(chosen, dtype=np.int64)
    packed = pick(examples, indices)
    assert len(packed) == len(indices)
    for name in ("input_ids", "words", "label", "scores", "index"):
        assert has_field(packed, name)
        found = gather(packed, name)
        assert len(found) == len(indices)
        for place, (own, index) in enumerate(zip(found, indices.tolist(), strict=True)):
            np.testing.assert_array_equal(own, np.atleast_1d(examples[index][name]))
            np.testing.assert_array_equal(own, np.atleast_1d(packed[place][name]))
    assert not has_field(packed, "labels")


def test_an_example_has_all_fields_and_its_number(examples):
    example = examples[2]
    assert set(example) == {"input_ids", "words", "label", "scores", "index"}
    assert example["index"] == 2
    assert example["label"].tolist() == [20]
    assert example["scores"].shape == (3,)
    assert len(example["input_ids"]) == 7


def test_an_example_costs_the_ids_that_a_model_reads_of_it(examples):
    assert len(examples) == 6
    assert examples.lengths.tolist() == [4, 1, 7, 2, 0, 3]
    both = examples.fields | {"decoder_input_ids": ragged([np.zeros(2, dtype=np.int64)] * 6)}
    assert LabelledExamples(both).lengths.tolist() == [6, 3, 9, 4, 2, 5]


def test_epochs_are_alike(examples):
    assert examples.epoch(0) is examples.epoch(3) is examples


def test_numbers_keep_their_kind():
    for values in (np.arange(3), np.arange(3, dtype=np.float32)):
        field = numbers(values)
        assert field.values.dtype == values.dtype
        assert [each.tolist() for each in field] == [[value] for value in values.tolist()]
        assert select(field, np.array([2, 0])).values.tolist() == [2, 0]
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert [each.tolist() for each in vectors(table)] == table.tolist()
    assert select(vectors(table), np.array([1, 1])).values.tolist() == [3, 4, 5, 3, 4, 5]
