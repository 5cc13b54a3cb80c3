"""A pretraining run, from a recipe to a model that the Auto classes load.

recipe -> inputs -> parts: tokenizer, model, objective, data -> learn -> models, scores on disk

Whatever may be wrong with recipe and text shows before the output folder is touched: tokenizer and corpus lie
in the cache until then.
"""

from contextlib import nullcontext
from pathlib import Path

from accelerate import Accelerator

from ..configs.messages import counted
from ..data.steps.exchange import wait_for_everyone
from ..data.steps.weighting import WeightedSource
from ..data.steps.windows import windows_of
from ..training.devices.precision import join_processes, precision_of
from ..training.learning import Session, learn
from ..training.recipe import TrainingRecipe
from ..training.run_folder import MODEL, Run, running
from ..training.stages import TrainingData, epochs_of, warn_of_unfilled_steps
from ..training.tracking import device_in_words, tell_start, waiting_for
from .finished import keep_models
from .output import run_folder
from .prepared import Inputs, Prepared, find_inputs, prepare
from .recipe import PretrainingRecipe
from .text import tell_shares


def pretrain(recipe: PretrainingRecipe, *, resume: bool = False, overwrite: bool = False) -> Path:
    """Pretrain a model as a recipe says, and return the folder of the finished model.

    Args:
        recipe: Everything that the run depends on.
        resume: Continue from the newest checkpoint in the output folder, if there is one.
        overwrite: Replace an earlier run in the output folder.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the text or the output folder.
        FileNotFoundError: A named file does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
        WriteError: There is no room; what was written before is intact.
        DamagedCheckpointError: The run is to be resumed, and none of its checkpoints is as it was written.
    """
    with waiting_for("the text: its files are read and compared"):
        inputs = find_inputs(recipe)
    processes = join_processes(inputs.training.timeout)
    with running(run_folder(recipe), resume=resume, overwrite=overwrite, processes=processes) as run:
        session = Session.begin(run.folder, inputs.training, resume=run.resume)
        if inputs.training.push_revisions is not None:
            from .revisions import require_repository  # which most runs do without

            require_repository(session)
        with waiting_for("the text: it is tokenized once, and found in the cache from then on"):
            parts = prepare(inputs, session.accelerator, inputs.tokenizer.found(run))
        take_folder(run, inputs, parts, session)
        keeping = nullcontext()
        if inputs.training.revisions is not None:
            from .revisions import keeping_revisions

            keeping = keeping_revisions(session, parts, inputs.corpus.cache)
        with keeping as revisions:
            outcome = learn(session, parts, revisions)
            keep_models(session, parts, outcome)
            wait_for_everyone()
        return run.folder / MODEL


def take_folder(run: Run, inputs: Inputs, parts: Prepared, session: Session) -> None:
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
    """Return the lines of the block that a run begins with (`training/tracking.py`) by their names."""
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


def train_recipe_tokenizer(recipe: PretrainingRecipe, *, overwrite: bool = False) -> Path:
    """Train the tokenizer of a recipe, without training a model, and return its folder.

    Raises:
        ValueError: The recipe names an existing tokenizer, or the output folder is in use.
    """
    if recipe.tokenizer.path is not None and not recipe.tokenizer.is_extended:
        raise ValueError(
            f"tokenizer.path is {recipe.tokenizer.path}, so there is no tokenizer to train: set "
            "tokenizer.path=null, or tokenizer.add"
        )
    inputs = find_inputs(recipe)
    with running(run_folder(recipe), resume=False, overwrite=overwrite) as run:
        tokenizer = inputs.tokenizer.load_or_train(inputs.model, inputs.tokenizer.found(run))
        run.take()
        return inputs.tokenizer.keep(run.folder, tokenizer)
