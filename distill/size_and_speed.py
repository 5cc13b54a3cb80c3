"""How large models are, and how fast: parameters, disk, latency, throughput, memory; and a table of these.

A pass reads 128 tokens, as far as the model can; generators write 32 tokens behind 32 instead, since that is
what they are for. Models take turns, so that what disturbs the machine disturbs all alike. The memory of a
model is what a fresh process needs more, at its peak, after it was loaded and has done a pass of 32.

Shapes: B rows of a pass, T tokens.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from subprocess import PIPE, CalledProcessError
from typing import Any

import torch

from ..ground.processes import start_python
from ..modeling import TercetPreTrainedModel
from ..reporting.blocks import Table
from ..storage.checkpoint import Checkpoint
from ..training.tracking import peak_memory
from ..training.utilization import wait_for
from .model_outputs import base_of
from .output import STUDENT, TEACHER
from .teacher import moved

LENGTH = 128
"""Tokens of a pass."""

WRITTEN = 32
"""Tokens that generators read, and that they write, in a pass."""

BATCH = 32
"""Rows for which throughput is measured."""

ROUNDS = {1: 20, BATCH: 5}
"""Rows of a pass -> how often it is timed; two passes before do not count."""


@dataclass(frozen=True)
class Size:
    """How large a model is."""

    parameters: int
    """All of its numbers."""
    inner_parameters: int
    """Those of its layers: without token vectors and heads, which a student shares with its teacher."""
    disk: int
    """Bytes of its weights."""


@dataclass(frozen=True)
class Speed:
    """How fast a model is."""

    latency: float
    """Seconds for one row."""
    throughput: float
    """Rows a second, of 32 at once."""
    memory: float
    """MiB."""


def size_of(model: TercetPreTrainedModel, folder: Path) -> Size:
    """Count a model's parameters and the bytes of its files."""
    inner = sum(
        parameter.numel() for name, parameter in base_of(model).named_parameters() if "layers." in name
    )
    return Size(
        model.num_parameters(), inner, sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    )


def measure_speeds(
    models: Mapping[str, TercetPreTrainedModel],
    folders: Mapping[str, str],
    device: torch.device,
    rounds: Mapping[int, int] = ROUNDS,
) -> dict[str, dict[str, Any]]:
    """Time models in turns, and find the memory of each in a process of its own."""
    seconds = {rows: time_all(models, rows, device, number) for rows, number in rounds.items()}
    memory = {name: memory_in_a_fresh_process(folder, device) for name, folder in folders.items()}
    return {
        name: asdict(Speed(seconds[1][name], BATCH / seconds[BATCH][name], memory[name])) for name in models
    }


def time_all(
    models: Mapping[str, TercetPreTrainedModel], rows: int, device: torch.device, rounds: int
) -> dict[str, float]:
    """Return the median seconds of a pass of each model."""
    passes = {name: pass_of(moved(model, device).eval(), rows) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    for number in range(rounds + 2):
        for name in reversed(passes) if number % 2 else passes:
            wait_for(device)
            start = time.perf_counter()
            passes[name]()
            wait_for(device)
            if number >= 2:
                times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def pass_of(model: TercetPreTrainedModel, rows: int) -> Callable[[], None]:
    """Return what a model is timed at: reading rows, or writing behind them."""
    config = model.config
    writes = model.can_generate()
    length = min(WRITTEN if writes else LENGTH, config.max_position_embeddings // (2 if writes else 1))
    ids = torch.randint(config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(0))
    ids = ids.to(next(model.parameters()).device)
    reader: Any = base_of(model) if hasattr(model, "lm_head") else model

    @torch.inference_mode()
    def work() -> None:
        if writes:
            options = {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False}
            model.generate(ids, attention_mask=torch.ones_like(ids), **options)  # pyright: ignore
        else:
            reader(input_ids=ids)

    return work


def memory_in_a_fresh_process(folder: str, device: torch.device) -> float:
    """Measure the memory of a model where nothing else was done before.

    A process that `multiprocessing` spawns would import the user's program first, and carry it out once more
    where that has no `if __name__ == "__main__"`.
    """
    program = f"import sys, torch; from {__name__} import measure_memory as measure; "
    program += "print(measure(sys.argv[1], torch.device(sys.argv[2])))"
    with start_python(["-c", program, folder, str(device)], stdout=PIPE, text=True) as process:
        said, _ = process.communicate()
    if process.returncode:
        raise CalledProcessError(process.returncode, process.args)
    return float(said.split()[-1])


def measure_memory(folder: str, device: torch.device) -> float:
    """Load a model here and do a pass; the MiB that this took more at its height."""
    before = peak_memory(device)
    pass_of(moved(Checkpoint.open(folder).transformer(), device), BATCH)()
    return peak_memory(device) - before


PUBLISHED = {
    "kept": 77.0 / 79.5,
    "parameters": 66 / 110,
    "time": 410 / 668,
}
"""DistilBERT over BERT-base (Sanh et al., 2019): mean of GLUE (table 1), parameters in millions, and seconds
for STS-B's development set with batches of one on a CPU (table 3)."""


def times_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the student's time over the teacher's for one row, and for a row of 32."""
    own, theirs = summary["speeds"][STUDENT], summary["speeds"][TEACHER]
    return {
        "one alone": own["latency"] / theirs["latency"],
        "32 at once": theirs["throughput"] / own["throughput"],
    }


def size_table(summary: Mapping[str, Any]) -> Table:
    """Put sizes and times side by side, and both ways of saying what is saved."""
    sizes = summary["sizes"]
    labels = {"parameters": "parameters", "inner_parameters": "parameters in layers", "disk": "bytes on disk"}
    rows = [
        [
            label,
            *(f"{sizes[name][key]:,}" for name in (TEACHER, STUDENT)),
            f"{1 - share_of(sizes, key):.0%} fewer",
            "",
        ]
        for key, label in labels.items()
    ]
    if "speeds" in summary:
        rows += speed_rows(summary["speeds"])
    rows += [
        [
            "DistilBERT, published: million parameters",
            "110",
            "66",
            f"{1 - PUBLISHED['parameters']:.0%} fewer",
            "",
        ],
        ["DistilBERT, published: seconds", "668", "410", *saved_time(PUBLISHED["time"])],
    ]
    return Table(["", "teacher", "student", "saved", "in other words"], rows)


def speed_rows(speeds: Mapping[str, Mapping[str, float]]) -> Iterator[list[str]]:
    """Write latency, throughput and memory."""
    own, theirs = speeds[STUDENT], speeds[TEACHER]
    pairs = {
        "seconds for one alone": (theirs["latency"], own["latency"]),
        "seconds for one, 32 at once": (1 / theirs["throughput"], 1 / own["throughput"]),
    }
    for label, (before, after) in pairs.items():
        yield [label, f"{before:.4g}", f"{after:.4g}", *saved_time(after / before)]
    before, after = theirs["memory"], own["memory"]
    share = after / before if before > 0 else float("nan")
    yield ["memory, MiB", f"{before:,.0f}", f"{after:,.0f}", saved(share), ""]


def saved_time(share: float) -> list[str]:
    """Write in both ways how much faster something is that takes a share of the time."""
    return [f"{saved(share)} time", f"{1 / share:.2f}x as fast"]


def saved(share: float) -> str:
    """Return how much less, or more, something is of which a share is left.

    >>> saved(0.61), saved(1.1)
    ('39% less', '10% more')
    """
    return f"{1 - share:.0%} less" if share <= 1 else f"{share - 1:.0%} more"


def about_speed(summary: Mapping[str, Any]) -> str:
    """Describe how it was measured, and why both ways of saying it are given."""
    measured = (
        "Times are medians, teacher and student in turns, in float32. "
        if "speeds" in summary
        else "Times were not measured (report.speed is false). "
    )
    return measured + (
        "Less time and faster are the same fact: DistilBERT's 39 % less time is 1.63 times the speed, "
        "published as 60 % faster."
    )


def share_of(sizes: Mapping[str, Mapping[str, int]], key: str) -> float:
    """Return what is left of the teacher's size."""
    return sizes[STUDENT][key] / sizes[TEACHER][key]


def less(own: float, teachers: float) -> str:
    """Write how much less something is."""
    return f"{1 - own / teachers:.0%}"
