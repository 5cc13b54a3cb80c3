"""The folder of a run: what lies in it, and when a run may write there.

    recipe.yaml       what the run does             checkpoints/   from which it can be resumed
    tokenizer/        if the run trained one        log.jsonl      losses, speed and evaluations
    evaluation.json   scores of the finished model  model/         the finished model, for `from_pretrained`
    texts.json        which texts were read         curves.png     the losses, drawn
    non_finite/       why a run was given up

Nothing of an earlier run is overwritten unless the user says so, and never what no run of ours wrote. A run
that is killed while it writes leaves `.NAME.partial`, which the next one deletes.
"""

import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from ..configs.documents import read_document
from ..configs.recipe import recipe_data
from ..training.disk import replace_text
from .recipe import CorpusRecipe, PretrainingRecipe

RECIPE = "recipe.yaml"
TOKENIZER = "tokenizer"
MODEL = "model"
EVALUATION = "evaluation.json"
TEXTS = "texts.json"
CURVES = "curves.png"
PREPARED = (RECIPE, TOKENIZER, TEXTS)
"""What a run finds that only the tokenizer was trained for, or that ended before its first step."""
WRITTEN = (*PREPARED, MODEL, EVALUATION, CURVES, "checkpoints", "log.jsonl", "non_finite")
"""Everything that a run writes."""

UNFINISHED = tuple(f".{name}*.partial" for name in WRITTEN)
"""Patterns of the names that these have while they are being written."""

WHAT_IS_LEARNED = (
    "model",
    "tokenizer",
    # Neither where the corpus is kept nor what would have ended an earlier run says what is learned.
    *(f"corpus.{key.name}" for key in fields(CorpusRecipe) if key.name not in {"cache", "skip_bad_records"}),
    "objective",
    "training.seed",
    "training.tokens_per_step",
    "training.stages",
)
"""Keys of a recipe that a resumed run may not change."""

WHAT_IS_TOKENIZED = (
    "tokenizer",
    "objective.kind",
    "corpus.train",
    "corpus.text_column",
    "corpus.source_column",
    "corpus.target_column",
)
"""Keys of a recipe on which its tokenizer depends."""


def require_claimable(recipe: PretrainingRecipe, *, resume: bool, overwrite: bool) -> None:
    """Make sure that `claim_output` may do as it is told; nothing is changed.

    Raises:
        ValueError: The folder is in use, or an earlier run there had another recipe.
    """
    folder = recipe.folder
    require_unused(folder, allowed=WRITTEN if resume or is_replaced(folder, overwrite) else PREPARED)
    if is_replaced(folder, overwrite):
        require_elsewhere(folder, {"tokenizer.path": recipe.tokenizer.path})
    elif resume:
        require_same_recipe(folder, recipe, WHAT_IS_LEARNED)
    elif (folder / TOKENIZER).exists():
        require_same_recipe(folder, recipe, WHAT_IS_TOKENIZED)


def claim_output(recipe: PretrainingRecipe, *, resume: bool, overwrite: bool) -> Path:
    """Make the run's folder and write the recipe into it.

    A folder that holds no more than the recipe and the tokenizer of an earlier command goes on being used.

    Args:
        recipe: Names the folder.
        resume: Whether an earlier run there may be continued.
        overwrite: Whether an earlier run there may be deleted.

    Raises:
        ValueError: As in `require_claimable`.
    """
    require_claimable(recipe, resume=resume, overwrite=overwrite)
    folder = recipe.folder
    if overwrite:
        delete_run(folder)
    make_folder(folder)
    for path in folder.iterdir():
        if is_unfinished(path):
            delete(path)
    write_recipe(recipe, folder)
    return folder


def write_recipe(recipe: object, folder: Path) -> None:
    """Write a recipe of any kind into a folder."""
    text = yaml.safe_dump(recipe_data(recipe), sort_keys=False, allow_unicode=True)
    replace_text(folder / RECIPE, text)


def make_folder(folder: Path) -> None:
    """Make the folder of a run, or raise a `ValueError` if that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"output {folder} cannot be made ({error.strerror}): choose another folder with output=..."
        ) from error


def prepared_tokenizer(recipe: PretrainingRecipe, *, overwrite: bool) -> Path | None:
    """Find the tokenizer that an earlier command left for this run, unless it is to be replaced."""
    folder = recipe.folder / TOKENIZER
    return folder if folder.exists() and not is_replaced(recipe.folder, overwrite) else None


def is_replaced(folder: Path, overwrite: bool) -> bool:
    """Tell whether there is an earlier run, and the user wants it deleted."""
    return overwrite and (folder / RECIPE).exists()


def delete_run(folder: Path) -> None:
    """Delete what an earlier run wrote into a folder, and nothing else."""
    if not (folder / RECIPE).exists():
        return
    for name in WRITTEN:
        delete(folder / name)


def delete(path: Path) -> None:
    """Delete a file, or a folder with all that is in it, or nothing."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def require_unused(folder: Path, allowed: tuple[str, ...], written: tuple[str, ...] = WRITTEN) -> None:
    """Raise a `ValueError` if a folder holds anything but what is allowed of what a run has written."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output is {folder}, which is a file: name a folder")
    paths = folder.iterdir() if folder.exists() else []
    found = sorted(path.name for path in paths if not is_unfinished(path))
    unexpected = [name for name in found if name not in allowed]
    if not unexpected:
        return
    if RECIPE in found and unexpected[0] in written:
        raise ValueError(
            f"output {folder} holds an earlier run ({unexpected[0]}): continue it with --resume, replace it "
            "with --overwrite, or choose another folder with output=..."
        )
    raise ValueError(
        f"output {folder} holds {unexpected[0]}, which no run wrote: choose another folder with output=..."
    )


def is_unfinished(path: Path) -> bool:
    """Tell whether a killed run left this while it wrote."""
    return any(path.match(pattern) for pattern in UNFINISHED)


def require_elsewhere(folder: Path, needed: Mapping[str, str | None]) -> None:
    """Raise a `ValueError` if what a recipe reads, by its keys, lies in the folder of the run it replaces."""
    for key, name in needed.items():
        if name is not None and Path(name).expanduser().resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"{key} is {name}, which --overwrite would delete with the run it lies in: copy it first"
            )


def require_same_recipe(folder: Path, recipe: Any, keys: tuple[str, ...]) -> None:
    """Raise a `ValueError` if the recipe in a folder has another value for one of the dotted keys."""
    if not (folder / RECIPE).exists():
        return
    earlier, present = read_document((folder / RECIPE).read_text(encoding="utf-8")), recipe_data(recipe)
    for key in keys:
        if value_of(earlier, key) != value_of(present, key):
            raise ValueError(
                f"{key} of the recipe is not what {folder / RECIPE} says: use that again, start over with "
                "--overwrite, or choose another folder with output=..."
            )


def value_of(data: dict[str, Any], dotted: str) -> Any:
    """Look up a dotted key in nested dictionaries; what is missing is `None`."""
    value: Any = data
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
