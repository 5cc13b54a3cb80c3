"""Logs of runs without what depends on the machine's mood."""

from pathlib import Path

from tercet.training.tracking import LOG, Record, read_log

BY_THE_CLOCK = {"seconds", "tokens_per_second", "memory_mib"}


def timeless(folder: Path) -> list[Record]:
    """Read the log of a run without what is measured by the clock."""
    return [
        {key: value for key, value in r.items() if key not in BY_THE_CLOCK} for r in read_log(folder / LOG)
    ]
