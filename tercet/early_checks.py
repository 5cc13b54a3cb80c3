"""What is answered before torch is imported, which takes seconds: wrong keys, values, columns, files.

A command's recipe is built from its dataclass as the command itself builds it, but by modules that were
imported without heavy libraries (`configs/stand_ins.py`). What takes a model or a tokenizer to know is
checked later.
"""

import json
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .configs.recipe import adapter_of, load_preset, parse_recipe, read_recipe, recipe_folders
from .configs.stand_ins import without_libraries
from .early_models import (
    CONFIGURATIONS,
    check_configuration,
    check_model,
    check_output,
    configuration,
    fields_of,
    require_known,
)
from .training.model_paths import RUNS, TASK, require_folder


@dataclass(frozen=True)
class Kind:
    """A kind of recipe."""

    folder: str
    """The folder of its modules, and below `configs/` of its shipped recipes."""
    name: str
    """The dataclass, in the module `recipe` of the folder of the same name."""
    article: str
    """Its name in a sentence."""

    @property
    def recipe(self) -> Any:
        """Its dataclass."""
        return getattr(import_module(f".{self.folder}.recipe", __package__), self.name)

    def run(self, command: str) -> Callable[..., Any]:
        """Return the function that carries a recipe out."""
        return getattr(import_module(f".{self.folder}.run", __package__), command)

    def output(self, recipe: Any) -> Any:
        """Return the folder of a run, and what decides whether the run may write there."""
        return import_module(f".{self.folder}.output", __package__).run_folder(recipe)


KINDS = {
    "pretrain": Kind("pretraining", "PretrainingRecipe", "a pretraining recipe"),
    "prepare": Kind("preparation", "PreparationRecipe", "a preparation recipe"),
    "finetune": Kind("finetune", "FineTuningRecipe", "a fine-tuning recipe"),
    "distill": Kind("distill", "DistillationRecipe", "a distillation recipe"),
    "fewshot": Kind("fewshot", "FewShotRecipe", "a few-shot recipe"),
}
"""Kinds of recipes by the command that runs them."""

READS = {"tokenizer": "pretrain", "verify-resume": "pretrain", "plan": "pretrain"}
"""Other commands that take a recipe: the command whose kind it is."""

WITH_OVERRIDES = ("model", "student")
"""Parts of recipes that have `overrides` of a configuration."""

MODEL_KEYS = (
    "model.path",
    "model.tagger.beside",
    "student.path",
    "general.teacher",
    "task.teacher",
    "models",
)
"""Keys that name models: their folders, or their repositories on the Hub."""

LOADING_NOTHING = ("plan", "prepare", "tokenizer", "push")
"""Commands that load no model from the Hub."""

WRITTEN = "output"
"""The key whose path need not exist."""

SMALL = 2**22
"""Bytes of a table that is read in a moment, and may be read twice."""

SPLITS = ("train", "validation", "test", "demonstrations")
"""Keys that name files of rows."""


def check_models(options: Namespace) -> None:
    """Refuse models or folders of a command line that cannot be there.

    Raises:
        FileNotFoundError: One is not.
    """
    named = [getattr(options, name, None) or () for name in ("model", "folder", "source", "decoder")]
    models = [model for given in named for model in ([given] if isinstance(given, str) else given)]
    for model in models:
        require_output(model)
        if not getattr(options, "checkpoints", False):  # of a run that need not have ended
            check_model(options.command, model)
    check_output(options)
    if options.command not in LOADING_NOTHING and getattr(options, "revision", None) is None:
        for model in models:
            require_known(model)


def check_rows(model: str, source: str) -> None:
    """Refuse a file of rows that lacks a column which a fine-tuned model reads.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It lacks a column, or can have none.
    """
    from .text.record_files import find_file, require_columns_early

    find_file(source)
    if (file := Path(model).expanduser() / TASK).exists():  # one of the Hub is not here yet
        with without_libraries():
            from .finetune.task_recipes import TaskRecipe

            recipe = adapter_of(TaskRecipe).validate_python(
                json.loads(file.read_text(encoding="utf-8"))["task"]
            )
        require_columns_early(source, recipe.input_columns)


def models_of(command: str, source: Any, overrides: Sequence[str]) -> list[str]:
    """List the models that a command's recipe names, but for those of a branch or a commit."""
    if command in LOADING_NOTHING:
        return []
    _, data = read_recipe(source, overrides, kind=kind_of(command).folder)
    is_main = "revision" not in (data.get("model") or {})
    return [path for key, path in named_paths(data) if key in MODEL_KEYS and is_main]


def check_recipe(
    command: str,
    source: Any,
    overrides: Sequence[str] = (),
    *,
    writes: bool = False,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Refuse what is wrong with a command's recipe and its folder, as far as this is known without torch.

    Args:
        command: Reads the recipe.
        source: Its name or path, its plain data, or a recipe that was built.
        overrides: `key=value`, with dotted keys.
        writes: Whether the command writes into the recipe's folder, and then:
        resume: Whether it goes on with an earlier run there.
        overwrite: Whether it replaces one.

    Raises:
        ValueError: Unknown recipe, one of another kind, an unknown key, an impossible value, rows without a
            needed column, or an output folder that may not be written.
        FileNotFoundError: A named file or model is not there.
    """
    with without_libraries():
        recipe = check_values(command, source, list(overrides))
        texts = [] if command == "plan" else [*first_files(recipe)]
        if writes:
            check_folder(kind_of(command).output(recipe), resume=resume, overwrite=overwrite)
        tables = list(tables_of(recipe))
    if tables or texts:
        from .text.record_files import naming_keys, require_columns_early, require_text_early

        for file in texts:
            require_text_early(file)
        for file, keys in tables:
            with naming_keys(keys):
                require_columns_early(file, list(keys))
    for model in models_of(command, source, overrides):
        require_known(model)
    if command == "finetune" and recipe.data.dataset is None and "torch" not in sys.modules:
        check_small_tables(recipe)


def check_values(command: str, source: Any, overrides: list[str]) -> Any:
    """Check a recipe, and what it names; return it, built without libraries."""
    kind = kind_of(command)
    if command == "plan":
        overrides = check_machines(overrides)
    shipped = command_of(source) if isinstance(source, str) else None
    if shipped not in (None, READS.get(command, command)):
        raise ValueError(wrong_kind(source, str(shipped), command))
    name, data = read_recipe(source, overrides, kind=kind.folder)
    if not shipped and (better := other_kind(kind, data)):
        raise ValueError(wrong_kind(name, better, command))
    try:
        check_common_mistakes(data, kind.recipe)
        recipe = parse_recipe(kind.recipe, data)
    except ValueError as error:
        raise ValueError(f"recipe {name}: {error}") from None
    for key, path in named_paths(data):
        require_output(path, f"recipe {name}: {key} = ", another_model(kind, key, path))
        if key in MODEL_KEYS:
            require_folder(path)
    model = getattr(recipe, "model", None)
    if (preset := getattr(model, "preset", None)) and getattr(model, "path", None) is None:
        check_configuration(recipe, load_preset(preset))
    from .training.recipe import TrainingRecipe
    from .training.stages import require_consistent

    for part in parts_of(recipe):
        if isinstance(part, TrainingRecipe):
            require_consistent(part)
    return recipe


def check_folder(output: Any, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that a fresh run may not write; what goes on or is running there comes later."""
    from .training.lock import lock_of

    is_main_process = os.environ.get("RANK", "0") == "0"  # others may come when the folder is written already
    is_known_later = resume or lock_of(output.folder).exists() or "TORCHELASTIC_RUN_ID" in os.environ
    if is_main_process and not is_known_later:
        output.require_claimable(resume=False, overwrite=overwrite)


def check_small_tables(recipe: Any) -> None:
    """Read tables whose rows are read in a moment as the run reads them, and find the labels of one text.

    Bad rows are left to the run, which knows what the task reads.

    Raises:
        ValueError: A table is damaged or has no rows, or its labels are no two.
    """
    from .finetune.labels import find_labels
    from .text.bad_records import RowError
    from .text.bad_rows import no_check
    from .text.rows import read_rows

    data, task = recipe.data, recipe.task
    named = {split: file for split in SPLITS if (file := getattr(data, split, None)) is not None}
    with warnings.catch_warnings(action="ignore"):  # the run warns
        for split, file in named.items():
            if os.path.getsize(Path(file).expanduser()) <= SMALL:
                options = {"on_bad_row": data.on_bad_row, "check": no_check}
                rows = read_rows(file, task.columns, f"data.{split}", **options).rows
                if split == "train" and task.kind == "classification":
                    try:
                        find_labels(rows, task.label, task.label_names)
                    except RowError:
                        pass
                    except ValueError as error:
                        raise ValueError(f"data.train: {error}") from None


def tables_of(recipe: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the files of rows that a recipe names, each with its columns as far as they are known to be
    needed, and the keys that name these.
    """
    for part in parts_of(recipe):
        if getattr(part, "dataset", "") is None:
            columns, keys = getattr(recipe.task, "columns", ()), getattr(recipe.task, "keys", {})
            for split in SPLITS:
                file = getattr(part, split, None)
                if file is not None and not file.endswith(".txt"):  # a plain text has no columns
                    yield file, {column: keys.get(column, "") for column in columns}


def parts_of(recipe: Any) -> Iterator[Any]:
    """Yield a recipe and all dataclasses in it."""
    yield recipe
    for field in fields(recipe):
        if is_dataclass(value := getattr(recipe, field.name)):
            yield from parts_of(value)


def first_files(recipe: Any) -> Iterator[Path]:
    """Yield the first file of every text that a recipe names, if no record of it may be bad.

    Raises:
        ValueError: A text cannot be one.
        FileNotFoundError: A text that is named by its path is not there.
    """
    from .pretraining.recipe import CorpusRecipe, texts_of
    from .text.documents import EMBEDDED, FileDocuments
    from .text.prepared import open_source

    for part in parts_of(recipe):
        for named in (part.train, part.validation) if isinstance(part, CorpusRecipe) else ():
            for source in [text.path for text in texts_of(named)] or [named]:
                if source not in (None, EMBEDDED):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # who reads the text warns
                        documents = open_source(source)
                    if isinstance(documents, FileDocuments) and not part.skip_bad_records:
                        yield documents.files[0]


def kind_of(command: str) -> Kind:
    """Return the kind of recipes that a command takes."""
    return KINDS[READS.get(command, command)]


def command_of(name: str) -> str | None:
    """Return the command that runs a shipped recipe; nothing for other names."""
    folder = recipe_folders().get(name)
    return next((command for command, kind in KINDS.items() if kind.folder == folder), None)


def wrong_kind(source: str, right: str, command: str) -> str:
    """Describe which command a recipe is for."""
    kind = KINDS[right].article
    if command in READS:
        return f"recipe {source} is {kind}; tercet {command} reads {KINDS[READS[command]].article}"
    run = f"call tercet.{right}" if source.startswith("(") else f"run `tercet {right} {source}`"
    return f"recipe {source} is {kind}: {run}"


def other_kind(own: Kind, data: dict[str, Any]) -> str | None:
    """Find the one other command whose recipes have all of the keys, if this one's do not have them."""
    if set(data) <= names_in(own.recipe):
        return None
    fitting = [name for name, kind in KINDS.items() if set(data) <= names_in(kind.recipe)]
    return fitting[0] if len(fitting) == 1 else None


def names_in(recipe: Any) -> set[str]:
    """Name the keys at the top of a recipe, or of a part of one, by its dataclass."""
    return {field.name for field in fields(recipe)}


def check_common_mistakes(data: dict[str, Any], cls: Any) -> None:
    """Answer a key that is no recipe's, but a field of the model's configuration.

    Raises:
        ValueError: The key, and where it belongs.
    """
    known = names_in(cls)
    part = next((name for name in WITH_OVERRIDES if name in known), None)
    if part is None:
        return
    inner = data.get(part)
    named = [(key, key, value) for key, value in data.items() if key not in known]
    named += (
        [(f"{part}.{key}", key, value) for key, value in inner.items()] if isinstance(inner, dict) else []
    )
    for dotted, key, value in named:
        if is_configured(key) and key not in all_names(cls):
            raise ValueError(f"{dotted} = {value}: unknown key; did you mean {part}.overrides.{key}?")


def is_configured(key: str) -> bool:
    """Return whether a key is a field of a model's configuration."""
    return any(key in fields_of(configuration(name)) for name in CONFIGURATIONS)


def all_names(cls: Any) -> set[str]:
    """Name the keys at the top of a recipe and of its parts, for which others have better suggestions."""
    parts = [field.type for field in fields(cls) if is_dataclass(field.type)]
    return names_in(cls).union(*map(names_in, parts))


def named_paths(data: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the text of every value that may be a path which a run reads."""
    if isinstance(data, dict):
        for key, value in data.items():
            if (*above, key) != (WRITTEN,):
                yield from named_paths(value, (*above, str(key)))
    elif isinstance(data, list):
        for value in data:
            yield from named_paths(value, above)
    elif isinstance(data, str):
        yield ".".join(above), data


def require_output(name: str, said: str = "", another: str = "") -> None:
    """Refuse a missing path below the output folder of a shipped recipe, or of the demo, with the way to it.

    Args:
        name: The path.
        said: What the message begins with.
        another: What it ends with: what may be named instead.

    Raises:
        FileNotFoundError: The recipe has not run.
    """
    parts = Path(name).parts
    if len(parts) < 2 or parts[0] != RUNS or Path(name).exists():
        return
    command = "demo" if parts[1] == "demo" else command_of(parts[1])
    if command is not None:
        run = command if command == "demo" else f"{command} {parts[1]}"
        raise FileNotFoundError(f"{said}{name} does not exist yet: run `tercet {run}` first{another}")


ON_THE_HUB = {
    "tercet_encoder": "google-bert/bert-base-uncased",
    "tercet_decoder": "HuggingFaceTB/SmolLM-135M",
    "tercet_seq2seq": "facebook/bart-base",
}
"""Member -> a model of the Hub that may stand in its place."""

TO_FINE_TUNE = ON_THE_HUB | {"tercet_encoder": "sentence-transformers/all-MiniLM-L6-v2"}
"""The same where a task is learned: a small one."""


def another_model(kind: Kind, key: str, path: str) -> str:
    """Say which other model may stand under a key that names the model of a shipped recipe, or any model."""
    if key not in MODEL_KEYS:
        return ""
    recipe = next(iter(Path(path).parts[1:2]), "")
    preset = read_recipe(recipe)[1]["model"].get("preset") if command_of(recipe) == "pretrain" else None
    known = TO_FINE_TUNE if kind.folder == "finetune" else ON_THE_HUB
    model = known.get(load_preset(preset)["model_type"]) if preset else None
    if model and key.endswith(("path", "teacher")):  # others list models
        return f", or set {key}={model}, or another model"
    return ", or name another model, such as one of the Hub"


def check_machines(overrides: list[str]) -> list[str]:
    """Check what describes the machines of a plan, and return the overrides of its recipe."""
    from .planning.machines import read_machines, split_overrides

    of_recipe, of_machines = split_overrides(overrides, names_in(KINDS["pretrain"].recipe))
    read_machines(of_machines)
    return of_recipe
