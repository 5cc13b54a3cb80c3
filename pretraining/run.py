"""A pretraining run, from a recipe to a model that the Auto classes load.

recipe -> tokenizer -> corpus -> examples
              |                     |
            model  ->  objective -> fit -> evaluation -> model, tokenizer, recipe on disk

Whatever may be wrong with recipe and text shows before the output folder is touched: tokenizer and corpus lie
in the cache until then.
"""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..configs.recipe import recipe_data
from ..reporting.curves import draw_log
from ..text.cache import cache_folder, made_once
from ..text.chunks import StreamedExamples
from ..text.corpus import TokenizedCorpus
from ..text.held_out_overlap import warn_of_overlap
from ..text.texts_read import Texts, keep_texts
from ..text.tokenizer import load_tokenizer
from ..text.unknown_tokens import tell_of_unknown
from ..training.checkpoint import latest
from ..training.circumstances import circumstances
from ..training.consistency import require_consistent
from ..training.disk import explaining_a_full_disk, replace_text
from ..training.evaluation import HeldOut
from ..training.examples import Examples, ExampleSource
from ..training.fit import CHECKPOINTS, Outcome, fit
from ..training.precision import build_accelerator, join_processes
from ..training.run_folder import writing
from ..training.sharding import whole_weights
from ..training.stages import build_stages, cut_held_out
from ..training.tracking import LOG, as_json, read_log
from .held_out import UNKNOWN, build_held_out, examples_of
from .model import build_config, build_model
from .output import (
    CURVES,
    EVALUATION,
    MODEL,
    RECIPE,
    TEXTS,
    TOKENIZER,
    prepared_tokenizer,
    run_folder,
)
from .recipe import PretrainingRecipe
from .text import Split, open_text, prepare_tokenizer, tokenize_text


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
    require_sound(recipe)
    with writing(recipe.folder, join_processes()):
        return pretrain_alone(recipe, resume=resume, overwrite=overwrite)


def pretrain_alone(recipe: PretrainingRecipe, *, resume: bool, overwrite: bool) -> Path:
    """Pretrain in a folder that nobody else writes."""
    run_folder(recipe).require_claimable(resume=resume, overwrite=overwrite)
    accelerator = build_accelerator(recipe.training, recipe.folder)
    with accelerator.main_process_first():
        tokenizer = prepare_tokenizer(recipe, prepared_tokenizer(recipe, overwrite=overwrite))
        source = build_source(recipe, tokenizer)
        held_out = build_held_out(recipe, tokenizer)
    model = build_model(recipe, tokenizer)
    objective = recipe.objective.build(
        tokenizer,
        sequence_length=recipe.corpus.sequence_length,
        seed=recipe.training.seed,
        decoder_start_id=getattr(model.config, "decoder_start_token_id", None),
    )
    source_of_length = partial(build_source_of_length, recipe, tokenizer)
    build_stages(source, source_of_length, objective, recipe.training, accelerator)  # raises what is wrong
    assert held_out.source is not None
    cut_held_out(held_out.source, objective, recipe.training, accelerator).plan(0)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:  # nothing of text or recipe can be wrong any more: an earlier run may go
        run_folder(recipe).claim(resume=resume, overwrite=overwrite)
        keep_inputs(recipe, tokenizer, held_out)
    accelerator.wait_for_everyone()
    outcome = fit(
        model,
        objective,
        source,
        recipe.training,
        recipe.folder,
        accelerator,
        width=model.config.hidden_size,
        source_of_length=source_of_length,
        held_out=held_out,
        about=recipe_data(recipe) | {"text": extent(source)},
        resume=resume,
    )
    if outcome.interrupted_by is not None:
        raise KeyboardInterrupt(f"stopped by {outcome.interrupted_by}; continue with --resume")
    weights = whole_weights(model, accelerator)
    if accelerator.is_main_process:
        save(recipe.folder, model, weights, tokenizer, outcome, held_out, circumstances(model, accelerator))
    accelerator.wait_for_everyone()
    return recipe.folder / MODEL


def train_recipe_tokenizer(recipe: PretrainingRecipe, *, overwrite: bool = False) -> Path:
    """Train the tokenizer of a recipe, without training a model, and return its folder.

    Raises:
        ValueError: The recipe names an existing tokenizer, or the output folder is in use.
    """
    if recipe.tokenizer.path is not None:
        raise ValueError(
            f"tokenizer.path is {recipe.tokenizer.path}, so nothing is to be trained: set tokenizer.path=null"
        )
    require_sound(recipe)
    output = run_folder(recipe)
    with writing(recipe.folder):
        output.require_claimable(resume=False, overwrite=overwrite)
        tokenizer = prepare_tokenizer(recipe, prepared_tokenizer(recipe, overwrite=overwrite))
        output.claim(resume=False, overwrite=overwrite)
        return keep_tokenizer(recipe, tokenizer)


def require_sound(recipe: PretrainingRecipe) -> None:
    """Find what is wrong with a recipe before its text is read, which may take long.

    Raises:
        ValueError: Parts of it do not fit each other.
        FileNotFoundError: A file that it names does not exist.
    """
    require_consistent(recipe.training)
    for stage in recipe.training.stages:
        require_shorter(stage.sequence_length or 1, recipe.corpus.sequence_length)
    build_config(recipe)
    require_inputs(recipe)


def require_shorter(sequence_length: int, longest: int) -> None:
    """Raise a `ValueError` if the sequences of a stage are longer than the run's."""
    if sequence_length > longest:
        raise ValueError(
            f"training.stages: sequence_length = {sequence_length} exceeds corpus.sequence_length = "
            f"{longest}: shorten the stage's sequences, or let the run's be as long"
        )


def require_inputs(recipe: PretrainingRecipe) -> None:
    """Find the texts and the tokenizer that a recipe names, and warn if it measures on what it learns from.

    Raises:
        FileNotFoundError: A named file or folder does not exist.
        ValueError: A text has no such columns, or the tokenizer cannot be loaded.
    """
    learned, measured = (open_text(recipe, split)[0] for split in ("train", "validation"))
    warn_of_overlap(learned, measured, cache_folder(recipe.corpus.cache))
    if recipe.tokenizer.path is not None:
        load_tokenizer(recipe.tokenizer.path)


def keep_tokenizer(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Save a tokenizer that was trained for a run in its folder, unless it is there, and say where."""
    folder = recipe.folder / TOKENIZER
    if recipe.tokenizer.path is None and not folder.exists():
        made_once(folder, tokenizer.save_pretrained)
    return folder


def keep_inputs(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase, held_out: HeldOut) -> None:
    """Keep a run's tokenizer, and write which texts its recipe means; tell how much of them is unknown."""
    tell_of_unknown(held_out.about[UNKNOWN], "the held-out text")
    keep_tokenizer(recipe, tokenizer)
    goes_on = latest(recipe.folder / CHECKPOINTS) is not None
    keep_texts(recipe.folder / TEXTS, identify(recipe), goes_on=goes_on)


def identify(recipe: PretrainingRecipe) -> Texts:
    """Say which texts a recipe means."""
    return {split: open_text(recipe, split)[0].identify(recipe.corpus.cache) for split in get_args(Split)}


def build_source(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> ExampleSource:
    """Make the examples to learn from: of text tokenized once, or of windows of a stream.

    Raises:
        ValueError: The text cannot be read or is too short, or pairs are to be streamed.
    """
    if not recipe.corpus.streaming:
        return examples_of(recipe, tokenize_text(recipe, "train", tokenizer), tokenizer)
    documents, *others = open_text(recipe, "train")
    if others:
        raise ValueError("corpus.streaming is true, but pairs cannot be streamed: set corpus.streaming=false")
    return StreamedExamples(documents, tokenizer, partial(examples_of_window, recipe, tokenizer))


def extent(source: ExampleSource) -> str:
    """Say how much text an epoch has, by which a resumed run notices that it is another text."""
    lengths = source.epoch(0).lengths
    return f"{len(lengths):,} examples of {int(np.sum(lengths)):,} tokens"


def build_source_of_length(
    recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase, sequence_length: int
) -> ExampleSource:
    """Make the examples of a stage with shorter sequences, from the same tokenized text.

    Raises:
        ValueError: They would be longer than the run's.
    """
    require_shorter(sequence_length, recipe.corpus.sequence_length)
    return build_source(
        replace(recipe, corpus=replace(recipe.corpus, sequence_length=sequence_length)), tokenizer
    )


def examples_of_window(
    recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase, corpus: TokenizedCorpus
) -> Examples:
    """Make the examples of a window of a stream."""
    return examples_of(recipe, corpus, tokenizer).epoch(0)


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
