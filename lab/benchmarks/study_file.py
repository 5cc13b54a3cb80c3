"""What the YAML file of a study holds.

    settings       what `--set` changes, and every `$name` in the file
    trial          settings of `--smoke`
    samples        parts of texts, which `$name` names as well
    parts          rows x seeds, each with its training, its judges and its table

A text that is nothing but `$name` becomes the setting's value, and a list among rows or overrides is
continued by what it holds. A row's fields, `seed`, `all_seeds` (a list), `row`, `folder` and, for judges,
`model` are filled in when the row is trained or judged.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Literal

from tercet.configs.recipe import parse_recipe, read_overrides, read_recipe


@dataclass(frozen=True)
class Row:
    """What is compared with the others."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    """Of the table, of verdicts and of `$name`."""
    overrides: tuple[str, ...] = ()
    """Of its training; `HALF` and `FIFTH` are a half and a fifth of the steps."""
    judges: tuple[str, ...] | None = None
    """All of the part if left out."""


@dataclass(frozen=True)
class Training:
    """How the model of a row comes about."""

    recipe: str = ""
    overrides: tuple[str, ...] = ()
    """If none of them has `$seed`, one model is trained."""
    tokens: int | None = None
    """That every model trains on; or else `steps`."""
    steps: int | None = None
    command: Literal["pretrain", "untrained"] = "pretrain"
    """`untrained` builds a model: its overrides name `config`, `tokenizer` and the rows of a `text`."""


@dataclass(frozen=True)
class Judge:
    """One way to judge a model, and how its score is shown."""

    kind: str
    """A key of `JUDGES` in `judges.py`."""
    title: str
    recipe: str = ""
    overrides: tuple[str, ...] = ()
    limits: dict[str, int | None] = field(default_factory=dict)
    """Split of the data -> rows at most, drawn at random."""
    convert: str = ""
    """The member that the model is converted to first."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the kind reads besides."""
    shown: str = "{:.1f}"
    scale: float = 100.0
    is_higher_better: bool = True
    among: str = ""
    """Field of rows: scores of rows that differ in it mean different things."""


@dataclass(frozen=True)
class Table:
    """How rows are shown. Format strings read the fields of rows, and what trainings gave."""

    columns: dict[str, str]
    style: Literal["interval", "spread", "difference", "best"] = "spread"
    """How scores are shown; see `STYLES` in `standings.py`."""
    note: str = ""
    """A sentence above, which reads the settings and the first row."""
    guess: Literal["none", "guess", "best baseline"] = "none"
    """A first row for what needs no attention, or no model."""
    verdicts: tuple[str, ...] = ()
    """The field that tells which rows have verdicts together, and its values."""
    alignment: str = "lr"


@dataclass(frozen=True)
class Part:
    """Rows that are judged alike."""

    name: str
    rows: tuple[Row, ...]
    judges: dict[str, Judge]
    table: Table
    train: Training | None = None
    """Left out where judges find finished models, or train some."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Fields of rows that do not have them."""


@dataclass(frozen=True)
class Sample:
    """The first documents of each file of a text."""

    of: str
    characters: int | None = None
    """Of each file; all if left out."""


@dataclass(frozen=True)
class Study:
    """The file as a whole."""

    parts: tuple[Part, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    trial: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, Sample] = field(default_factory=dict)
    seeds: int = 1


def load_study(path: Path, overrides: Sequence[str] = (), is_trial: bool = False) -> Study:
    """Read a study, and put its settings where they are named.

    Raises:
        ValueError: An unknown key or setting, or a value of the wrong type.
    """
    name, data = read_recipe(path)
    settings = data.setdefault("settings", {})
    settings |= data.get("trial", {}) if is_trial else {}
    known = {*settings}
    read_overrides([f"settings.{each}" for each in overrides], data)
    if unknown := settings.keys() - known:
        raise ValueError(f"study {name} has no setting {', '.join(unknown)}; it has {', '.join(known)}")
    for key in ("samples", "parts"):
        data[key] = _put(data.get(key, {}), settings)
    try:
        return parse_recipe(Study, data)
    except ValueError as error:
        raise ValueError(f"study {name}: {error}") from None


def filled(text: str, variables: Mapping[str, Any]) -> str:
    """Put variables into a text.

    Raises:
        ValueError: There is no such variable.
    """
    try:
        return Template(text).substitute({name: _shown(each) for name, each in variables.items()})
    except KeyError as error:
        raise ValueError(f"{text!r} names ${error.args[0]}; there are {', '.join(variables)}") from None


def _put(value: Any, settings: Mapping[str, Any]) -> Any:
    """Put settings into plain data, wherever a text names them; what else is named is left."""
    if isinstance(value, Mapping):
        return {key: _put(each, settings) for key, each in value.items()}
    if isinstance(value, list):
        put = [_put(each, settings) for each in value]
        return [each for one in put for each in (one if isinstance(one, list) else [one])]
    if not isinstance(value, str):
        return value
    if value.startswith("$") and value[1:] in settings:
        return _put(settings[value[1:]], settings)
    return Template(value).safe_substitute({name: _shown(each) for name, each in settings.items()})


def _shown(value: Any) -> Any:
    """Write a value as YAML has it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else value
