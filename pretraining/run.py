"""A pretraining run, from a recipe to a model that the Auto classes load.

recipe -> prepare: tokenizer, model, objective, data -> fit -> model, tokenizer, recipe, scores on disk

Whatever may be wrong with recipe and text shows before the output folder is touched: tokenizer and corpus lie
in the cache until then.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from accelerate import Accelerator
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..configs.recipe import recipe_data
from ..storage.model_folder import save_tokenizer
from ..text.cache import made_once, name_of
from ..text.new_terms import read_terms
from ..text.texts_read import contents_of
from ..training.books import hash_of_weights, tell_of_amount, tell_of_weights, tokens_asked
from ..training.checkpoint import CHECKPOINTS, latest
from ..training.disk import replace_text
from ..training.environment import environment_of
from ..training.exchange import wait_for_everyone
from ..training.final_weights import FILES, each_kind, final_kind, folder_of, kinds_of, scores_of
from ..training.fit import Outcome, fit
from ..training.precision import build_accelerator, join_processes
from ..training.recipe import TrainingRecipe
from ..training.recovery import precision_kept
from ..training.run_folder import EVALUATION, MODEL, Run, delete, running
from ..training.stages import LEAST_FILL, warn_of_unfilled_steps
from ..training.tracking import as_json
from .continuation import tell_of_learning_rate
from .model import SavedModel, save_model, saved_models
from .output import TOKENIZER, kept_tokenizer, run_folder
from .prepared import Inputs, find_inputs, load_or_train_tokenizer, prepare
from .recipe import PretrainingRecipe
from .revisions import keeping_revisions, require_repository
from .start import start_lines, tell_start, waiting_for
from .text import ReadText
from .text_shares import tell_shares


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
    processes = join_processes(recipe.training.timeout)
    with running(recipe, run_folder, resume=resume, overwrite=overwrite, processes=processes) as run:
        return pretrain_in(run, recipe, inputs)


def pretrain_in(run: Run, recipe: PretrainingRecipe, inputs: Inputs) -> Path:
    """Pretrain in the folder that a run holds."""
    kept = precision_kept(run.folder / CHECKPOINTS) if run.resume else None
    accelerator = build_accelerator(recipe.training, run.folder, kept_precision=kept)
    goes_on = run.resume and latest(run.folder / CHECKPOINTS) is not None
    require_repository(recipe, accelerator, goes_on=goes_on)
    with waiting_for("the text: it is tokenized once, and found in the cache from then on"):
        parts = prepare(recipe, inputs, accelerator, found_tokenizer(run, recipe, inputs))
    text = ReadText(inputs.texts, parts.held_out, parts.left_out)
    with run.together() as is_main:
        if is_main:
            run.take()
            keep_tokenizer(recipe, inputs, parts.tokenizer)
            text.tell(run.folder)
            tell_of_learning_rate(recipe)
            tell_shares(recipe, parts.data.stages)
            warn_of_unfilled_steps(parts.data.stages)
            size = len(parts.tokenizer)
            tell_start(start_lines(recipe, parts.model, size, parts.data, accelerator))
    with keeping_revisions(recipe, inputs, parts, accelerator) as revisions:
        outcome = fit(
            parts.model,
            parts.objective,
            parts.data,
            recipe.training,
            run.folder,
            accelerator,
            width=parts.model.config.hidden_size,
            about=recipe_data(recipe) | {"text": parts.extent},
            resume=run.resume,
            evaluates_first=recipe.model.path is not None,
            revisions=revisions,
        )
        if outcome.interrupted_by is not None:
            raise KeyboardInterrupt(f"stopped by {outcome.interrupted_by}; continue with --resume")
        find = partial(saved_models, parts.model, recipe)
        keep_models(
            parts.model, find, parts.tokenizer, recipe.training, run.folder, outcome, text, accelerator
        )
        wait_for_everyone()
    return run.folder / MODEL


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
    with running(recipe, run_folder, resume=False, overwrite=overwrite) as run:
        tokenizer = load_or_train_tokenizer(recipe, inputs, found_tokenizer(run, recipe, inputs))
        run.take()
        return keep_tokenizer(recipe, inputs, tokenizer)


MADE_OF = "made_of.txt"
"""Beside a run's tokenizer: what it was made of, as a hash."""


def keep_tokenizer(recipe: PretrainingRecipe, inputs: Inputs, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Save a tokenizer that was made for a run in its folder, unless it is there; return where."""
    folder = recipe.folder / TOKENIZER

    def make(target: Path) -> None:
        save_tokenizer(tokenizer, target)
        (target / MADE_OF).write_text(made_of(recipe, inputs), encoding="utf-8")

    if (recipe.tokenizer.path is None or recipe.tokenizer.is_extended) and not folder.exists():
        made_once(folder, make, "another folder with output=...")
    return folder


def found_tokenizer(run: Run, recipe: PretrainingRecipe, inputs: Inputs) -> Path | None:
    """Find the tokenizer that an earlier command made for a run; one that has begun keeps it in any case.

    Raises:
        ValueError: It was made of other text or terms, in files of the same names.
    """
    folder = kept_tokenizer(run)
    if folder is None or not (folder / MADE_OF).exists() or latest(run.folder / CHECKPOINTS) is not None:
        return folder
    if (folder / MADE_OF).read_text(encoding="utf-8") != made_of(recipe, inputs):
        raise ValueError(
            f"{folder} was made of other text, or other terms, than the files of corpus.train and "
            "tokenizer.add hold now: make it anew with --overwrite, or choose another folder with output=..."
        )
    return folder


def made_of(recipe: PretrainingRecipe, inputs: Inputs) -> str:
    """Hash the contents that a run's tokenizer is made of: its text, if it learns from that, and terms."""
    tokenizer = recipe.tokenizer
    documents = inputs.texts["train"] if inputs.tokenizer is None or tokenizer.add_learned else ()
    texts = [contents_of(entry) for part in documents for entry in part.identify()]
    return name_of(texts, [] if tokenizer.add is None else read_terms(tokenizer.add))


def save_models(
    run_folder: Path,
    models: Mapping[str, SavedModel],
    tokenizer: PreTrainedTokenizerBase,
    training: TrainingRecipe,
    kind: str,
) -> None:
    """Write finished models with one kind of weights, each with tokenizer and recipe.

    Args:
        run_folder: Of the run.
        models: By their folders in it.
        tokenizer: Of all of them.
        training: Says which kind of weights is the final one; other kinds have folders beside it.
        kind: Of these weights.
    """
    for name, (model, weights) in models.items():
        folder = run_folder / folder_of(name, kind, training)
        save_model(folder, model, weights, tokenizer, training, run_folder)


def keep_models(
    trained: nn.Module,
    find: Callable[[Mapping[str, Tensor]], Mapping[str, SavedModel]],
    tokenizer: PreTrainedTokenizerBase,
    training: TrainingRecipe,
    run_folder: Path,
    outcome: Outcome,
    text: ReadText,
    accelerator: Accelerator,
) -> None:
    """Write the finished models with every kind of weights, what they are and score, and the run's books.

    Models of earlier ends are deleted. Every process calls this; the main one writes.

    Args:
        trained: What has learned.
        find: Returns the models in it by their folders, of all its weights.
        tokenizer: Of all of them.
        training: Says which kinds of weights there are.
        run_folder: Of the run.
        outcome: How the run ended.
        text: That the run reads.
        accelerator: Of the run.
    """
    models: Mapping[str, SavedModel] = {}
    saved: dict[str, str] = {}
    for kind, weights in each_kind(trained, training, outcome.checkpoint, accelerator):
        if accelerator.is_main_process:
            models = find(weights)
            saved[kind] = hash_of_weights(weights)
            save_models(run_folder, models, tokenizer, training, kind)
    if not accelerator.is_main_process:
        return
    kinds = {kind: scores_of(kind, outcome.scores) for kind in kinds_of(training)}
    final = final_kind(training)
    summary = outcome.progress.state_dict() | {
        "weights": final,
        "scores": kinds[final],
        "saved": saved,
        "scores_of_other_weights": {kind: scores for kind, scores in kinds.items() if kind != final},
        "held_out": dict(text.held_out.about),
        "left_out": {split: [each._asdict() for each in own] for split, own in text.left_out.items()},
        "trained_on": environment_of(trained, accelerator),
        "trained_parameters": sum(weights.numel() for weights in trained.parameters()),
        "models": {name: type(model).__name__ for name, (model, _) in models.items()},
    }
    for name in models:
        for kind in FILES.keys() - (kinds.keys() - {final}):
            delete(run_folder / f"{name}-{kind}")
    replace_text(run_folder / EVALUATION, json.dumps(as_json(summary), indent=2) + "\n")
    progress, asked = outcome.progress, tokens_asked(training, outcome.progress.step)
    tolerance = (1 - LEAST_FILL) * asked
    tell_of_amount(run_folder.name, "tokens", progress.tokens, asked, progress, tolerance=tolerance)
    tell_of_weights(run_folder.name, progress.scored, saved)
