"""How `gpu.py` measures a part: sides begin at once in processes of their own, and are timed in turns."""

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import torch
from cases import DecoderCase
from checkout import ROOT
from distillation import DistillationCase
from generation import WritingCase
from gpu_cases import Part
from gpu_tasks import ClassificationCase, VectorsCase
from measuring import Conditions, Worker, seconds_of, turns
from sides import Pass
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.profiler import ProfilerActivity, profile

from tercet.data.steps.packing import sequence_lengths
from tercet.training.devices.utilization import wait_for
from tercet.training.tracking import LOG, peak_memory, read_log

LAUNCHES = {"cuda": ("LaunchKernel", "GraphLaunch"), "cpu": ("aten::",)}
"""Parts of the names of what starts work on a device: CUDA's calls, and operators."""

WAITS = {
    "cuda": ("StreamSynchronize", "EventSynchronize"),
    "cpu": ("aten::_local_scalar_dense", "aten::nonzero"),
}
"""Of what waits for the device, or would."""

KERNELS = 12
"""So many are listed."""

READ_BY_ATTENTION = tuple(f"{name}_proj.weight" for name in "qkv")
"""Names of the matrices of a layer before attention."""

STEPS = {"cuda": 120, "cpu": 12}
"""Of `tercet pretrain`."""

SECONDS = 0.3
"""What is timed on a GPU takes about as long."""

TIMING, SHORTEST_TIMING = 60.0, 30.0
"""Seconds that a part may be timed for, and that have to be left for it before the deadline."""

Result = dict[str, Any]


def measure_part(
    part: Part, conditions: Conditions, rounds: int, prepared: float, deadline: float, turn: Lock
) -> Result:
    """Prepare the sides, and time them in turns; one that fails or is late does not end the others.

    Args:
        part: What is measured.
        conditions: Of the sides' processes.
        rounds: Turns of each side.
        prepared: When they have to be prepared, by the monotonic clock.
        deadline: When nothing is measured any more.
        turn: Held while something is timed: other parts only compile and take first steps meanwhile.
    """
    if not part.sides:
        return pretrain(part.case, prepared, deadline, turn)
    sides = Sides(part, conditions, min(prepared, deadline - SHORTEST_TIMING), deadline, turn)
    with ThreadPoolExecutor(len(part.sides) if part.begins_at_once else 1) as threads:
        list(threads.map(partial(sides.attempt, sides.begin), part.sides))
    if "laws" in part.sides:
        return {"sides": sides.found}
    with turn:
        for worker in sides.workers.values():
            worker.deadline = min(time.monotonic() + TIMING, deadline)
        for name in turns([*part.sides], rounds):
            sides.attempt(sides.take_turn, name)
        for name in part.sides:
            sides.attempt(sides.observe, name)
    return {"sides": sides.found} | describe(part.case)


class Sides:
    """A part's sides, each in a process of its own, and what is found of them; see `measure_part`."""

    def __init__(self, part: Part, conditions: Conditions, prepared: float, deadline: float, turn: Lock):
        self.part, self.conditions = part, conditions
        self.prepared, self.deadline, self.turn = prepared, deadline, turn
        self.found: dict[str, Result] = {name: {"seconds": []} for name in part.sides}
        self.workers: dict[str, Worker] = {}

    def attempt(self, action: Callable[[str], None], name: str) -> None:
        """Do something with a side, unless something before has failed, and note if this does."""
        found = self.found[name]
        if {"failure", "unobserved"} & found.keys():
            return
        try:
            action(name)
        except (RuntimeError, TimeoutError, OSError) as error:
            what = "unobserved" if found["seconds"] else "failure"  # turns that were timed count
            found[what] = str(error)[:300]
            if name in self.workers:
                self.workers[name].process.kill()

    def begin(self, name: str) -> None:
        """Let a side compile and take its first steps, or let laws be tried."""
        side, found = self.part.sides[name], self.found[name]
        self.workers[name] = worker = Worker(self.part.case, side, self.conditions, self.prepared)
        if name == "laws":
            found["laws"] = worker.do(result_of)
            worker.finish()
            return
        worker.do(forget_peak)
        seconds, told = worker.do(first_pass)
        found["seconds_to_first_step"] = worker.preparation + seconds
        for _ in range(side.warm_ups - 1):
            with self.turn:
                worker.deadline = self.deadline  # to wait for others is not to be late
                told += worker.do(first_pass)[1]
        found["warnings"] = [each for each in (*worker.warnings, *told) if each.startswith("training.")]
        found["graphs"] = worker.do(count_graphs)
        worker.deadline = self.deadline

    def take_turn(self, name: str) -> None:
        """Time a side once."""
        self.found[name]["seconds"].append(self.workers[name].do(seconds_from_rest))

    def observe(self, name: str) -> None:
        """Count what a side does in a step, and end it."""
        found, worker, case = self.found[name], self.workers[name], self.part.case
        steps = case.num_new_tokens if isinstance(case, WritingCase) else case.num_batches
        found["recompilations"] = worker.do(count_graphs) - found["graphs"]
        found |= worker.do(partial(observe, steps=steps))
        worker.finish()


def pretrain(case: Any, prepared: float, deadline: float, turn: Lock) -> Result:
    """Run `tercet pretrain` on text that is installed here, and read the second half of its log.

    A run of a few steps reads the text and compiles beforehand, while others are timed; for the times, see
    `measure_part`.
    """
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    text = {"cuda": ("documentation",) * 2, "cpu": (ROOT / "CHANGELOG.md", ROOT / "README.md")}[kind]
    sizes = {name: each for name, each in case.sizes().items() if name != "vocab_size"}
    options = {
        "model": json.dumps({"preset": case.preset, "overrides": sizes}),
        "tokenizer.vocab_size": max(case.vocab_size, 300),
        "corpus.train": text[0],
        "corpus.validation": text[1],
        "corpus.isolate_documents": "false",
        "corpus.sequence_length": case.sequence_length,
        "training.tokens_per_step": case.batch_size * case.sequence_length,
        "training.schedule": "{kind: linear, warmup_steps: 0}",
        "training.optimizer.kind": case.optimizer,
        "training.log_every": STEPS[kind] // 12,
        "training.evaluate_every": "null",
    }
    with TemporaryDirectory() as folder:

        def run(end: float, **more: Any) -> None:
            command = [sys.executable, "-m", "tercet", "pretrain", "decoder-demo"]
            command += [f"{key}={value}" for key, value in (options | more).items()]
            variables, left = os.environ | {"TERCET_CACHE": folder}, end - time.monotonic()
            done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=left)
            if done.returncode:
                raise RuntimeError(done.stderr.strip().rpartition("\n")[2])

        run(min(prepared, deadline), **{"training.steps": 2, "output": f"{folder}/first"})
        with turn:
            end = min(time.monotonic() + 2 * TIMING, deadline)
            run(end, **{"training.steps": STEPS[kind], "output": f"{folder}/run"})
        log = [each for each in read_log(Path(folder) / "run" / LOG) if "tokens_per_second" in each]
    return {"tokens_per_second": [each["tokens_per_second"] for each in log[len(log) // 2 :]]}


def describe(case: Any) -> Result:
    """Count the tokens of a pass, and in pretraining the operations that one needs, forward and backward.

    These are the products with the matrices of layers, and full attention, half of it where it is causal. Of
    the head, and of what stands behind attention in the last layer, only those at targets are needed.
    Attention in windows and blocks is not counted.
    """
    if isinstance(case, WritingCase):
        return {"tokens": case.batch_size * case.num_new_tokens}
    pool = case.pool()
    lengths = sequence_lengths(pool).astype(float)
    if isinstance(case, DistillationCase | ClassificationCase | VectorsCase):
        return {"tokens": int(lengths.sum())}
    with torch.device("meta"):
        model = case.tercet()
    matrices = {name: each.numel() for name, each in model.named_parameters() if each.dim() == 2}
    inside = sum(number for name, number in matrices.items() if ".layers." in name)
    last = f".layers.{case.num_hidden_layers - 1}."
    behind = sum(
        number for name, number in matrices.items() if last in name and not name.endswith(READ_BY_ATTENTION)
    )
    head = case.vocab_size * case.hidden_size + matrices.get("transform.dense.weight", 0)
    targets = int(next(iter(case.objective().targets(pool).values())))
    types = getattr(model.config, "layer_types", None) or ["full_attention"] * case.num_hidden_layers
    pairs = (lengths**2).sum() / lengths.sum() * (0.5 if isinstance(case, DecoderCase) else 1.0)
    attention = 12 * list(types).count("full_attention") * case.hidden_size * pairs
    needed = 6 * (inside - behind + (behind + head) * targets / lengths.sum()) + attention
    return {"tokens": int(lengths.sum()), "flops_per_token": float(needed)}


def result_of(work_once: Pass, device: torch.device) -> Any:
    """Return what a side's work returns."""
    return work_once()


def first_pass(work_once: Pass, device: torch.device) -> tuple[float, list[str]]:
    """Time a pass in which kernels and graphs may still be made, and tell what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seconds = seconds_of(work_once, device)
    for each in caught:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return seconds, [str(each.message) for each in caught]


def forget_peak(work_once: Pass, device: torch.device) -> None:
    """Measure the peak of memory from here on: CUDA graphs take theirs in the first passes."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def count_graphs(work_once: Pass, device: torch.device) -> int:
    """Count the graphs that were compiled so far; give memory back that other sides may need."""
    torch.cuda.empty_cache()
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def seconds_from_rest(work_once: Pass, device: torch.device) -> float:
    """Time a pass; on a GPU as many as take a while, behind one that does not count.

    The memory of a GPU is given back to others then.
    """
    if device.type != "cuda":
        return seconds_of(work_once, device)
    number = max(round(SECONDS / seconds_of(work_once, device)), 1)
    seconds = seconds_of(lambda: [work_once() for _ in range(number)], device)
    torch.cuda.empty_cache()
    return seconds / number


def optimizer_share(work_once: Pass, device: torch.device) -> Result:
    """Measure the optimizer's share of a pass's time: on a GPU by marks among its work, which do not wait."""
    begun: list[Any] = []
    spans: list[tuple[Any, Any]] = []

    def begin(*_: Any) -> None:
        begun.append(mark(device))

    def end(*_: Any) -> None:
        first = begun.pop()
        if not begun:  # else it is a part of another optimizer
            spans.append((first, mark(device)))

    with register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end):
        first = mark(device)
        work_once()
        last = mark(device)
    wait_for(device)
    share = sum(between(*each) for each in spans) / between(first, last)
    return {"optimizer_share": share} if spans else {}


def mark(device: torch.device) -> Any:
    """Note when a device gets here; a CPU is here."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(first: Any, last: Any) -> float:
    """Return the time between two marks."""
    return first.elapsed_time(last) if isinstance(first, torch.cuda.Event) else last - first


def observe(work_once: Pass, device: torch.device, steps: int) -> dict[str, float]:
    """Count a step's launches and waits, and measure the passes' peak of memory and the optimizer's share.

    The profiler counts on a CPU as well, operators within others included: compiled blocks refuse a
    `TorchDispatchMode`.
    """
    memory = peak_memory(device)
    share = optimizer_share(work_once, device)
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    with profile(activities=kinds) as profiler:
        work_once()
    events = profiler.key_averages()
    counts = {
        what: sum(event.count for event in events if any(name in event.key for name in names)) / steps
        for what, names in (("launches", LAUNCHES[device.type]), ("waits", WAITS[device.type]))
    }
    return {"memory_mib": memory} | share | counts | slowest_kernels(events, device, steps)


def slowest_kernels(events: Any, device: torch.device, steps: int) -> Result:
    """List what took most of the device's time, in milliseconds a step, and how long it worked in all."""
    if device.type == "cuda":
        spent = {
            event.key: event.self_device_time_total
            for event in events
            if event.device_type == DeviceType.CUDA
        }
    else:
        spent = {event.key: event.self_cpu_time_total for event in events}
    spent = {name: microseconds / 1e3 / steps for name, microseconds in spent.items()}
    slowest = sorted(spent, key=spent.__getitem__, reverse=True)[:KERNELS]
    return {"busy_ms": sum(spent.values()), "kernels": {name[:160]: spent[name] for name in slowest}}
