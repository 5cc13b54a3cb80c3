"""How large models are, and how fast: parameters, disk, latency, throughput, memory.

A pass reads 128 tokens, as far as the model can; generators write 32 tokens behind 32 instead, since that is
what they are for. Models take turns, so that what disturbs the machine disturbs all alike. The memory of a
model is what a fresh process needs more, at its peak, after it was loaded and has done a pass of 32.

Shapes: B rows of a pass, T tokens.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from subprocess import PIPE, CalledProcessError
from typing import Any

import torch

from ..configs.processes import start_python
from ..modeling import TercetPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint
from ..training.devices.utilization import peak_memory, wait_for
from .model_outputs import base_of
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
