"""A run that is killed at any moment and resumed equals one that nobody disturbed."""

import os
import random
import shutil
import signal
import time
from contextlib import suppress

from tercet.training.checkpoints.checkpoint import CHECKPOINTS, checkpoints, find_damage, latest, read_state

from ..logs import timeless
from ..saved_weights import moments_in, require_same, require_same_models

KILLS = 15
STEPS = 45
LIFE = 0.25
"""Seconds after which a run is killed, at most, where no moment is aimed at."""

SAVE = 0.01
"""Seconds within which a run is killed after it has begun to write a checkpoint, where that is aimed at."""

PATIENCE = 30.0
"""Seconds in which a run is expected to write one, unless it is finished."""

MOMENT = 0.0005
"""Seconds between two looks at what it writes."""


def is_saving(folder):
    return any(folder.glob(f"{CHECKPOINTS}/.step-*.partial"))


def is_finished(folder):
    return (folder / CHECKPOINTS / f"step-{STEPS:08d}").exists()


def kill_at_some_moment(process, folder, draw):
    """Kill a run after a random time; every other time, after it has begun to write a checkpoint."""
    if draw.random() < 0.5:
        time.sleep(draw.uniform(0, LIFE))
    else:
        gives_up = time.monotonic() + PATIENCE
        for expected in (False, True):  # what an earlier kill left behind is deleted first
            while is_saving(folder) is not expected and not is_finished(folder):
                if time.monotonic() > gives_up:
                    break
                time.sleep(MOMENT)
        time.sleep(draw.uniform(0, SAVE))
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def newest_step(folder):
    newest = latest(folder / CHECKPOINTS)
    return read_state(newest)["progress"]["step"] if newest else 0


def assert_equal_runs(found, expected):
    ends = [folder / CHECKPOINTS / f"step-{STEPS:08d}" for folder in (found, expected)]
    require_same_models(*ends)
    require_same(*map(moments_in, ends))
    assert timeless(found) == timeless(expected)


def test_kills_lose_nothing_but_the_steps_since_the_last_checkpoint(toys, tmp_path):
    """The run is taken from its beginning again and again until it was killed often enough.

    Of its checkpoints, some are written while it goes on, and some while it waits.
    """
    draw = random.Random(0)
    recipe = toys.recipe(steps=STEPS, checkpoint_every=3, evaluate_every=10, log_every=7)
    straight = toys.prepare(tmp_path / "straight", recipe)
    toys.finish(toys.run(straight))
    kills = kills_within_a_save = 0
    while kills < KILLS:
        folder = toys.prepare(tmp_path / "killed", recipe)
        status = -1
        while status != 0:
            kept = newest_step(folder)
            run = toys.run(folder, f"async_checkpoints={draw.random() < 0.7}", resume=True)
            if kills < KILLS:
                kill_at_some_moment(run.processes[0], folder, draw)
            status = toys.server.wait(run)
            assert status in (0, -signal.SIGKILL)
            kills += status != 0
            kills_within_a_save += status != 0 and is_saving(folder)
            assert newest_step(folder) >= kept
            assert all(find_damage(path) is None for path in checkpoints(folder / CHECKPOINTS))
        assert_equal_runs(folder, straight)
        shutil.rmtree(folder)
    assert kills_within_a_save > 0
