"""Curves of a run's log."""

import pytest

from tercet.reporting.curves import draw_log, panel_of

LOG = [
    {"tokens": 1e6, "mlm/loss": 3.0, "nsp/loss": 0.7, "loss": 3.7},
    {"tokens": 2e6, "mlm/loss": None, "nsp/loss": 0.6, "loss": None},
    {"tokens": 2e6, "evaluation/loss": 2.6, "evaluation/mlm/loss": 2.0, "evaluation/nsp/loss": 0.6},
]


def test_a_panel_holds_what_is_finite_over_millions_of_tokens():
    panel = panel_of(LOG, "mlm", "hidden tokens", untrained=[(0.0, 4.0)])
    assert panel.training == [(1.0, 3.0)]
    assert panel.held_out == [(0.0, 4.0), (2.0, 2.0)]


@pytest.mark.parametrize(("log", "is_drawn"), [(LOG, True), (LOG[:2], False), ([], False)])
def test_a_log_with_steps_and_evaluations_is_drawn(log, is_drawn, tmp_path):
    draw_log(log, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").exists() == is_drawn
