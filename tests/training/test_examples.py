"""Several examples at once: one by one, or field by field."""

import numpy as np
import pytest

from tercet.data.steps.examples import PackableExamples, PackedExamples, gather, has_field, pick
from tercet.data.steps.packing import Ragged

ROWS = [
    {"input_ids": np.arange(length), "kind": length, "index": index} for index, length in enumerate((3, 1, 2))
]


class Rows:
    lengths = np.array([3, 1, 2])

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, index):
        return ROWS[index]


class PackableRows(Rows, PackableExamples):
    def pack(self, indices):
        ids = Ragged(np.concatenate([np.arange(n) for n in self.lengths[indices]]), self.lengths[indices])
        return PackedExamples(
            self, indices, {"input_ids": lambda: ids, "kind": lambda: Ragged(self.lengths[indices], indices)}
        )


@pytest.mark.parametrize("rows", [Rows(), PackableRows()])
def test_picked_examples_are_those_of_the_list(rows):
    picked = pick(rows, np.array([2, 0]))
    assert isinstance(picked, PackedExamples) == isinstance(rows, PackableExamples)
    assert len(picked) == 2
    assert list(picked) == [ROWS[2], ROWS[0]]
    assert picked[-1] == ROWS[0]
    assert picked[1:] == [ROWS[0]]


@pytest.mark.parametrize("rows", [Rows(), PackableRows()])
def test_a_field_is_gathered_end_to_end(rows):
    picked = pick(rows, np.array([2, 0]))
    assert gather(picked, "input_ids").values.tolist() == [0, 1, 0, 1, 2]
    assert gather(picked, "input_ids").lengths.tolist() == [2, 3]
    assert gather(picked, "kind").values.tolist() == [2, 3]
    assert gather(picked, "index").values.tolist() == [2, 0]
    assert has_field(picked, "kind")
    assert not has_field(picked, "labels")
