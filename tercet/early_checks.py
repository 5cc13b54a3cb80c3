"""What is answered before torch is imported, which takes seconds: wrong keys, values, columns, files.

A command's recipe is built from its dataclass as the command itself builds it, but by modules that were
imported without heavy libraries (`configs/stand_ins.py`). What takes a model or a tokenizer to know is
checked later.
"""

import os
import warnings
from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from .configs.recipe import load_preset, parse_recipe, read_recipe, recipe_folders
from .configs.stand_ins import without_libraries
from .training.model_paths import RUNS, require_path


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

    def output(self, recipe: Any) -> Any:
        """Return the folder of a run, and what decides whether the run may write there."""
        return import_module(f".{self.folder}.output", __package__).run_folder(recipe)


KINDS = {
    "pretrain": Kind("pretraining", "PretrainingRecipe", "a pretraining recipe"),
    "finetune": Kind("finetune", "FineTuningRecipe", "a fine-tuning recipe"),
    "distill": Kind("distill", "DistillationRecipe", "a distillation recipe"),
    "fewshot": Kind("fewshot", "FewShotRecipe", "a few-shot recipe"),
}
"""Kinds of recipes by the command that runs them."""

READS = {"tokenizer": "pretrain", "verify-resume": "pretrain", "plan": "pretrain"}
"""Other commands that take a recipe: the command whose kind it is."""

CONFIGURATIONS = {
    "TercetEncoderConfig": "configuration_tercet",
    "TercetDecoderConfig": "configuration_tercet",
    "TercetSeq2SeqConfig": "configuration_tercet",
    "TercetCharacterConfig": "recurrent.configurations",
    "TercetElmoConfig": "recurrent.configurations",
    "TercetRecurrentSeq2SeqConfig": "recurrent.configurations",
    "TercetTaggerConfig": "recurrent.configurations",
}
"""Classes whose fields `model.overrides` may name, and the modules of `modeling/` that define them."""

WITH_OVERRIDES = ("model", "student")
"""Parts of recipes that have `overrides` of a configuration."""

DEVICE_KEYS = frozenset(
    {
        "device",
        "devices",
        "gpu",
        "gpus",
        "cuda",
        "cpu",
        "num_gpus",
        "n_gpu",
        "use_cpu",
        "no_cuda",
        "device_map",
    }
)
"""Keys by which people try to choose a device."""

DEVICES = (
    "is no key, because a run takes the GPU if there is one: CUDA_VISIBLE_DEVICES=1 chooses which, "
    "ACCELERATE_USE_CPU=true computes on the CPU, and `accelerate launch -m tercet ...` takes several"
)

MODEL_KEYS = (
    "model.path",
    "model.tagger.beside",
    "student.path",
    "general.teacher",
    "task.teacher",
    "models",
)
"""Keys that name models: their folders, or their repositories on the Hub."""

WRITTEN = "output"
"""The key whose path need not exist."""

SPLITS = ("train", "validation", "test", "demonstrations")
"""Keys that name files of rows."""


def check_early(options: Namespace) -> None:
    """Refuse what is wrong with a command's recipe, model or folder, as far as this is known without torch.

    Raises:
        ValueError: Unknown recipe, one of another kind, an unknown key, an impossible value, rows without a
            needed column, or an output folder that may not be written.
        FileNotFoundError: A named file or model is not there.
    """
    for named in ("model", "folder", "source"):
        models = getattr(options, named, None) or ()
        for model in [models] if isinstance(models, str) else models:
            require_output(model)
            require_path(model)
    if "recipe" in options:
        with without_libraries():
            tables = check_recipe(options)
        if tables:
            from .text.record_files import require_columns_early

            for source, columns in tables:
                require_columns_early(source, columns)
    if options.command == "predict" and options.file != "-":
        from .text.record_files import find_file

        find_file(options.file)


def check_recipe(options: Namespace) -> list[tuple[str, tuple[str, ...]]]:
    """Check a command's recipe, what it names, and its folder; return the files of rows and their columns."""
    command, source, overrides = options.command, options.recipe, list(options.overrides)
    kind = kind_of(command)
    if command == "plan":
        overrides = check_machines(overrides)
    shipped = command_of(source)
    if shipped not in (None, READS.get(command, command)):
        raise ValueError(wrong_kind(source, str(shipped), command))
    name, data = read_recipe(source, overrides, kind=kind.folder)
    if not shipped and (better := other_kind(kind, data)):
        raise ValueError(wrong_kind(source, better, command))
    try:
        check_common_mistakes(data, kind.recipe)
        recipe = parse_recipe(kind.recipe, data)
    except ValueError as error:
        raise ValueError(f"recipe {name}: {error}") from None
    for key, path in named_paths(data):
        require_output(path, f"recipe {name}: {key} = ")
        if key in MODEL_KEYS:
            require_path(path)
    if preset := getattr(getattr(recipe, "model", None), "preset", None):
        check_overrides(recipe.model.overrides, load_preset(preset)["model_type"])
    for part in parts_of(recipe):
        check_part(part, reads_text=command != "plan")
    if "overwrite" in options and not getattr(options, "explain", False):
        check_folder(kind.output(recipe), options)
    return list(tables_of(recipe))


def check_overrides(overrides: Iterable[str], model_type: str) -> None:
    """Refuse a name that is nearly that of a field of ours; which fields are transformers' is known later."""
    cls = next(cls for cls in map(configuration, CONFIGURATIONS) if cls.model_type == model_type)
    for name in overrides:
        if name not in fields_of(cls) and (near := get_close_matches(name, fields_of(cls), n=3, cutoff=0.8)):
            raise ValueError(
                f"model.overrides.{name} is not a field of {cls.__name__}: did you mean {' or '.join(near)}?"
            )


def check_folder(output: Any, options: Namespace) -> None:
    """Refuse a folder that a fresh run may not write; what goes on or is running there comes later."""
    from .training.lock import LOCK

    is_main_process = os.environ.get("RANK", "0") == "0"  # others may come when the folder is written already
    is_resumed = getattr(options, "resume", False)
    if is_main_process and not is_resumed and not (output.folder / LOCK).exists():
        output.require_claimable(resume=False, overwrite=options.overwrite)


def tables_of(recipe: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the files of rows that a recipe names, each with the columns that are known to be needed."""
    for part in parts_of(recipe):
        if getattr(part, "dataset", "") is None:
            resolve = getattr(part, "resolve", lambda file: file)
            columns = getattr(recipe.task, "columns", ())
            for split in SPLITS:
                file = getattr(part, split, None)
                if file is not None and not file.endswith(".txt"):  # a plain text has no columns
                    yield resolve(file), columns


def parts_of(recipe: Any) -> Iterator[Any]:
    """Yield a recipe and all dataclasses in it."""
    yield recipe
    for field in fields(recipe):
        if is_dataclass(value := getattr(recipe, field.name)):
            yield from parts_of(value)


def check_part(part: Any, *, reads_text: bool) -> None:
    """Check a part of a recipe: what it says of training is consistent, and a text that is read is there.

    Raises:
        ValueError: Values do not fit each other, or a text cannot be one.
        FileNotFoundError: A text that is named by its path is not there.
    """
    from .pretraining.recipe import CorpusRecipe
    from .text.documents import open_documents
    from .training.recipe import TrainingRecipe
    from .training.stages import require_consistent

    if isinstance(part, TrainingRecipe):
        require_consistent(part)
    if isinstance(part, CorpusRecipe) and reads_text:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who reads the text warns
            for source in (part.train, part.validation):
                if source != "documentation":
                    open_documents(source)


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
    return f"recipe {source} is {kind}: run `tercet {right} {source}`"


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
    """Answer keys that are no recipe's, but that say clearly what is meant.

    Raises:
        ValueError: A key chooses a device, or is a field of the model's configuration.
    """
    known = names_in(cls)
    part = next((name for name in WITH_OVERRIDES if name in known), None)
    named = {(key,): value for key, value in data.items() if key not in known}
    for above in {"training", *WITH_OVERRIDES} & data.keys():
        inner = data[above] if isinstance(data[above], dict) else {}
        named |= {(above, key): value for key, value in inner.items()}
    for (*above, key), value in named.items():
        if key in DEVICE_KEYS:
            raise ValueError(f"{'.'.join([*above, key])} = {value}: {DEVICES}")
        if part and above in ([], [part]) and is_configured(key) and key not in all_names(cls):
            raise ValueError(
                f"{'.'.join([*above, key])} = {value}: unknown key; did you mean {part}.overrides.{key}?"
            )


def is_configured(key: str) -> bool:
    """Return whether a key is a field of a model's configuration."""
    return any(key in fields_of(configuration(name)) for name in CONFIGURATIONS)


def configuration(name: str) -> Any:
    """Find the class of a configuration of ours."""
    return getattr(import_module(f".modeling.{CONFIGURATIONS[name]}", __package__), name)


def fields_of(cls: type) -> list[str]:
    """Name the fields of a configuration that are ours."""
    return [name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())]


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


def require_output(name: str, said: str = "") -> None:
    """Refuse a missing path below the output folder of a shipped recipe, or of the demo, with the way to it.

    Raises:
        FileNotFoundError: The recipe has not run.
    """
    parts = Path(name).parts
    if len(parts) < 2 or parts[0] != RUNS or Path(name).exists():
        return
    command = "demo" if parts[1] == "demo" else command_of(parts[1])
    if command is not None:
        run = command if command == "demo" else f"{command} {parts[1]}"
        raise FileNotFoundError(f"{said}{name} does not exist yet: run `tercet {run}` first")


def check_machines(overrides: list[str]) -> list[str]:
    """Check what describes the machines of a plan, and return the overrides of its recipe."""
    from .planning.machines import read_machines, split_overrides

    of_recipe, of_machines = split_overrides(overrides, names_in(KINDS["pretrain"].recipe))
    read_machines(of_machines)
    return of_recipe
