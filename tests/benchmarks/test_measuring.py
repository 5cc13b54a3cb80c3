"""Sides work in turns, in processes of their own."""

import pytest


def test_turns_go_forwards_and_backwards(module):
    assert "".join(module("measuring").turns(list("ABC"), 3)) == "ABCCBAABC"


@pytest.mark.slow
def test_a_worker_tells_seconds_and_memory(case, module):
    measuring = module("measuring")
    conditions = measuring.Conditions(threads=1, own_scheduler_group=False)
    worker = measuring.Worker(case, module("sides").SIDES["tercet"], conditions)
    assert worker.work_once() > 0
    assert worker.finish() > 0
