"""Sides work in turns, in processes of their own."""

import pytest

from lab.benchmarks import measuring, sides


def test_turns_go_forwards_and_backwards():
    assert "".join(measuring.turns(list("ABC"), 3)) == "ABCCBAABC"


@pytest.mark.slow
@pytest.mark.parametrize("case", ["encoder"], indirect=True)
def test_a_worker_tells_seconds_and_memory(case):
    conditions = measuring.Conditions(threads=1)
    worker = measuring.Worker(case, sides.SIDES["tercet"], conditions)
    assert worker.do(measuring.seconds_of) > 0
    assert worker.finish() > 0


def test_a_worker_that_is_late_is_ended(case):
    conditions = measuring.Conditions(threads=1)
    with pytest.raises(TimeoutError, match="not ready in time"):
        measuring.Worker(case, sides.SIDES["tercet"], conditions, deadline=0.0)


def test_a_busy_machine_is_waited_for_and_refused_in_the_end(monkeypatch):
    loads, waited = [3.0, 0.6, 0.4], []
    monkeypatch.setattr(measuring.os, "getloadavg", lambda: (loads[len(waited)], 0.0, 0.0))
    monkeypatch.setattr(measuring.time, "sleep", waited.append)
    measuring.wait_for_rest()
    assert len(waited) == 2
    monkeypatch.setattr(measuring, "PATIENCE", -1.0)
    waited.clear()
    with pytest.raises(ValueError, match=r"load average is 3.00, and a page takes figures below 0.5 alone"):
        measuring.wait_for_rest()
