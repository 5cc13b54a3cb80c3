"""A rearrangement and its way back are inverse, and do what they say."""

from types import SimpleNamespace

import pytest
import torch

from tercet.modeling.stock.weights import (
    AS_ONE_ROW,
    CHUNKED_BY_HEAD,
    TRANSPOSED,
    Place,
    chunked,
    first_scaled,
    in_turn,
)

PLACE = Place(SimpleNamespace(num_attention_heads=2), (3,))


@pytest.mark.parametrize(
    "rearrangement",
    [
        TRANSPOSED,
        chunked(3),
        CHUNKED_BY_HEAD,
        first_scaled(lambda place: 1 / (place.indices[0] + 1)),
        in_turn(TRANSPOSED, chunked(3), first_scaled(lambda place: 0.5)),
        in_turn(),
    ],
    ids=["transposed", "chunked", "chunked by head", "first scaled", "in turn", "none"],
)
def test_way_back_undoes_the_way_there(rearrangement) -> None:
    tensor = torch.randn(12, 12)
    ours = rearrangement.to_ours([tensor], PLACE)
    (back,) = rearrangement.to_stock(ours, PLACE)
    torch.testing.assert_close(back, tensor)


def test_row_of_a_matrix_comes_back() -> None:
    (row,) = AS_ONE_ROW.to_ours([torch.tensor([[1.0, 2.0]])], PLACE)
    assert row.tolist() == [1.0, 2.0]
    assert AS_ONE_ROW.to_stock([row], PLACE)[0].shape == (1, 2)


def test_heads_that_hold_queries_keys_and_values_are_sorted() -> None:
    # Two heads of width one: q0 k0 v0 q1 k1 v1.
    query, key, value = CHUNKED_BY_HEAD.to_ours([torch.arange(6.0)], PLACE)
    assert (query.tolist(), key.tolist(), value.tolist()) == ([0, 3], [1, 4], [2, 5])


def test_factor_is_that_of_the_layer() -> None:
    scaled, kept = first_scaled(lambda place: place.indices[0]).to_ours([torch.ones(2), torch.ones(2)], PLACE)
    assert (scaled.tolist(), kept.tolist()) == ([3, 3], [1, 1])
