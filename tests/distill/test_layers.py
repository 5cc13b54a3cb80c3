"""Layers are chosen as said, or refused in one line."""

import pytest

from tercet.distill.layers import choose_layers, paired_layers
from tercet.distill.student import KEYS


@pytest.mark.parametrize(
    ("choice", "depth", "count", "expected"),
    [
        ("every", 12, None, [0, 2, 4, 6, 8, 10]),
        ("every", 12, 4, [0, 3, 6, 9]),
        ("spread", 12, 6, [0, 2, 4, 7, 9, 11]),
        ("spread", 12, 1, [0]),
        ("first", 6, 2, [0, 1]),
        ("last", 6, 2, [4, 5]),
        ((1, 3), 4, None, [1, 3]),
        ("every", 1, None, [0]),
        ("spread", 5, 5, [0, 1, 2, 3, 4]),
    ],
)
def test_layers_are_chosen(choice, depth, count, expected):
    assert choose_layers(choice, depth, count, *KEYS) == expected


@pytest.mark.parametrize(
    ("choice", "depth", "count", "message"),
    [
        ("every", 12, 5, r"student\.layers is every, but 5 layers do not divide 12"),
        ("first", 4, 5, r"student\.num_layers is 5, but the teacher has 4 layers: take fewer"),
        ((0, 4), 4, None, r"is \[0, 4\], but the teacher's layers are 0 to 3"),
        ((2, 1), 4, None, "each once, in their order"),
        ((1, 1), 4, None, "each once, in their order"),
        ((-1, 1), 4, None, "layers are 0 to 3"),
        ((), 4, None, "layers are 0 to 3"),
        ((0, 1), 4, 3, r"lists 2 layers, but student\.num_layers is 3: leave that out"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(choice, depth, count, message):
    with pytest.raises(ValueError, match=message):
        choose_layers(choice, depth, count, *KEYS)


def test_states_are_paired_at_the_same_height():
    assert paired_layers(6, 12) == [(number, 2 * number) for number in range(7)]
    assert paired_layers(4, 4) == [(number, number) for number in range(5)]
    assert paired_layers(3, 4)[0] == (0, 0)
    assert paired_layers(3, 4)[-1] == (3, 4)
