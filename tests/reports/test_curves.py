"""Curves of a run's log."""

import pytest

from tercet.reports.charts import score_limits
from tercet.reports.curves import MARGIN, draw, limits, panel_of
from tercet.reports.pretraining.report import curves

LOG = [
    {"tokens": 1e6, "mlm/loss": 3.0, "nsp/loss": 0.7, "loss": 3.7},
    {"tokens": 2e6, "mlm/loss": None, "nsp/loss": 0.6, "loss": None},
    {"tokens": 2e6, "evaluation/loss": 2.6, "evaluation/mlm/loss": 2.0, "evaluation/nsp/loss": 0.6},
]


def test_a_panel_holds_what_is_finite_over_millions_of_tokens():
    panel = panel_of(LOG, "mlm", "hidden tokens", untrained=[(0.0, 4.0)])
    assert panel.training == [(1.0, 3.0)]
    assert panel.held_out == [(0.0, 4.0), (2.0, 2.0)]


@pytest.mark.parametrize(
    ("log", "is_drawn"), [(LOG, True), (LOG[:2], False), ([LOG[0], LOG[2]], False), ([], False)]
)
def test_a_log_with_steps_and_evaluations_is_drawn(log, is_drawn, tmp_path):
    summary = {"scores": {"mlm/loss": 2.0, "nsp/loss": 0.6}, "without_context": {"mlm": 3.1}, "trigram": {}}
    assert bool([*curves(log, summary, tmp_path / "curves.png")]) == is_drawn
    assert (tmp_path / "curves.png").exists() == is_drawn


def test_no_curve_is_drawn_to_where_a_link_leads(tmp_path):
    (tmp_path / "private.txt").write_text("private")
    (tmp_path / "curves.png").symlink_to(tmp_path / "private.txt")
    draw([panel_of(LOG, "nsp", "pairs")], tmp_path / "curves.png")
    assert (tmp_path / "private.txt").read_text() == "private"


def test_a_flat_curve_looks_flat():
    bottom, top = limits([3.00, 3.02, 2.99, 3.01])
    assert (3.02 - 2.99) / (top - bottom) < 0.06
    assert bottom < 2.99 < 3.02 < top


def test_a_steep_curve_fills_its_axis():
    bottom, top = limits([9.0, 3.0])
    assert (9.0 - 3.0) / (top - bottom) > 0.9


@pytest.mark.parametrize(
    ("scores", "least"),
    [([0.981, 0.985], 0.2), ([0.0, 0.004], 0.2), ([41.0, 41.5], 20), ([0.1, 0.9], 0.8)],
)
def test_an_axis_of_scores_spans_a_fifth_of_their_scale_within_it(scores, least):
    bottom, top = score_limits(scores)
    room = MARGIN * max(least, max(scores) - min(scores))
    assert top - bottom == pytest.approx(least + 2 * room)
    assert bottom >= -room - 1e-9
    assert top <= (100 if max(scores) > 1 else 1) + room + 1e-9
    assert bottom <= min(scores) <= max(scores) <= top


@pytest.mark.parametrize("values", [[], [float("nan")], [0.0], [-0.2, 0.1], [1e9]])
def test_an_axis_has_room_for_odd_values(values):
    for bottom, top in (limits(values), score_limits(values)):
        assert bottom < top
        assert all(bottom <= value <= top for value in values if value == value)
