"""What a pretraining run says before its first step, in one block (`training/start.py`)."""

from accelerate import Accelerator
from torch import nn

from ..configs.messages import counted
from ..data.steps.weighting import WeightedSource
from ..data.steps.windows import windows_of
from ..training.devices.precision import precision_of
from ..training.recipe import TrainingRecipe
from ..training.stages import TrainingData, epochs_of
from ..training.start import device_in_words
from .recipe import PretrainingRecipe


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
