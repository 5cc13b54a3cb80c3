"""What is answered before torch is imported: wrong keys and values, missing files and models, used folders.

Keys and values are checked by the schema of recipes, as a run checks them. What else is asked here, the run
asks by the same functions. What takes a model, a tokenizer or several keys to know is answered by the run.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .configs.messages import first_line
from .configs.model_paths import CONFIG, RUNS, read_task, require_folder, unknown_model
from .configs.named_files import named_path
from .configs.recipe import load_preset, read_overrides, read_recipe, split_overrides, wrong_member
from .configs.schema import Schema, no_field, schema_of, shipped
from .data.files.locks import lock_of
from .kinds import Kind, command_of, kind_of, other_kind, recipe_of, wrong_kind
from .training.ownership import require_unused

if TYPE_CHECKING:
    from .plain_parts import PlainTask

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

SMALL = 2**22
"""Bytes of a table that is read in a moment, and may be read twice."""

SPLITS = ("train", "validation", "test", "demonstrations")
"""Keys that name files of rows."""

NEAR = 0.8
"""How much a name is like that of a field of ours, at least, to be taken for it: others are transformers'."""

Data = dict[str, Any]
"""A recipe, or a part of one, as plain data."""


def check_recipe(
    command: str,
    source: Any,
    overrides: Sequence[str] = (),
    *,
    writes: bool = False,
    resume: bool = False,
    overwrite: bool = False,
) -> Data:
    """Refuse what is wrong with a command's recipe and its folder, as far as this is known without torch.

    Args:
        command: Reads the recipe.
        source: Its name or path, its plain data, or a recipe that was built.
        overrides: `key=value`, with dotted keys.
        writes: Whether the command writes into the recipe's folder, and then:
        resume: Whether it goes on with an earlier run there.
        overwrite: Whether it replaces one.

    Returns:
        The recipe's plain data.
    """
    kind = kind_of(command)
    name, data = check_values(command, source, list(overrides))
    check_paths(name, data, kind)
    check_preset(data)
    if writes and not resume:
        check_folder(kind, data, overwrite=overwrite)
    if command != "plan":
        check_texts(part_of(data, *kind.corpus))
    check_tables(data, kind)
    if recipe_of(command).loads_models and not part_of(data, "model").get("revision"):
        for key, path in named_paths(data):
            if key in MODEL_KEYS:
                require_known(path)
    if kind.folder in ("finetune", "distill") and "torch" not in sys.modules:
        check_small_tables(data, kind)
    return data


def check_values(command: str, source: Any, overrides: list[str]) -> tuple[str, Data]:
    """Check the keys and values of a recipe, and those of a plan; return the recipe's name and its data."""
    kind = kind_of(command)
    if command == "plan":
        overrides, of_machines = split_overrides(overrides, kind.schema.names)
        try:
            schema_of("PlanRecipe").check(read_overrides(of_machines))
        except ValueError as error:
            raise ValueError(f"plan: {error}") from None
    known = command_of(source) if isinstance(source, str) else None
    if known not in (None, recipe_of(command).command):
        raise ValueError(wrong_kind(source, str(known), command))
    name, data = read_recipe(source, overrides, kind=kind.folder)
    if not known and (better := other_kind(kind, data)):
        raise ValueError(wrong_kind(name, better, command))
    try:
        kind.schema.check(data)
    except ValueError as error:
        raise ValueError(f"recipe {name}: {error}") from None
    return name, data


def check_paths(name: str, data: Data, kind: Kind) -> None:
    """Refuse what a shipped recipe would make, but has not yet, and folders that hold no model."""
    for key, path in named_paths(data):
        require_output(path, f"recipe {name}: {key} = ", another_model(kind, key, path))
        if key in MODEL_KEYS:
            require_folder(path)


def check_preset(data: Data) -> None:
    """Refuse a preset that the objective does not train, and overrides that its configuration cannot have."""
    model = part_of(data, "model")
    preset, overrides = model.get("preset"), model.get("overrides") or {}
    if preset is None or model.get("path") is not None:
        return
    model_type = load_preset(preset)["model_type"]
    kind = str(part_of(data, "objective").get("kind"))
    definitions = shipped()["$defs"]
    for definition in definitions.values():
        trained = definition.get("trains", [model_type])
        if (
            kind == definition.get("properties", {}).get("kind", {}).get("const")
            and model_type not in trained
        ):
            raise ValueError(wrong_member(f"model.preset {preset}", model_type, kind, trained))
    name = next(name for name, each in definitions.items() if each.get("model_type") == model_type)
    known = definitions[name]["properties"]
    for field in overrides:
        if field not in known and (near := get_close_matches(field, known, n=3, cutoff=NEAR)):
            raise ValueError(no_field(f"model.overrides.{field}", name, near))
    Schema(definitions[name], definitions).check(overrides, ("model", "overrides"))


def check_folder(kind: Kind, data: Data, *, overwrite: bool) -> None:
    """Refuse a folder that a fresh run may not write; what goes on or is running there comes later."""
    folder = named_path(data[WRITTEN], WRITTEN)
    if not ({"RANK", "TORCHELASTIC_RUN_ID"} & os.environ.keys() or lock_of(folder).exists()):
        is_resumable = kind.folder != "fewshot"
        options = {"resume": False, "overwrite": overwrite, "is_resumable": is_resumable}
        require_unused(folder, kind.prepared, **options)


def check_texts(corpus: Data) -> None:
    """Refuse texts that are not there, or of which the first record is bad."""
    from .data.documents import EMBEDDED, FileDocuments
    from .data.files.reading import require_text_early
    from .data.prepared import open_source

    for split in ("train", "validation"):
        named = corpus.get(split)
        is_listed = isinstance(named, list) and all(isinstance(text, Mapping) for text in named)
        for source in [text["path"] for text in named] if named and is_listed else [named]:
            if source not in (None, EMBEDDED):
                with warnings.catch_warnings(action="ignore"):  # who reads the text warns
                    documents = open_source(source)
                if isinstance(documents, FileDocuments) and not corpus.get("skip_bad_records"):
                    require_text_early(documents.files[0])


def check_tables(data: Data, kind: Kind) -> None:
    """Refuse files of rows that are not there, or lack a column that the task reads."""
    if not (files := files_of_rows(part_of(data, *kind.rows))):
        return
    from .data.files.reading import naming_keys, require_columns_early

    keys = keys_of_columns(data, kind)
    for file in files.values():
        if not file.endswith(".txt"):  # a plain text has no columns
            with naming_keys(keys):
                require_columns_early(file, list(keys))


def keys_of_columns(data: Data, kind: Kind) -> dict[str, str]:
    """Return the columns that the task reads, and the key of the recipe that names each, if one does."""
    if kind.folder == "fewshot":
        from .plain_parts import plain_templates

        templates = plain_templates(data["task"]).values()
        return {column: template.name for template in templates for column in template.names}
    task = learned_task(data, kind)
    if task is None:
        return {}
    return task.keys if kind.folder == "finetune" else dict.fromkeys(task.columns, "")


def learned_task(data: Data, kind: Kind) -> "PlainTask | None":
    """Read the task that rows are learned for: the recipe's, or that of a teacher which is here."""
    from .plain_parts import plain_task

    if kind.folder == "finetune":
        return plain_task(data["task"])
    teacher = part_of(data, *kind.rows[:-1]).get("teacher")
    if teacher is None or not (folder := Path(teacher).expanduser()).exists():
        return None
    return plain_task(read_task(folder)["task"])


def check_small_tables(data: Data, kind: Kind) -> None:
    """Read tables whose rows are read in a moment as the run reads them, and find the labels of one text.

    Bad rows are left to the run, which knows what the task reads.
    """
    from .data.files.bad_rows import RowError, no_check
    from .data.files.rows import read_rows
    from .finetune.tasks.labels import find_labels

    task, rows = learned_task(data, kind), part_of(data, *kind.rows)
    if task is None:
        return
    key = ".".join(kind.rows)
    with warnings.catch_warnings(action="ignore"):  # the run warns
        for split, file in files_of_rows(rows).items():
            if os.path.getsize(Path(file).expanduser()) <= SMALL:
                options = {"on_bad_row": rows.get("on_bad_row", "stop"), "check": no_check}
                read_in = read_rows(file, task.columns, f"{key}.{split}", **options).rows
                if (key, split) == ("data", "train") and task.values["kind"] == "classification":
                    try:
                        find_labels(read_in, task.values["label"], task.values["label_names"])
                    except RowError:
                        pass
                    except ValueError as error:
                        raise ValueError(f"data.train: {error}") from None


def part_of(data: Data, *keys: str) -> Data:
    """Return a part of a recipe; an empty one where the recipe does not have it, or no keys are given."""
    part: Any = data if keys else {}
    for key in keys:
        part = part.get(key) or {}
    return part


def files_of_rows(part: Data) -> dict[str, str]:
    """Return the files of rows that a part names, by their keys; splits of a data set of the Hub are none."""
    named = {split: part.get(split) for split in SPLITS}
    return {} if part.get("dataset") else {split: file for split, file in named.items() if file is not None}


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


def check_models(
    *models: str, of_run: bool = False, has_learned: bool = False, asks_hub: bool = True
) -> None:
    """Refuse models of a command line that cannot be there.

    Args:
        models: Folders, or names on the Hub.
        of_run: Whether the folder of a model's run will do, too.
        has_learned: Whether they must have learned a task.
        asks_hub: Whether the Hub is asked for what is not here.
    """
    for model in models:
        require_output(model)
        require_folder(model, of_run=of_run)
        if has_learned and (folder := Path(model).expanduser()).exists():
            read_task(folder)
    if asks_hub:
        for model in models:
            require_known(model)


def check_rows(model: str, source: str) -> None:
    """Refuse a file of rows that lacks a column which a fine-tuned model reads."""
    from .data.files.reading import find_file, require_columns_early
    from .plain_parts import plain_task

    find_file(source)
    folder = Path(model).expanduser()
    if folder.exists():  # one of the Hub is not here yet
        require_columns_early(source, plain_task(read_task(folder)["task"]).input_columns)


def require_page(output: str, *, overwrite: bool) -> None:
    """Refuse a file that a page is to be written to, if there is one already, or a folder."""
    file = Path(output).expanduser()
    if file.suffix not in (".html", ".htm"):
        raise ValueError(f"--output {output} is no page: give it a name that ends in .html")
    if file.is_dir() or (file.exists() and not overwrite):
        remedy = "choose another --output" + ("" if file.is_dir() else ", or add --overwrite")
        raise ValueError(f"{output} exists already: {remedy}")


def require_known(name: str) -> None:
    """Ask the Hub for a model that is neither here nor in its cache, where torch is still to be imported."""
    if "torch" in sys.modules or Path(name).expanduser().exists():
        return
    from huggingface_hub import model_info, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, CONFIG), str):
            model_info(name, timeout=10)
    except Exception as error:  # a name, a network, a Hub: each fails in its own way
        raise unknown_model(name, first_line(error)) from error


def require_output(name: str, said: str = "", another: str = "") -> None:
    """Refuse a missing path below the output folder of a shipped recipe, or of the demo, with the way to it.

    Args:
        said: What the message begins with.
        another: What it ends with: what may be named instead.
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
