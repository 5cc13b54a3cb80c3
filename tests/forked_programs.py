"""The process behind `fork_server.py`: it forks programs, as its standard input says."""

import json
import os
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, NoReturn

import tercet.distill.run
import tercet.fewshot.run
import tercet.finetune.run
import tercet.pretraining.run  # noqa: F401

from .training import layout_program, toy_program  # noqa: F401

MOMENT = 0.002
"""Seconds between two looks at processes that are waited for."""


def serve() -> None:
    """Answer every line: start processes and give their numbers, or wait and give their status."""
    for line in sys.stdin:
        request = json.loads(line)
        answer = start(**request["start"]) if "start" in request else wait(**request)
        print(json.dumps(answer), flush=True)


def start(variables: dict[str, str], processes: int, **what: Any) -> list[int]:
    """Fork the processes of a program, with the variables that a launcher sets; give their numbers."""
    if processes > 1:
        sizes = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
        variables |= sizes | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    children = []
    for rank in range(processes):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {}
        child = os.fork()
        if child == 0:
            run(variables | ranks, **what)
        children.append(child)
    return children


def free_port() -> int:
    """Find a port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run(variables: dict[str, str], program: str, arguments: list[str], output: str) -> NoReturn:
    """Run a program in this process, and end it."""
    os.environ.update(variables)
    with open(output, "a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    sys.argv = ["-c", *arguments]
    status = 0
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def wait(wait: list[int], patience: float) -> int:
    """Wait for processes; give the first status that is not 0. Once one has failed, the others are killed."""
    deadline, found, left = time.monotonic() + patience, 0, set(wait)
    while left:
        for child in sorted(left):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                left.remove(child)
                found = found or os.waitstatus_to_exitcode(status)
        if found or time.monotonic() > deadline:
            for child in left:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        time.sleep(MOMENT)
    return found


if __name__ == "__main__":
    serve()
