"""A chart of lines has every curve, and its panels have their titles."""

import pytest

from tercet.reporting.line_charts import LinePanel, draw_lines, look_of


@pytest.mark.parametrize(("count", "times"), [(4, 2), (6, 1)], ids=["in every panel", "below all panels"])
def test_every_curve_is_drawn_and_named(count, times, tmp_path):
    curves = {f"model {number}": [(1.0, number), (2.0, number + 0.5)] for number in range(count)}
    panels = [
        LinePanel("one", "position", curves),
        LinePanel("two", "words", curves, {"model 1": [(0.5, 1.5), (1.0, 2.0)]}),
    ]
    svg = draw_lines(panels, tmp_path / "lines.png")
    assert (tmp_path / "lines.png").read_bytes().startswith(b"\x89PNG")
    assert all(svg.count(name) == times for name in curves)
    assert all(f">{text}<" in svg for text in ("one", "two", "position", "words"))


def test_curves_of_a_pair_share_their_colour_and_no_two_look_alike():
    pairs = [look_of(number, has_pairs=True) for number in range(6)]
    assert all(pairs[number][0] == pairs[number + 1][0] for number in (0, 2, 4))
    for looks in (pairs, [look_of(number, has_pairs=False) for number in range(12)]):
        assert len(set(looks)) == len(looks)
