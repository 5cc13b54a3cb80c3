"""What counting finds between two words, and in four continuations."""

import numpy as np
import pytest

from tercet.demo.continuing import chosen_rightly, overlap_values
from tercet.demo.measured import Measured
from tercet.demo.neighbours import NeighbourCounts
from tercet.demo.telegrams import filled, gaps
from tercet.demo.verdicts import compare


def test_neighbours_on_both_sides_decide():
    seen = [("a", "x", "b")] * 20 + [("a", "y", "c")] * 20 + [("d", "x", "c")] * 20 + [("q", "z", "r")] * 70
    counts = NeighbourCounts.fit(seen)
    assert counts.best("a", "b", 1) == ["x"]
    assert counts.best("a", "c", 1) == ["y"]
    assert counts.best("never", "seen", 1) == counts.most_frequent(1) == ["z"]


def test_telegrams_are_filled_with_what_stood_between_their_words():
    sentences = ["Return the number of rows.", "Return a list of rows, as is."] * 20
    counts = NeighbourCounts.fit(gap for sentence in sentences for gap in gaps(sentence))
    assert filled("return number rows", counts) == "Return the number of rows."
    article = NeighbourCounts.fit(gaps("The rows."))
    assert filled("rows", article) == "The rows."


def test_equal_values_count_their_share():
    measured = chosen_rightly([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [2.0, 0.0, 2.0]], [0, 1, 1])
    assert measured.scores.tolist() == [0.5, 1.0, 0.0]


def test_rare_shared_words_count_more():
    rows = [{"text": "the graph", "choices": ["the node", "its graph"]}]
    values = overlap_values(rows, ["the node", "the edge", "the graph", "its edge"])
    assert values[0][1] > values[0][0] > 0


@pytest.mark.parametrize(
    ("lead", "said"),
    [(0.4, "is better than"), (-0.4, "is worse than"), (0.0, "is not measurably better than")],
)
def test_a_difference_is_claimed_only_outside_its_interval(lead, said):
    rng = np.random.default_rng(0)
    one, other = (Measured((rng.random(400) < 0.5 + sign * lead / 2).astype(float)) for sign in (1, -1))
    verdict = compare("The model is", one, other, "counting")
    assert f"The model {said} counting (" in verdict.text
    assert verdict.outcome == {"is better than": "better", "is worse than": "worse"}.get(said, "unclear")
