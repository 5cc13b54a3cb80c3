"""A chart of lines has every curve, and its panels have their titles."""

from tercet.reporting.line_charts import LinePanel, draw_lines


def test_every_curve_is_drawn_and_named(tmp_path):
    curves = {f"model {number}": [(1.0, number), (2.0, number + 0.5)] for number in range(6)}
    panels = [
        LinePanel("one", "position", curves),
        LinePanel("two", "words", curves, {"model 1": [(0.5, 1.5), (1.0, 2.0)]}),
    ]
    svg = draw_lines(panels, tmp_path / "lines.png")
    assert (tmp_path / "lines.png").read_bytes().startswith(b"\x89PNG")
    assert all(svg.count(name) == 2 for name in curves)
    assert all(f">{text}<" in svg for text in ("one", "two", "position", "words"))
