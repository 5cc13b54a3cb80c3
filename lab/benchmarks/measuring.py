"""How it is measured: every side in a process of its own, one of them working at a time, in turns.

    round 1   A B C D      round 2   D C B A      round 3   A B C D      ...

What disturbs the machine for a while then disturbs all sides alike. A process of its own gives each side its
own allocator and its own peak of memory.
"""

import math
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch

from tercet.training.devices import compiling
from tercet.training.devices.cpu import retain_heap
from tercet.training.devices.precision import fast_bfloat16, fastest_float32_products
from tercet.training.devices.utilization import measure_peak, peak_memory, wait_for

from .sides import Pass, Side

QUIET_LOAD = 0.5
"""Load average below which a machine counts as idle."""

PATIENCE = 600.0
"""Seconds that a benchmark waits for that before it gives up."""


@dataclass(frozen=True)
class Conditions:
    """What is the same for every process of a run."""

    threads: int
    start_method: Literal["spawn", "forkserver"] = "spawn"
    """How processes begin: on their own, or forked from one that has imported the libraries."""
    compiler: str = compiling.BACKEND
    """What sides that compile do it by."""

    def settle(self) -> None:
        """Bring the present process into these conditions."""
        compiling.BACKEND = self.compiler
        torch.set_num_threads(self.threads)
        torch.manual_seed(0)


def in_fresh_process(conditions: Conditions, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function where nothing has happened yet."""
    context = get_context(conditions.start_method)
    with ProcessPoolExecutor(1, context, conditions.settle) as executor:
        return executor.submit(function, *arguments).result()


class Worker:
    """One side of a case in its own process, which works only when it is told to.

    It is prepared in `preparation` seconds, and killed if it has not answered at the `deadline`, by the
    monotonic clock.
    """

    def __init__(self, case: Any, side: Side, conditions: Conditions, deadline: float = math.inf):
        context: Any = get_context(conditions.start_method)
        self.deadline = deadline
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, case, side, conditions), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self.preparation = self._receive()

    def do(self, task: Callable[[Pass, torch.device], Any] | None) -> Any:
        """Call a function with its work and its device there; return the result. `None` ends it.

        Raises:
            RuntimeError: It failed, or its process died.
            TimeoutError: It was not ready at the deadline.
        """
        self.pipe.send(task)
        return self._receive()

    def finish(self) -> float:
        """End it; the most memory that it had in use, in MiB above what it had before the model was built."""
        memory = self.do(None)
        self.process.join()
        return memory

    def _receive(self) -> Any:
        left = None if self.deadline == math.inf else max(self.deadline - time.monotonic(), 0.0)
        if not self.pipe.poll(left):
            self.process.kill()
            raise TimeoutError("not ready in time")
        try:
            answer = self.pipe.recv()
        except EOFError:
            raise RuntimeError("a side of the measurement died: see its message above") from None
        if isinstance(answer, Exception):
            self.process.kill()
            raise answer
        return answer


def work(pipe: Connection, case: Any, side: Side, conditions: Conditions) -> None:
    """Be a side: answer every task with what comes of it, and `None` with the peak of memory."""
    try:
        conditions.settle()
        device = present_device()
        if side.retains_heap:
            retain_heap()
        before = peak_memory(device)
        with side.products(device):
            start = time.perf_counter()
            work_once = side.prepare(case, device)
            pipe.send(time.perf_counter() - start)
            while task := pipe.recv():
                pipe.send(task(work_once, device))
        pipe.send(peak_memory(device) - before)
    except Exception as error:
        traceback.print_exc()
        pipe.send(RuntimeError(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"))


def seconds_of(work_once: Pass, device: torch.device) -> float:
    """Time a side's work."""
    start = time.perf_counter()
    work_once()
    wait_for(device)
    return time.perf_counter() - start


def measure(
    case: Any, sides: Mapping[str, Side], conditions: Conditions, rounds: int
) -> dict[str, dict[str, Any]]:
    """Time sides in turns, after first passes that do not count: `seconds` and `memory_mib` of each."""
    workers = {name: Worker(case, side, conditions) for name, side in sides.items()}
    for name, worker in workers.items():
        for _ in range(sides[name].warm_ups):
            worker.do(seconds_of)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for name in turns(list(sides), rounds):
        seconds[name].append(workers[name].do(seconds_of))
    return {
        name: {"seconds": seconds[name], "memory_mib": worker.finish()} for name, worker in workers.items()
    }


def turns(names: list[str], rounds: int) -> Iterator[str]:
    """Yield the sides forwards and backwards in turn, so that none always follows the same one."""
    for number in range(rounds):
        yield from reversed(names) if number % 2 else names


def find_peaks(conditions: Conditions, is_smoke: bool) -> dict[str, Any]:
    """Measure the `peaks` of the machine, but in a smoke: without bfloat16, a processor takes minutes."""
    peaks = dict.fromkeys(("fp32", "bf16"), 1e12) if is_smoke else in_fresh_process(conditions, measure_peaks)
    return {"peaks": peaks}


def measure_peaks() -> dict[str, float]:
    """Time large products: the machine's floating-point operations per second in each format."""
    device = present_device()
    with fastest_float32_products(device):
        return {"fp32": measure_peak(device, "no"), "bf16": measure_peak(device, "bf16")}


def present_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def begin_result(conditions: Conditions, is_timed: bool, **more: Any) -> dict[str, Any]:
    """Describe what every result has: when, where, in which conditions, and `more`."""
    load = os.getloadavg()[0]
    instructions = torch.backends.cpu.get_cpu_capability(), fast_bfloat16(torch.device("cpu"))
    machine = {
        "processor": processor_name(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "instructions": ", ".join(filter(None, instructions)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("tercet", "torch", "transformers", "accelerate")},
        "load_average": load,
    }
    about = {"date": date.today().isoformat(), "machine": machine, "is_timed": is_timed}
    return about | {"is_noisy": load > QUIET_LOAD} | {"conditions": asdict(conditions)} | more


def wait_for_rest() -> None:
    """Wait until what ran before has faded from the load average of the last minute."""
    deadline = time.monotonic() + PATIENCE
    while (load := os.getloadavg()[0]) > QUIET_LOAD:
        if time.monotonic() > deadline:
            raise ValueError(
                f"the load average is {load:.2f}, and a page takes figures below {QUIET_LOAD} alone: "
                "end other programs, or leave --page out"
            )
        time.sleep(5)


def processor_name() -> str:
    """Read the processor's name from Linux, or ask the platform."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
