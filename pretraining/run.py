"""A pretraining run, from a recipe to a model that the Auto classes load.

recipe -> prepare: tokenizer, model, objective, data -> fit -> model, tokenizer, recipe, scores on disk

Whatever may be wrong with recipe and text shows before the output folder is touched: tokenizer and corpus lie
in the cache until then.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..configs.recipe import recipe_data
from ..reporting.curves import draw_log
from ..text.cache import made_once
from ..text.special_tokens import tell_of_unknown
from ..text.texts_read import keep_texts
from ..training.checkpoint import latest
from ..training.disk import explaining_a_full_disk, replace_text
from ..training.environment import environment_of
from ..training.evaluation import HeldOut
from ..training.fit import CHECKPOINTS, Outcome, fit
from ..training.precision import build_accelerator, join_processes
from ..training.run_folder import CURVES, EVALUATION, MODEL, RECIPE, TEXTS, writing
from ..training.sharding import whole_weights
from ..training.tracking import LOG, as_json, read_log
from .output import TOKENIZER, kept_tokenizer, run_folder
from .prepared import Inputs, find_inputs, load_or_train_tokenizer, prepare
from .recipe import PretrainingRecipe
from .text import UNKNOWN, identify


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
        DiskFullError: There is no room; what was written before is intact.
        DamagedCheckpointError: The run is to be resumed, and none of its checkpoints is as it was written.
    """
    inputs, folder = find_inputs(recipe), recipe.folder
    with writing(folder, join_processes()):
        return pretrain_alone(recipe, inputs, folder, resume=resume, overwrite=overwrite)


def pretrain_alone(
    recipe: PretrainingRecipe, inputs: Inputs, folder: Path, *, resume: bool, overwrite: bool
) -> Path:
    """Pretrain in a folder that nobody else writes."""
    output = run_folder(recipe)
    output.require_claimable(resume=resume, overwrite=overwrite)
    accelerator = build_accelerator(recipe.training, folder)
    run = prepare(recipe, inputs, accelerator, kept_tokenizer(recipe, overwrite=overwrite))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:  # nothing of text or recipe can be wrong any more: an earlier run may go
        output.claim(resume=resume, overwrite=overwrite)
        tell_of_unknown(run.held_out.about[UNKNOWN], "the held-out text")
        keep_tokenizer(recipe, run.tokenizer)
        goes_on = latest(folder / CHECKPOINTS) is not None
        keep_texts(folder / TEXTS, identify(inputs.texts, recipe.corpus.cache), goes_on=goes_on)
    accelerator.wait_for_everyone()
    outcome = fit(
        run.model,
        run.objective,
        run.data,
        recipe.training,
        folder,
        accelerator,
        width=run.model.config.hidden_size,
        about=recipe_data(recipe) | {"text": run.extent},
        resume=resume,
    )
    if outcome.interrupted_by is not None:
        raise KeyboardInterrupt(f"stopped by {outcome.interrupted_by}; continue with --resume")
    weights = whole_weights(run.model, accelerator)
    if accelerator.is_main_process:
        trained_on = environment_of(run.model, accelerator)
        save(folder, run.model, weights, run.tokenizer, outcome, run.held_out, trained_on)
    accelerator.wait_for_everyone()
    return folder / MODEL


def train_recipe_tokenizer(recipe: PretrainingRecipe, *, overwrite: bool = False) -> Path:
    """Train the tokenizer of a recipe, without training a model, and return its folder.

    Raises:
        ValueError: The recipe names an existing tokenizer, or the output folder is in use.
    """
    if recipe.tokenizer.path is not None:
        raise ValueError(
            f"tokenizer.path is {recipe.tokenizer.path}, so there is no tokenizer to train: set "
            f"tokenizer.path=null"
        )
    inputs, output = find_inputs(recipe), run_folder(recipe)
    with writing(recipe.folder):
        output.require_claimable(resume=False, overwrite=overwrite)
        trained = kept_tokenizer(recipe, overwrite=overwrite)
        tokenizer = load_or_train_tokenizer(recipe, inputs, trained)
        output.claim(resume=False, overwrite=overwrite)
        return keep_tokenizer(recipe, tokenizer)


def keep_tokenizer(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Save a tokenizer that was trained for a run in its folder, unless it is there, and say where."""
    folder = recipe.folder / TOKENIZER
    if recipe.tokenizer.path is None and not folder.exists():
        made_once(folder, tokenizer.save_pretrained)
    return folder


def save(
    run_folder: Path,
    model: PreTrainedModel,
    weights: dict[str, Tensor],
    tokenizer: PreTrainedTokenizerBase,
    outcome: Outcome,
    held_out: HeldOut,
    trained_on: dict[str, Any],
) -> None:
    """Write the finished model with its tokenizer and recipe, and beside it its scores and curves."""
    folder = run_folder / MODEL
    remedy = "make room and continue with --resume; the checkpoint of the last step is there"
    with explaining_a_full_disk(folder, model.get_memory_footprint(), remedy):
        model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
        shutil.copy(run_folder / RECIPE, folder)
    summary = outcome.progress.state_dict() | {
        "scores": outcome.scores,
        "held_out": dict(held_out.about),
        "trained_on": trained_on,
    }
    draw_log(read_log(run_folder / LOG), run_folder / CURVES)
    replace_text(run_folder / EVALUATION, json.dumps(as_json(summary), indent=2) + "\n")
