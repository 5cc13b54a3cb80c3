"""What can be answered before torch is imported, which takes seconds: wrong names, keys and columns, missing
models and files.

A command's recipe is read as plain data. Its keys are compared with the source of the dataclass that it must
have the shape of (`configs/source_shapes.py`). Values are checked later, by the dataclass itself.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from .configs.checking import check_keys
from .configs.recipe import read_recipe, recipe_folders
from .configs.source_shapes import field_names, read_shape
from .training.model_paths import RUNS, require_path


@dataclass(frozen=True)
class Kind:
    """A kind of recipe."""

    folder: str
    """Where its shipped recipes are, below `configs/`."""
    module: str
    """Where its dataclass is defined."""
    dataclass: str
    """The dataclass."""
    article: str
    """Its name in a sentence."""

    @property
    def shape(self) -> Any:
        """Its keys, as a dataclass."""
        return read_shape(self.module, self.dataclass)


KINDS = {
    "pretrain": Kind("pretraining", "tercet.pretraining.recipe", "PretrainingRecipe", "a pretraining recipe"),
    "finetune": Kind("finetune", "tercet.finetune.recipe", "FineTuningRecipe", "a fine-tuning recipe"),
    "distill": Kind("distill", "tercet.distill.recipe", "DistillationRecipe", "a distillation recipe"),
    "fewshot": Kind("fewshot", "tercet.fewshot.recipe", "FewShotRecipe", "a few-shot recipe"),
}
"""Kinds of recipes by the command that runs them."""

READS = {"tokenizer": "pretrain", "verify-resume": "pretrain", "plan": "pretrain"}
"""Other commands that take a recipe: the command whose kind it is."""

CONFIGURATIONS = {
    "TercetEncoderConfig": "configuration_tercet",
    "TercetDecoderConfig": "configuration_tercet",
    "TercetSeq2SeqConfig": "configuration_tercet",
    "TercetCharacterConfig": "configuration_character",
    "TercetElmoConfig": "configuration_elmo",
    "TercetRecurrentSeq2SeqConfig": "configuration_recurrent",
    "TercetTaggerConfig": "configuration_tagger",
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


def check_early(options: Namespace) -> None:
    """Refuse what is wrong with a command's recipe or model, as far as this is known without torch.

    Raises:
        ValueError: Unknown recipe, one of another kind, an unknown key, or rows without a needed column.
        FileNotFoundError: A named file or model is not there.
    """
    if "recipe" in options:
        overrides = list(options.overrides)
        if options.command == "plan":
            overrides = check_machines(overrides)
        check_recipe(options.command, options.recipe, overrides)
    for named in ("model", "folder", "source"):
        models = getattr(options, named, None) or ()
        for model in [models] if isinstance(models, str) else models:
            require_output(model)
            require_path(model)
    if options.command == "predict" and options.file != "-":
        from .text.record_files import find_file

        find_file(options.file)


def check_recipe(command: str, source: str, overrides: Iterable[str]) -> None:
    """Check the name and the keys of a command's recipe, and that the runs and rows it names are there."""
    own = READS.get(command, command)
    if (shipped := command_of(source)) not in (None, own):
        raise ValueError(wrong_kind(source, str(shipped), command))
    name, data = read_recipe(source, overrides, kind=KINDS[own].folder)
    shape = KINDS[own].shape
    if not shipped and (better := other_kind(own, data)):
        raise ValueError(wrong_kind(source, better, command))
    try:
        check_common_mistakes(data, shape)
        check_keys(shape, data)
    except ValueError as error:
        raise ValueError(f"recipe {name}: {error}") from None
    for key, path in named_paths(data):
        require_output(path, f"recipe {name}: {key} = ")
        if key in MODEL_KEYS:
            require_path(path)
    if own == "finetune":
        from .early_rows import check_rows  # pydantic and pyarrow take a moment, too

        check_rows(data)


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


def other_kind(command: str, data: dict[str, Any]) -> str | None:
    """Find the one other command whose recipes have all of the keys, if this one's do not have them."""
    fitting = [name for name, kind in KINDS.items() if set(data) <= names_in(kind.shape)]
    return fitting[0] if len(fitting) == 1 and fitting[0] != command else None


def names_in(shape: Any) -> set[str]:
    """Name the keys at the top of a recipe."""
    return {field.name for field in fields(shape)}


def check_common_mistakes(data: dict[str, Any], shape: Any) -> None:
    """Answer keys that are no recipe's, but that say clearly what is meant.

    Raises:
        ValueError: A key chooses a device, or is a field of the model's configuration.
    """
    known = names_in(shape)
    part = next((name for name in WITH_OVERRIDES if name in known), None)
    named = {(key,): value for key, value in data.items() if key not in known}
    for above in {"training", *WITH_OVERRIDES} & data.keys():
        inner = data[above] if isinstance(data[above], dict) else {}
        named |= {(above, key): value for key, value in inner.items()}
    for (*above, key), value in named.items():
        if key in DEVICE_KEYS:
            raise ValueError(f"{'.'.join([*above, key])} = {value}: {DEVICES}")
        if part and above in ([], [part]) and is_configured(key) and key not in all_names(shape):
            raise ValueError(
                f"{'.'.join([*above, key])} = {value}: unknown key; did you mean {part}.overrides.{key}?"
            )


def is_configured(key: str) -> bool:
    """Return whether a key is a field of a model's configuration."""
    classes = CONFIGURATIONS.items()
    return any(key in field_names(f"tercet.modeling.{module}", name) for name, module in classes)


def all_names(shape: Any) -> set[str]:
    """Name the keys at the top of a recipe and of its parts, for which others have better suggestions."""
    parts = [field.type for field in fields(shape) if is_dataclass(field.type)]
    return names_in(shape).union(*map(names_in, parts))


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

    of_recipe, of_machines = split_overrides(overrides, names_in(KINDS["pretrain"].shape))
    read_machines(of_machines)
    return of_recipe
