"""Programs in processes of their own, which are forked from one process that has imported the libraries.

Importing torch, transformers and what trains takes seconds, in every process and in a launcher besides.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PATIENCE = 300
"""Seconds after which a program is ended."""


@dataclass(frozen=True)
class ForkedRun:
    """A program that was started."""

    processes: tuple[int, ...]
    """Numbers of its processes, the main one first."""
    output: Path
    """File of what they print."""


class ForkServer:
    """Starts Python programs in one process or several, and waits for them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.server: subprocess.Popen | None = None
        self.count = 0

    def start(
        self, program: str, *arguments: str, processes: int = 1, variables: Mapping[str, str] | None = None
    ) -> ForkedRun:
        """Start a program as `python -c` does; it is not waited for.

        Args:
            program: Its source.
            arguments: Become `sys.argv[1:]`.
            processes: How many there are; several find each other as those of a launcher do.
            variables: Of the environment.
        """
        self.count += 1
        output = self.folder / f"output-{self.count}"
        request = {"program": program, "arguments": arguments, "processes": processes}
        numbers = self._ask(start=request | {"variables": dict(variables or {}), "output": str(output)})
        return ForkedRun(tuple(numbers), output)

    def wait(self, run: ForkedRun) -> int:
        """Wait for the end; give the exit status, or minus the signal, of the first process that failed."""
        return self._ask(wait=run.processes, patience=PATIENCE)

    def close(self) -> None:
        """End the server."""
        if self.server is not None:
            self.server.communicate(timeout=60)

    def _ask(self, **request: Any) -> Any:
        if self.server is None:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "tests.forked_programs"],
                cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        print(json.dumps(request), file=self.server.stdin, flush=True)
        return json.loads(self.server.stdout.readline())
