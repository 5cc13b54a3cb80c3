"""Restarts by torchrun: a launch that has lost a process or a node starts the same command again.

torchrun counts failures, but an agent whose neighbour failed restarts its processes and may count nothing
(`TORCHELASTIC_RESTART_COUNT` stays 0). So a run notes in its folder which agents have launched it, and goes
on if one of them launches it again, whatever its options say: `--overwrite` would delete its own checkpoints.
An agent, the process of torchrun on a machine, is known by the folder that it makes for what its processes
report. `accelerate launch` starts several processes by the same agent.
"""

import os
import socket
from collections.abc import Iterable
from pathlib import Path

from accelerate.state import PartialState
from accelerate.utils import gather_object

from .ownership import read

LOCK_PATIENCE = 60.0
"""Seconds in which the processes that are replaced have to leave the folder."""

STARTED: set[Path] = set()
"""Folders of runs that this process has begun: a second run there is none that was restarted."""


def agent() -> str | None:
    """Name the agent that launched this process; `None` if none did."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")  # of the agent's folder, an attempt, a process
    return f"{socket.gethostname()}:{Path(file).parents[2]}" if file else None


def agents_of(processes: PartialState | None) -> list[str]:
    """Name the agents that launched these processes; every process calls this."""
    named = [agent()]
    if processes is not None and processes.num_processes > 1 and named[0] is not None:
        named = gather_object(named)
    return sorted({name for name in named if name is not None})


def may_be_restarted(folder: Path) -> bool:
    """Return whether agents launched both this process and the run in a folder, perhaps the same ones."""
    return agent() is not None and bool((read(folder) or {}).get("launch"))


def is_restarted(folder: Path, agents: Iterable[str]) -> bool:
    """Return whether one of these agents launched the run in a folder before; to be asked once for a run."""
    is_first, folder = folder.resolve() not in STARTED, folder.resolve()
    STARTED.add(folder)
    return is_first and bool({*agents} & {*(read(folder) or {}).get("launch", ())})
