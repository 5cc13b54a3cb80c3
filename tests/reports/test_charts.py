"""Charts show labels as they are, whatever these are called."""

import re

import numpy as np
import pytest

from tercet.reports.charts import draw_confusions, draw_heads


@pytest.mark.parametrize("name", [r"$\foo$", "a$b$c", "<script>", "a|b", "one\ntwo", "x" * 300, "_", "`"])
def test_a_label_with_any_name_is_drawn(name, tmp_path):
    """Dollars are no formulas, of which a wrong one would end a finished run in its report."""
    svg = draw_confusions([name, "other"], np.eye(2, dtype=int), tmp_path / "confusions.png")
    assert (tmp_path / "confusions.png").exists()
    assert "<script" not in svg
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    shown = " ".join(name.split())[:30].replace("<", "&lt;").replace(">", "&gt;")
    assert shown in texts


@pytest.mark.parametrize(("labels", "is_counted"), [(2, True), (20, True), (50, False)])
def test_a_matrix_has_counts_where_there_is_room_for_them(labels, is_counted, tmp_path):
    names = [f"label {number}" for number in range(labels)]
    svg = draw_confusions(names, np.eye(labels, dtype=int) * 7654, tmp_path / "confusions.png")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert texts.count("7,654") == (labels if is_counted else 0)
    assert set(names) <= set(texts)
    assert svg.count("var(--first)") >= labels


def test_each_head_has_its_number_and_what_is_below_zero_is_hatched(tmp_path):
    values = np.array([[0.5, -0.25], [0.125, np.nan]])
    svg = draw_heads({"model": values, "random": values / 2}, "nats", tmp_path / "heads.png")
    shown = re.findall(r">([^<>]+)</text>", svg)
    assert (tmp_path / "heads.png").exists()
    assert {"0.5", "-0.25", "0.12", "-0.12", "0.062", "nats", "model", "random"} <= set(shown)
    assert "nan" not in shown
    assert "<pattern" in svg
    assert "<pattern" not in draw_heads({"model": abs(values)}, "nats", tmp_path / "heads.png")
