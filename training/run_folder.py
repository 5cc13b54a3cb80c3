"""When a run may write its folder: the one rule of all commands.

A fresh run finds nothing there, or what it was prepared with. `--resume` goes on with an earlier run of the
same recipe, and `--overwrite` renames one. Nothing that the run reads lies in what it writes
(`ownership.py`), and nobody else writes there meanwhile (`data/files/locks.py`). A run that is killed while
it writes leaves `.NAME.partial`, which the next one deletes.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import broadcast_object_list

from ..configs.documents import read_document, write_document
from ..configs.hashes import hash_of_model
from ..configs.model_paths import MODEL as MODEL
from ..configs.named_files import require_own_contents
from ..configs.recipe import recipe_data
from ..data.files.atomic_writes import explaining_a_full_disk, replace_text
from ..data.files.locks import occupied
from ..data.steps.exchange import is_restarted, wait_for_everyone
from .ownership import (
    Input,
    earlier_models,
    is_ours,
    mark,
    paths_of,
    previous_of,
    require_apart,
    require_unused,
    set_aside,
    share_weights,
    visible,
)

RECIPE = "recipe.yaml"
"""What a run does, in its folder."""
EVALUATION = "evaluation.json"
"""Scores of the finished model, for its card."""
TEXTS = "texts.json"
"""Names, sizes and hashes of what was read."""
REVISIONS = "revisions"
"""Folder of intermediate models."""
SCORES = "scores.json"
"""All scores of a task's runs."""
CURVES = "curves.png"
MARKDOWN = "report.md"
PAGE = "report.html"

REMEDY = "continue with --resume; what was written before is whole"
"""What to do where the system does not write."""
AGAIN = "start again with --overwrite"
"""The same of a run that cannot be resumed."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, and what the run reads, which decides whether it may begin.

    Keys are those of the recipe, with dots.
    """

    recipe: Any
    """Names the folder."""
    models: Sequence[str]
    """Keys of the models, tokenizers and caches that are read."""
    texts: Sequence[str]
    """Keys of the corpora and rows that are read."""
    kept: Sequence[str] = ()
    """Keys that a resumed run may not change; of a run that cannot be resumed, there are none."""
    prepared: Sequence[str] = ()
    """What a fresh run may find."""
    needed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What was prepared -> keys on which it depends."""

    @cached_property
    def folder(self) -> Path:
        return self.recipe.folder

    def require_claimable(self, *, resume: bool, overwrite: bool) -> None:
        """Make sure that `take` can do its part; nothing is changed."""
        folders = [self.folder, *([previous_of(self.folder)] if overwrite else [])]
        require_apart(folders, self.inputs((*self.models, *self.texts)))
        self.require_unused(resume=resume, overwrite=overwrite)
        if not overwrite:
            require_own_contents(self.folder)
        if not overwrite and (self.folder / RECIPE).exists():
            if resume:
                self.require_same_recipe(self.kept)
                self.require_same_models()
            for name, keys in self.needed.items():
                if (self.folder / name).exists():
                    self.require_same_recipe(keys)

    def take(self, *, resume: bool, overwrite: bool) -> None:
        """Take the folder that `require_claimable` has found to be free, and write the recipe into it."""
        self.require_unused(resume=resume, overwrite=overwrite)
        folder = self.folder.resolve()
        if overwrite and visible(folder):
            set_aside(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if is_ours(folder):
            for path in folder.iterdir():
                if path.match(".*.partial") or path.match(".*.deleted"):
                    delete(path)
        mark(folder, self.hashes() | (earlier_models(folder) if resume else {}))
        write_recipe(self.recipe, folder)

    def inputs(self, keys: Sequence[str]) -> dict[str, Input]:
        """Look up what the recipe names under keys; splits of a data set of the Hub are no files.

        A part of a recipe that has a method `resolve` says by it where the files that it names lie.
        """
        found: dict[str, Input] = {}
        for key in keys:
            part, value = value_of(self.recipe, key.rpartition(".")[0]), value_of(self.recipe, key)
            if value is not None and getattr(part, "dataset", None) is None:
                found[key] = part.resolve(value) if hasattr(part, "resolve") else value
        return found

    def hashes(self) -> dict[str, str]:
        """Hash the folders of models that may not change, by the keys that name them."""
        keys = [key for key in self.models if any(f"{key}.".startswith(f"{kept}.") for kept in self.kept)]
        folders = {key: [*filter(Path.is_dir, paths_of(value))] for key, value in self.inputs(keys).items()}
        return {key: " ".join(map(hash_of_model, paths)) for key, paths in folders.items() if paths}

    def require_same_models(self) -> None:
        """Raise a `ValueError` if a folder has another model than the one that the run there began with."""
        earlier = earlier_models(self.folder)
        for key, present in self.hashes().items():
            if earlier.get(key, present) != present:
                raise ValueError(
                    f"{key} is {value_of(self.recipe, key)}, which holds another model than the one that the "
                    f"run in {self.folder} began with: bring that back, start over with --overwrite, or "
                    "choose another folder with output=..."
                )

    def require_unused(self, *, resume: bool, overwrite: bool) -> None:
        options = {"resume": resume, "overwrite": overwrite, "is_resumable": bool(self.kept)}
        require_unused(self.folder, self.prepared, **options)

    def require_same_recipe(self, keys: Sequence[str]) -> None:
        """Raise a `ValueError` if the recipe in the folder has another value for one of the dotted keys."""
        file = self.folder / RECIPE
        earlier, present = read_document(file.read_text(encoding="utf-8")), recipe_data(self.recipe)
        for key in keys:
            if value_of(earlier, key) != value_of(present, key):
                raise ValueError(
                    f"{key} of the recipe differs from {file}: use the same value, start over with "
                    f"--overwrite, or choose another folder with output=..."
                )


@dataclass(frozen=True)
class Run:
    """A run that holds its folder: what it may do there, and the processes that take part in it."""

    output: RunFolder
    """Its folder."""
    resume: bool
    """Whether it goes on with an earlier run there."""
    overwrite: bool
    """Whether it may replace an earlier run there."""
    processes: PartialState | None = None
    """Those of the launch, if it may have several."""

    @property
    def folder(self) -> Path:
        return self.output.folder

    @contextmanager
    def together(self) -> Iterator[bool]:
        """Wait for all processes before and after what is inside; yield whether this is the main one."""
        wait_for_everyone()
        yield self.processes is None or self.processes.is_main_process
        wait_for_everyone()

    def take(self) -> None:
        """Take the folder, once nothing of what the run reads can be wrong any more."""
        self.output.take(resume=self.resume, overwrite=self.overwrite)


@contextmanager
def running(
    output: RunFolder, *, resume: bool, overwrite: bool, processes: PartialState | None = None
) -> Iterator[Run]:
    """Hold the folder of a run, and make sure that the run may write there; nothing is changed yet.

    A run that torchrun starts again goes on, whatever the options say.
    """
    with writing(output.folder, processes, REMEDY if output.kept else AGAIN):
        if is_restarted():
            resume, overwrite = True, False
        output.require_claimable(resume=resume, overwrite=overwrite)
        yield Run(output, resume, overwrite, processes)


@contextmanager
def writing(folder: Path, processes: PartialState | None = None, remedy: str = REMEDY) -> Iterator[None]:
    """Hold a run's folder for as long as the run lives; in the end, others may read its weights.

    Args:
        processes: Those of the launch, if it may have several; all of them call this, and one holds the lock.
        remedy: What to do where the system does not write.
    """
    with ExitStack() as stack:
        problem = None
        if processes is None or processes.is_main_process:
            try:
                stack.enter_context(occupied(folder))
                stack.callback(share_weights, folder)
            except ValueError as error:
                problem = str(error)
        if processes is not None:
            problem = broadcast_object_list([problem])[0]
        if problem is not None:
            raise ValueError(problem)
        stack.enter_context(explaining_a_full_disk(folder, None, remedy))
        yield


def write_recipe(recipe: object, folder: Path) -> None:
    replace_text(folder / RECIPE, write_document(recipe_data(recipe)))


def delete(path: Path) -> None:
    """Delete a file, a link or a folder, if it is there."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def value_of(data: dict[str, Any], dotted: str) -> Any:
    """Look up a dotted key in nested dictionaries or dataclasses; what is missing is `None`."""
    value: Any = data
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, dict) else getattr(value, key, None)
    return value
