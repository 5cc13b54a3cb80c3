"""What a run says before its first step, in one block, and what it waits for until then: here of pretraining.

    model        decoder-tiny: 1,970,880 parameters, vocabulary of 4,096 tokens
    text         2,905,153 tokens in 27,215 examples
    steps        500 of at most 2,048 tokens: 0.35 epochs
    device       cpu (AVX512), 2 threads, bf16 (AMX)
    time         is known after the first steps

How long the run will take is measured on its first steps (`training/tracking.py`), which no peak and no share
of it can tell as well.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Timer

import torch
from accelerate import Accelerator
from torch import nn

from ..configs.messages import counted
from ..data.steps.weighting import WeightedSource
from ..data.steps.windows import windows_of
from ..training.devices.environment import device_name
from ..training.devices.precision import precision_in_words, precision_of
from ..training.recipe import TrainingRecipe
from ..training.stages import TrainingData, epochs_of
from .recipe import PretrainingRecipe

PATIENCE = 1.0
"""Seconds of silence before it is said what a run waits for."""


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say what a run waits for, as a context, if that takes longer than `PATIENCE`."""
    timer = Timer(PATIENCE, print, [f"waiting for {what}"], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tell_start(lines: Mapping[str, str]) -> None:
    """Print what a run is about to do."""
    print(as_block(lines), file=sys.stderr, flush=True)


def as_block(lines: Mapping[str, str]) -> str:
    """Write lines below one another, each behind its name."""
    return "\n".join(f"{name:<10} {line}" for name, line in lines.items())


def device_in_words(device: torch.device, precision: str, num_processes: int = 1) -> str:
    """Say what a run computes on, in which format, and why in that."""
    told = [device_name(device)]
    if device.type == "cpu":
        told.append(counted(torch.get_num_threads(), "thread"))
    if num_processes > 1:
        told.append(f"{num_processes} processes")
    return ", ".join([*told, precision_in_words(precision, device)])


def start_lines(
    recipe: PretrainingRecipe, model: nn.Module, vocab_size: int, data: TrainingData, accelerator: Accelerator
) -> dict[str, str]:
    """Return the lines of the block by their names."""
    parameters = counted(sum(weights.numel() for weights in model.parameters()), "parameter")
    lengths = data.stages[-1].steps.plan(0)[0].lengths
    text = f"{int(lengths.sum()):,} tokens in {counted(len(lengths), 'example')}"
    if data.is_stream:
        text += " (the first window of a stream)"
    elif windows_in(data) > 1:
        text += f" (the first of {windows_in(data):,} windows)"
    return {
        "model": f"{recipe.model.origin}: {parameters}, vocabulary of {vocab_size:,} tokens",
        "text": text,
        "steps": steps_in_words(recipe.training, data),
        "device": device_in_words(accelerator.device, precision_of(accelerator), accelerator.num_processes),
        "time": "is known after the first steps",
    }


def steps_in_words(training: TrainingRecipe, data: TrainingData) -> str:
    """Say how many steps there are, of which size, and how many epochs or windows they make."""
    told = f"{training.steps:,} of at most {training.tokens_per_step:,} tokens"
    if data.is_stream:
        return told
    unit = "windows" if windows_in(data) > 1 else "epochs"
    return f"{told}: {sum(epochs_of(data.stages, training.steps)):.2g} {unit}"


def windows_in(data: TrainingData) -> int:
    """Count the windows by which the training text is read, or the largest of several; 1 if it is whole."""
    source = data.stages[-1].steps.source
    return max(map(windows_of, source.sources.values() if isinstance(source, WeightedSource) else [source]))
