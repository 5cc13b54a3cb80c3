"""What is answered about models before torch is imported: folders without one, impossible configurations.

The fields of configurations are read as recipes are (`early_checks.py`): from modules without libraries.
"""

import sys
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import field, make_dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import PydanticSchemaGenerationError, TypeAdapter

from .configs.recipe import load_preset, parse_recipe, preset_names
from .configs.stand_ins import without_libraries
from .ground.messages import first_line
from .training.inputs import require_free
from .training.model_paths import CONFIG, require_folder, require_task, unknown_model

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

OF_RUNS = ("play", "push")
"""Commands that find the model in the folder of its run."""

WRITERS = ("import", "export", "convert")
"""Commands that write the folder of a model."""


def check_model(command: str, name: str) -> None:
    """Refuse a model of the command line that is here, but is none, or that cannot be there.

    Raises:
        FileNotFoundError: There is no such folder, or no model in it.
        ValueError: It is a file.
    """
    require_folder(name, of_run=command in OF_RUNS)
    if command == "predict" and Path(name).expanduser().exists():
        require_task(Path(name).expanduser())
    if command == "push" and not Path(name).expanduser().exists():
        raise FileNotFoundError(f"{name} does not exist: name the folder of a run, or of a model")


def require_known(name: str) -> None:
    """Ask the Hub for a model that is neither here nor in its cache, where torch is still to be imported.

    Raises:
        FileNotFoundError: The Hub has no such model, or cannot be asked.
    """
    if "torch" in sys.modules or Path(name).expanduser().exists():
        return
    from huggingface_hub import model_info, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, CONFIG), str):
            model_info(name, timeout=10)
    except Exception as error:  # a name, a network, a Hub: each fails in its own way
        raise unknown_model(name, first_line(error)) from error


def check_output(options: Namespace) -> None:
    """Refuse what `import`, `export`, `convert` or `inspect` cannot write, or cannot read beside the model.

    Raises:
        ValueError: The folder is a file, or not empty and not to be overwritten; the page is there already,
            or is a folder; or there is no such stock architecture.
        FileNotFoundError: The text is not there.
    """
    if options.command in WRITERS:
        require_free(options.output, overwrite=options.overwrite)
    if options.command == "inspect":
        require_page(options.output, overwrite=options.overwrite)
    text, stock = getattr(options, "text", None), getattr(options, "to", None)
    if options.command == "convert" and text is not None and not Path(text).expanduser().exists():
        raise FileNotFoundError(f"--text {text} is no file: name a text file")
    if options.command == "export" and stock is not None:
        with without_libraries():
            import_module(".stock.architectures", __package__).require_name(stock)


def require_page(output: str, *, overwrite: bool) -> None:
    """Refuse a file that a page is to be written to, if there is one already, or a folder."""
    file = Path(output).expanduser()
    if file.suffix not in (".html", ".htm"):
        raise ValueError(f"--output {output} is no page: give it a name that ends in .html")
    if file.is_dir() or (file.exists() and not overwrite):
        remedy = "choose another --output" + ("" if file.is_dir() else ", or add --overwrite")
        raise ValueError(f"{output} exists already: {remedy}")


def check_configuration(recipe: Any, preset: dict[str, Any]) -> None:
    """Refuse a preset that an objective does not train, and overrides that no configuration has.

    Raises:
        ValueError: The preset is of another member; a name is nearly that of a field of ours; a value is of
            another type, or heads do not divide the width. What else a configuration refuses comes later.
    """
    overrides, model_type = recipe.model.overrides, preset["model_type"]
    if hasattr(recipe, "objective"):
        check_member(recipe, model_type)
    name = next(name for name in CONFIGURATIONS if configuration(name).model_type == model_type)
    cls = configuration(name)
    check_names(overrides, cls)
    check_types(overrides, cls)
    values = preset | overrides
    if isinstance(values.get("num_attention_heads"), int) and isinstance(values.get("hidden_size"), int):
        check_heads(values)


def check_member(recipe: Any, model_type: str) -> None:
    """Refuse a preset of a member that the objective does not train; stand-ins of models have their names."""
    trained = [
        known
        for name in CONFIGURATIONS
        if any(
            model.__name__.startswith(name.removesuffix("Config")) for model in recipe.objective.model_classes
        )
        for known in [configuration(name).model_type]
    ]
    if trained and model_type not in trained:
        fitting = [name for name in preset_names() if load_preset(name)["model_type"] in trained]
        raise ValueError(
            f"model.preset {recipe.model.preset} is a {model_type}, but {recipe.objective.kind} trains a "
            f"{' or a '.join(trained)}: choose one of {', '.join(fitting)}, or another objective"
        )


def check_names(overrides: Iterable[str], cls: type) -> None:
    """Refuse a name that is nearly that of a field of ours; which fields are transformers' is known later."""
    for name in overrides:
        if name not in fields_of(cls) and (near := get_close_matches(name, fields_of(cls), n=3, cutoff=0.8)):
            raise ValueError(
                f"model.overrides.{name} is not a field of {cls.__name__}: did you mean {' or '.join(near)}?"
            )


def check_types(overrides: dict[str, Any], cls: type) -> None:
    """Refuse a value of another type than its field; a type of another library is left to the command."""
    hints = {
        name: hint
        for base in reversed(cls.__mro__)
        for name, hint in vars(base).get("__annotations__", {}).items()
    }
    known = []
    for name in overrides.keys() & hints.keys():
        try:
            TypeAdapter(hints[name])
        except (PydanticSchemaGenerationError, AssertionError):  # a choice of what a library has is empty
            continue
        known.append((name, hints[name], field(default=None)))
    parts: Any = make_dataclass("Overrides", known)
    for above in ("overrides", "model"):
        parts = make_dataclass(above.title(), [(above, parts)])
    parse_recipe(parts, {"model": {"overrides": {name: overrides[name] for name, *_ in known}}})


def check_heads(values: dict[str, Any]) -> None:
    """Refuse heads that do not divide the width, or each other."""
    module: Any = import_module(".modeling.configuration_tercet", __package__)
    heads, width = values["num_attention_heads"], values["hidden_size"]
    head_dim, shared = values.get("head_dim"), values.get("num_key_value_heads")
    module.require_heads(
        width,
        module.equal_share(width, heads) if head_dim is None else head_dim,
        heads,
        heads if shared is None else shared,
    )


def configuration(name: str) -> Any:
    """Find the class of a configuration of ours."""
    return getattr(import_module(f".modeling.{CONFIGURATIONS[name]}", __package__), name)


def fields_of(cls: type) -> list[str]:
    """Name the fields of a configuration that are ours."""
    return [name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())]
