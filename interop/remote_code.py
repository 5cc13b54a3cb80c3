"""The code that a checkpoint takes along, so that `trust_remote_code=True` loads it where Tercet is not.

transformers looks an Auto class up in the configuration's `auto_map`, and copies the file named there with
all that it imports by `from .name import Name`: `modeling/` is flat and written so.
"""

from inspect import getfile
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import get_relative_import_files

from ..modeling import AUTO_CLASSES, CONFIGURATIONS, models_of


def add_auto_map(config: dict[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Say in a configuration of ours which class each Auto class finds in which file.

    Of several it is the one that was saved, else the first. A configuration of another family, or whose code
    lies in its folder, is returned as it is.
    """
    configuration = {known.model_type: known for known in CONFIGURATIONS}.get(config.get("model_type", ""))
    if configuration is None or (folder is not None and saved_code(config, folder)):
        return config
    classes: dict[str, type] = {"AutoConfig": configuration}
    for auto_class in AUTO_CLASSES:
        if models := models_of(configuration, auto_class):
            saved = [model for model in models if model.__name__ in (config.get("architectures") or ())]
            classes[auto_class.__name__] = [*saved, *models][0]
    return config | {
        "auto_map": {name: f"{file_of(found).stem}.{found.__name__}" for name, found in classes.items()}
    }


def saved_code(config: dict[str, Any], folder: Path) -> list[Path]:
    """Find the code beside a configuration that names some; none where a file that it names is elsewhere.

    transformers goes on naming it when a model that was loaded by installed code is saved without it.
    """
    named = [str(reference).partition(".")[0] for reference in config.get("auto_map", {}).values()]
    is_here = all((folder / f"{name}.py").exists() for name in named)
    return sorted(folder.glob("*.py")) if named and is_here else []


def code_files(auto_map: dict[str, str]) -> list[Path]:
    """Find the files in `modeling/` that the classes of an `auto_map` need, in the order of their names."""
    folder = file_of(CONFIGURATIONS[0]).parent
    entries = {folder / f"{reference.partition('.')[0]}.py" for reference in auto_map.values()}
    imported = {Path(file) for entry in entries for file in get_relative_import_files(entry)}
    return sorted(entries | imported)


def file_of(defined: type) -> Path:
    """Find the file in which a class is defined."""
    return Path(getfile(defined))
