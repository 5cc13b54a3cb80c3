"""The beginning of a run of pretraining: it takes its folder, and says in one block what it is about to do.

    model        decoder-tiny: 1,970,880 parameters, vocabulary of 4,096 tokens
    text         2,905,153 tokens in 27,215 examples
    steps        500 of at most 2,048 tokens: 0.35 epochs
    device       cpu (AVX512), 2 threads, bf16 (AMX)
    time         is known after the first steps

How long the run will take is measured on its first steps (`training/tracking.py`), which no peak and no share
of it can tell as well.
"""

from accelerate import Accelerator

from ..configs.messages import counted
from ..data.steps.weighting import WeightedSource
from ..data.steps.windows import windows_of
from ..training.devices.precision import precision_of
from ..training.learning import Session
from ..training.recipe import TrainingRecipe
from ..training.run_folder import Run
from ..training.stages import TrainingData, epochs_of, warn_of_unfilled_steps
from ..training.start import device_in_words, tell_start
from .prepared import Inputs, Prepared
from .text import tell_shares


def begin(run: Run, inputs: Inputs, parts: Prepared, session: Session) -> None:
    """Take the folder of a run, and say what the run is about to do; every process calls this."""
    with run.together() as is_main:
        if is_main:
            run.take()
            inputs.tokenizer.keep(run.folder, parts.tokenizer)
            parts.text.tell(run.folder)
            inputs.model.tell_of_rate(inputs.training.optimizer.learning_rate)
            tell_shares(parts.data.stages, inputs.training.steps)
            warn_of_unfilled_steps(parts.data.stages)
            tell_start(start_lines(inputs, parts, session.accelerator))


def start_lines(inputs: Inputs, parts: Prepared, accelerator: Accelerator) -> dict[str, str]:
    """Return the lines of the block by their names."""
    data, vocab_size = parts.data, len(parts.tokenizer)
    parameters = counted(sum(weights.numel() for weights in parts.model.parameters()), "parameter")
    lengths = data.stages[-1].steps.plan(0)[0].lengths
    text = f"{int(lengths.sum()):,} tokens in {counted(len(lengths), 'example')}"
    if data.is_stream:
        text += " (the first window of a stream)"
    elif windows_in(data) > 1:
        text += f" (the first of {windows_in(data):,} windows)"
    return {
        "model": f"{inputs.model.name}: {parameters}, vocabulary of {vocab_size:,} tokens",
        "text": text,
        "steps": steps_in_words(inputs.training, data),
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
