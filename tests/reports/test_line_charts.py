"""A chart of lines has every curve, and its panels have their titles."""

import pytest

from tercet.reports.line_charts import LinePanel, columns_of, draw_lines, look_of


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
    pairs = [look_of(number, has_pairs=True) for number in range(16)]
    assert all(pairs[number][0] == pairs[number + 1][0] for number in range(0, 16, 2))
    for looks in (pairs, [look_of(number, has_pairs=False) for number in range(16)]):
        assert len(set(looks)) == len(looks)


def test_long_names_have_fewer_columns():
    assert columns_of(["a", "b"], 10.0) == 3
    assert columns_of(["runs/translation-multi30k-recurrent/model, true beginning"], 10.0) == 1
    assert columns_of(["runs/sampled/model, own beginning"], 10.0) == 3


def test_panels_that_are_named_together_have_the_same_curves(tmp_path):
    curves = {str(number): [(1.0, 2.0)] for number in range(5)}
    panels = [LinePanel("one", "x", curves), LinePanel("two", "x", {"other": [(1.0, 2.0)]})]
    with pytest.raises(ValueError, match="have different curves: 0, 1, 2, 3, 4; other"):
        draw_lines(panels, tmp_path / "lines.png")
