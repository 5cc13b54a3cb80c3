"""A rearrangement and its way back are inverse, and do what they say."""

from types import SimpleNamespace

import pytest
import torch

from tercet.stock.weights import (
    AsOneRow,
    Chunked,
    ChunkedByHead,
    FirstScaled,
    InTurn,
    Place,
    Transposed,
)

PLACE = Place(SimpleNamespace(num_attention_heads=2), (3,))


@pytest.mark.parametrize(
    "rearrangement",
    [
        Transposed(),
        Chunked(3),
        ChunkedByHead(),
        FirstScaled(lambda place: 1 / (place.indices[0] + 1)),
        InTurn((Transposed(), Chunked(3), FirstScaled(lambda place: 0.5))),
        InTurn(()),
    ],
    ids=lambda each: type(each).__name__,
)
def test_way_back_undoes_the_way_there(rearrangement) -> None:
    tensor = torch.randn(12, 12)
    ours = rearrangement.to_ours([tensor], PLACE)
    (back,) = rearrangement.to_stock(ours, PLACE)
    torch.testing.assert_close(back, tensor)


def test_row_of_a_matrix_comes_back() -> None:
    (row,) = AsOneRow().to_ours([torch.tensor([[1.0, 2.0]])], PLACE)
    assert row.tolist() == [1.0, 2.0]
    assert AsOneRow().to_stock([row], PLACE)[0].shape == (1, 2)


def test_heads_that_hold_queries_keys_and_values_are_sorted() -> None:
    # Two heads of width one: q0 k0 v0 q1 k1 v1.
    query, key, value = ChunkedByHead().to_ours([torch.arange(6.0)], PLACE)
    assert (query.tolist(), key.tolist(), value.tolist()) == ([0, 3], [1, 4], [2, 5])


def test_factor_is_that_of_the_layer() -> None:
    scaled, kept = FirstScaled(lambda place: place.indices[0]).to_ours([torch.ones(2), torch.ones(2)], PLACE)
    assert (scaled.tolist(), kept.tolist()) == ([3, 3], [1, 1])
