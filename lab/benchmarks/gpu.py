"""Measure training on one GPU beside stock models, in eight minutes: laws, speed, memory, gates.

    make gpu                                                            everything, without installing
    make gpu GPU=--smoke                                                tiny shapes on a CPU: does it run?
    make gpu GPU="--cases gpt2 bert-512 --minutes 4"                    these alone, beside earlier figures
    python -m lab.benchmarks gpu --render --page docs/performance.md    put the table there

Cases are measured in the order of their importance, the laws of `sides.py` first, and three at once: some
compile while another is timed. Each side is a process of its own with a time limit: what fails or hangs does
not end the rest, and what no longer fits into the minutes is named.
"""

import json
import math
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import forkserver, get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import torch

from tercet.data.steps.packing import sequence_lengths
from tercet.training.tracking import LOG, read_log

from ..publishing import Result, lines_of
from .benchmark import Benchmark
from .cases import (
    BASE,
    CASES,
    BigBirdCase,
    Case,
    DecoderCase,
    EncoderCase,
    HybridCase,
)
from .generation import WRITERS, WritingCase
from .measuring import Conditions, Worker, find_peaks, seconds_of, turns
from .sides import SIDES, Pass, Side, prepare_laws, prepare_stock, prepare_tercet

ROOT = Path(__file__).parents[2]

VARIABLES = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # which begins no CUDA: forked processes could not use it
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "3",  # of each side, and several compile at once
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}
"""Of the environment of all sides, unless it says otherwise."""

BEGIN = time.monotonic()
"""When the program was started."""

LONGEST, TIMING, RESERVE = 240.0, 60.0, 30.0
"""Seconds in which a part has to be prepared, in which it has to be timed, and that remain for that."""

SECONDS = 0.3
"""What is timed on a GPU takes about as long."""

TURN = Lock()
"""Held while something is timed: other parts only compile and take first steps meanwhile."""

STEPS = {"cuda": 120, "cpu": 12}
"""Of `tercet pretrain`."""

DATA_SHEETS = {"H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12}
"""Dense operations in bfloat16 per second, by what the name of a GPU contains."""


@dataclass(frozen=True)
class Gate:
    """What has to come of a part: at least a value or, if `is_limit`, at most one."""

    metric: str
    value: float
    is_limit: bool = False

    def verdict(self, measured: float | None) -> str:
        """Judge what was measured."""
        if measured is None:
            return "not measured"
        is_met = measured <= self.value if self.is_limit else measured >= self.value
        return "met" if is_met else "**missed**"


@dataclass(frozen=True)
class Part:
    """One row of the table: work that several sides do."""

    case: Any
    sides: Mapping[str, Side]
    gates: tuple[Gate, ...] = ()
    begins_at_once: bool = True
    """Whether sides are prepared together, and not one after another, for want of memory."""

    def shrunk(self) -> "Part":
        """Return the same with tiny shapes, ours compiled on any device, and the stock model once."""
        compiled = replace(OURS, prepare=partial(prepare_tercet, compiles=True))
        sides = {name: compiled if side is OURS else side for name, side in self.sides.items()}
        if self.case.preset != "bert-base":
            sides.pop("stock-compiled", None)
        small = replace(self.case.shrunk(), num_hidden_layers=1)
        return replace(self, case=replace(small, sequence_length=max(small.sequence_length, 64)), sides=sides)


def training(case: Case, metric: str, value: float) -> Part:
    """Make the part of a training: a gate of its own, and those that all have."""
    gates = (
        Gate(metric, value),
        Gate("speed / stock-compiled", 1.3),
        Gate("memory / stock-compiled", 0.5, is_limit=True),
        Gate("recompilations", 0, is_limit=True),
        Gate("seconds to the first step", 60, is_limit=True),
    )
    return Part(case, {"tercet": OURS, "stock-compiled": SIDES["stock-compiled"]}, gates)


OURS = SIDES["tercet"]

LAWS = {"laws": Side(prepare_laws)}

BIG_BIRD = {
    "tercet": replace(OURS),  # not `OURS`, which a smoke compiles: a CPU has no kernel for that
    "stock": SIDES["stock"],
    "stock-bf16": Side(partial(prepare_stock, dtype=torch.bfloat16)),
}

SHARE = "share of peak"

EIGHT = HybridCase("8x512, V8k, S256, NorMuon", 8192, 256, 256, 4, 512, 8, 8, 0.0)

LONG: dict[str, Any] = BASE | {"dropout": 0.0, "num_batches": 4}

ONE_STEP: dict[str, Any] = LONG | {"num_batches": 1}

PARTS: dict[str, Part] = {
    **{
        f"laws-{name}": Part(replace(CASES[name], dropout=0.0, num_hidden_layers=2, num_batches=1), LAWS)
        for name in ("encoder", "decoder", "seq2seq")
    },
    "gpt2": training(DecoderCase("GPT-2, S1024", 50_257, 1024, 32, **LONG), SHARE, 0.4),
    "bert-512": training(EncoderCase("BERT-base, S512", 30_522, 512, 128, **LONG), SHARE, 0.35),
    "8x512": training(EIGHT, "tokens/s", 1.2e6),
    "pretrain": Part(replace(EIGHT, name="tercet pretrain"), {}, (Gate("speed / 8x512", 0.95),)),
    "big-bird": Part(
        BigBirdCase("big bird, S16384", 30_522, 16_384, 1, **ONE_STEP),
        BIG_BIRD,
        (Gate("speed / stock", 5), Gate("speed / stock-bf16", 5)),
        begins_at_once=False,
    ),
    "generate": Part(
        WritingCase("GPT-2 writes", 50_257, 160, 8, cache="static", **BASE),
        {"tercet": WRITERS["tercet-bf16"], "stock": WRITERS["stock-bf16"]},
        (Gate("speed / stock", 1),),
    ),
    "4x256": training(EncoderCase("4x256, S128", 30_522, 128, 512, dropout=0.0), SHARE, 0.1),
    "12x384": training(EncoderCase("12x384, S128", 30_522, 128, 512, 4, 384, 12, 12, 0.0), SHARE, 0.25),
}
"""What is measured, by name, the most important first. Laws need few layers: all of a kind have one graph."""


def settle(options: Namespace) -> Conditions:
    """Start what processes are forked from, with the environment that they need."""
    has_gpu = torch.cuda.is_available()
    if not has_gpu and not options.smoke:
        raise ValueError("torch finds no GPU here: add --smoke to try everything with tiny shapes on a CPU")
    os.environ.update(VARIABLES | os.environ)
    get_context("forkserver").set_forkserver_preload([__name__])
    forkserver.ensure_running()
    return Conditions(options.threads, "forkserver", "inductor" if has_gpu else "aot_eager")


def measure_part(part: Part, options: Namespace, conditions: Conditions, _: Result) -> Result:
    """Prepare the sides, and time them in turns; what fails or is late does not end the others."""
    begin, deadline = time.monotonic(), math.inf if options.smoke else BEGIN + 60 * options.minutes
    prepared = min(begin + LONGEST, deadline - RESERVE)
    try:
        if not part.sides:
            return pretrain(part.case, prepared, deadline)
        sides = Sides(part, conditions, prepared, deadline)
        with ThreadPoolExecutor(len(part.sides) if part.begins_at_once else 1) as threads:
            list(threads.map(partial(sides.attempt, sides.begin), part.sides))
        if "laws" in part.sides:
            return {"sides": sides.found}
        with TURN:
            for worker in sides.workers.values():
                worker.deadline = min(time.monotonic() + TIMING, deadline)
            for name in turns([*part.sides], options.rounds):
                sides.attempt(sides.take_turn, name)
            for name in part.sides:
                sides.attempt(sides.finish, name)
        return {"sides": sides.found} | describe(part.case)
    except Exception as error:  # whatever it is, the other parts go on
        return {"failure": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        print(f"{part.case.name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


class Sides:
    """A part's sides, each in a process of its own, and what is found of them; see `measure_part`."""

    def __init__(self, part: Part, conditions: Conditions, prepared: float, deadline: float):
        self.part, self.conditions = part, conditions
        self.prepared, self.deadline = prepared, deadline
        self.found: dict[str, Result] = {name: {"seconds": []} for name in part.sides}
        self.workers: dict[str, Worker] = {}

    def attempt(self, action: Callable[[str], None], name: str) -> None:
        """Do something with a side, unless something before has failed, and note if this does."""
        found = self.found[name]
        if "failure" in found:
            return
        try:
            action(name)
        except (RuntimeError, TimeoutError, OSError) as error:
            found["failure"] = str(error)[:300]  # turns that were timed before count
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
        found["seconds_to_first_step"] = worker.preparation + worker.do(seconds_of)
        worker.deadline = self.deadline  # to wait for others is not to be late
        for _ in range(side.warm_ups - 1):
            with TURN:
                worker.do(seconds_of)
        found["graphs"] = worker.do(count_graphs)

    def take_turn(self, name: str) -> None:
        """Time a side once."""
        self.found[name]["seconds"].append(self.workers[name].do(seconds_from_rest))

    def finish(self, name: str) -> None:
        """Count the graphs that a side compiled while it was timed, and end it."""
        found, worker = self.found[name], self.workers[name]
        found["recompilations"] = worker.do(count_graphs) - found["graphs"]
        found["memory_mib"] = worker.finish()


def pretrain(case: Any, prepared: float, deadline: float) -> Result:
    """Run `tercet pretrain` on text that is installed here, and read the second half of its log.

    A run of a few steps reads the text and compiles beforehand, while others are timed.
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
        with TURN:
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
    with torch.device("meta"):
        model = case.tercet()
    matrices = {name: each.numel() for name, each in model.named_parameters() if each.dim() == 2}
    inside = sum(number for name, number in matrices.items() if ".layers." in name)
    last, before = f".layers.{case.num_hidden_layers - 1}.", tuple(f"{name}_proj.weight" for name in "qkv")
    behind = sum(number for name, number in matrices.items() if last in name and not name.endswith(before))
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


COLUMNS_OF_LAWS = ("law", "member", "relative difference", "limit")
COLUMNS_OF_GATES = ("work", "what", "gate", "measured", "verdict")
COLUMNS_OF_SIDES = ("work", "side", "tokens/s", "share of peak", "memory, GiB", "first step, s")


def text_of(result: Result) -> list[str]:
    """Write broken laws, missed gates, and all sides."""
    parts, peak = result["cases"], peak_of(result)
    laws, gates = [*law_rows(parts)], [*gate_rows(parts, peak)]
    broken = [row[:-1] for row in laws if row[-1] != "holds"]
    missed = [row for row in gates if row[-1] != "met"]
    lines = [
        f"Laws: {len(laws) - len(broken)} hold, {len(broken)} are broken. "
        f"Gates: {len(gates) - len(missed)} of {len(gates)} are met; the others are:"
    ]
    tables = {COLUMNS_OF_LAWS: broken, COLUMNS_OF_GATES: missed, COLUMNS_OF_SIDES: [*side_rows(parts, peak)]}
    for head, rows in tables.items():
        lines += ["", *lines_of(head, rows, "l")] if rows else []
    return [*lines, "", *remarks(parts)]


def peaks(result: Result) -> list[str]:
    measured = result["peaks"]["bf16"] / 1e12
    return [f"peak {peak_of(result) / 1e12:,.1f} TFLOP/s in bf16 (measured: {measured:,.1f})"]


def remarks(parts: Mapping[str, Any]) -> Iterator[str]:
    """Say why a side was timed, but not to the end."""
    for name, part in parts.items():
        for side, found in part.get("sides", {}).items():
            if "failure" in found and found["seconds"]:
                yield f"- {PARTS[name].case.name}, {side}: {found['failure']}"


def peak_of(result: Mapping[str, Any]) -> float:
    """Return the data sheet's peak, or the measured one of a device that is not listed."""
    gpu = result["machine"]["gpu"] or ""
    return next((peak for name, peak in DATA_SHEETS.items() if name in gpu), result["peaks"]["bf16"])


def law_rows(parts: Mapping[str, Any]) -> Iterator[list[str]]:
    """Judge each law for each member."""
    for name, part in parts.items():
        for law, found in part.get("sides", {}).get("laws", {}).get("laws", {}).items():
            verdict = "holds" if found["difference"] <= found["limit"] else "**broken**"
            numbers = (f"{found[key]:.1e}" for key in ("difference", "limit"))
            yield [law, name.removeprefix("laws-"), *numbers, verdict]


def gate_rows(parts: Mapping[str, Any], peak: float) -> Iterator[list[str]]:
    """Judge what each part had to reach."""
    for name in parts:
        found = metrics(name, parts, peak)
        for gate in PARTS[name].gates:
            value = found.get(gate.metric)
            numbers = ("" if each is None else f"{each:,.3g}" for each in (gate.value, value))
            yield [PARTS[name].case.name, gate.metric, *numbers, gate.verdict(value)]


def metrics(name: str, parts: Mapping[str, Any], peak: float) -> dict[str, float | None]:
    """Relate ours to the other sides, and to the peak."""
    part, sides = parts[name], parts[name].get("sides", {})
    if "tokens_per_second" in part:
        collated = speeds_of(parts.get("8x512", {}), "tercet")
        return {"speed / 8x512": median(part["tokens_per_second"]) / median(collated)} if collated else {}
    speeds = {side: median(found) for side in sides if (found := speeds_of(part, side))}
    if not (speed := speeds.get("tercet")):
        return {}
    ours = sides["tercet"]
    return {
        "tokens/s": speed,
        SHARE: speed * part.get("flops_per_token", 0) / peak,
        "recompilations": ours.get("recompilations"),
        "seconds to the first step": ours["seconds_to_first_step"],
        **{f"speed / {peer}": speed / own for peer, own in speeds.items()},
        **{
            f"memory / {peer}": ours["memory_mib"] / sides[peer]["memory_mib"]
            for peer in speeds
            if "memory_mib" in ours and "memory_mib" in sides[peer]
        },
    }


def speeds_of(part: Mapping[str, Any], side: str) -> list[float]:
    """Return a side's tokens per second in each turn; none if it was not measured."""
    seconds = part.get("sides", {}).get(side, {}).get("seconds", [])
    return [part["tokens"] / each for each in seconds]


def side_rows(parts: Mapping[str, Any], peak: float) -> Iterator[list[str]]:
    """Show all sides of all parts, and why some were not measured."""
    for name, part in parts.items():
        work, flops = PARTS[name].case.name, part.get("flops_per_token")
        for side, found in part.get("sides", {"tercet": part}).items():
            speeds = found.get("tokens_per_second") or speeds_of(part, side)
            if "failure" in found and not speeds:
                yield [work, side, f"not measured: {found['failure']}".replace("|", "/"), "", "", ""]
            elif side != "laws":
                yield [
                    work,
                    side,
                    f"{median(speeds):,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f})",
                    f"{median(speeds) * flops / peak:.1%}" if flops else "",
                    f"{found['memory_mib'] / 1024:.1f}" if "memory_mib" in found else "",
                    f"{found['seconds_to_first_step']:,.0f}" if "seconds_to_first_step" in found else "",
                ]


BENCHMARK = Benchmark(
    __doc__,
    PARTS,
    measure_part,
    options={
        "--minutes": {
            "type": float,
            "default": 8.0,
            "help": "of wall time, about; a smoke takes what it needs",
        }
    },
    is_timed=False,
    settle=settle,
    begin=find_peaks,
    at_once=3,
    keeps_others=True,
    remarks=peaks,
    text=text_of,
)
