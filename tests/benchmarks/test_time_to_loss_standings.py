"""Who reached the target when."""

import pytest

CURVE = [
    {"step": 1, "seconds": 60.0, "tokens": 10, "loss": 6.0},
    {"step": 2, "seconds": 120.0, "tokens": 20, "loss": 4.0},
]


@pytest.fixture
def result():
    machine = {
        "processor": "P",
        "instructions": "I",
        "python": "3",
        "versions": {"torch": "2"},
        "load_average": 0.1,
    }
    slow = [point | {"seconds": 10 * point["seconds"]} for point in CURVE]
    sides = {
        "stock, rate 0.001": {"parameters": 100, "curve": slow, "seconds": 1200.0},
        "tercet, fast": {"parameters": 101, "curve": CURVE, "seconds": 120.0},
    }
    race = {"target": 4.0, "sides": sides, "pilot_minutes": 2, "pilots": {"0.001": slow[0]}}
    return {
        "date": "2026-01-01", "machine": machine, "conditions": {"threads": 2}, "is_noisy": False,
        "contests": {"encoder": race},
    }  # fmt: skip


def test_the_target_is_reached_by_the_first_judgement_that_is_as_good(module):
    time_to = module("time_to_loss_standings").time_to
    assert [time_to(target, CURVE) for target in (7.0, 6.0, 5.9, 3.9)] == [60.0, 60.0, 120.0, None]


def test_the_table_tells_times_and_their_ratio(module, result):
    text = module("time_to_loss_standings").render(result)
    assert (
        "- encoder: the target is 4.000 nats; the stock side's rates after 2 minutes: 0.001: 6.000." in text
    )
    result["contests"]["encoder"]["pilot_minutes"] = 1.0
    assert "rates after 1 minute: 0.001" in module("time_to_loss_standings").render(result)
    assert text.endswith("| encoder | tercet, fast | 101 | 2 | 20 | 2.0 min | 4.000 | 2.0 min | 10.0x |")


def test_a_side_that_fails_is_said_to(module, result):
    result["contests"]["encoder"]["sides"]["tercet, fast"]["seconds"] = None
    assert module("time_to_loss_standings").render(result).endswith("| not reached |  |")


def test_curves_are_drawn(module, result, tmp_path):
    module("time_to_loss_standings").draw(result, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
