"""What a command may write: a folder that is free, or one of ours, and nothing that it reads.

In a folder that commands of ours have written lies `.tercet.json`. It holds hashes of the models that a run
began with, by the keys of its recipe. `--overwrite` renames such a folder to `NAME.previous`, in place of the
one before: nothing else is deleted, and a folder without the mark is never renamed.
"""

import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from ..data.files.atomic_writes import delete_folder, replace_text

OWN = ".tercet.json"
"""Name of the mark."""

Input = str | Path | Sequence[str | Path] | None
"""What a recipe may name as something to read: files, folders, or ids on the Hub, which are no paths."""


def mark(folder: Path, models: Mapping[str, str] = MappingProxyType({})) -> None:
    """Mark a folder as one that a command of ours writes, with hashes of models."""
    replace_text(folder / OWN, json.dumps({"models": dict(models)}, indent=1) + "\n")


def is_ours(folder: Path) -> bool:
    return (folder / OWN).exists()


def earlier_models(folder: Path) -> dict[str, str]:
    """Read the hashes of the models that the run in a folder began with, as far as it kept them."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return dict(json.loads((folder / OWN).read_text(encoding="utf-8"))["models"])
    return {}


def previous_of(folder: Path) -> Path:
    """Name what `--overwrite` renames a folder to."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.previous")


def require_unused(
    folder: Path, prepared: Collection[str], *, resume: bool, overwrite: bool, is_resumable: bool
) -> None:
    """Refuse a run's folder that holds an earlier run which is not to be continued or replaced.

    Args:
        prepared: What a fresh run may find.
        is_resumable: Whether runs of its kind can go on.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output is {folder}, which is a file: name a folder")
    if not (found := visible(folder)):
        return
    if not is_ours(folder):
        raise ValueError(
            f"output {folder} holds {found[0]}, which was not written by a run: choose another folder with "
            "output=..."
        )
    if overwrite:
        require_movable(folder)
    elif unexpected := [name for name in found if not resume and name not in prepared]:
        raise ValueError(
            f"output {folder} holds an earlier run ({unexpected[0]}): "
            f"{'continue it with --resume, ' if is_resumable else ''}replace it with --overwrite, or choose "
            "another folder with output=..."
        )


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name[0] != ".") if folder.exists() else []


def require_movable(folder: Path) -> None:
    """Make sure that `set_aside` can rename a folder that is there."""
    for path in (folder, previous_of(folder)):
        if path.exists() and not is_ours(path):
            raise ValueError(f"{path} was not written by tercet (it has no {OWN}): choose another folder")
    place = folder.resolve()
    if Path.cwd().is_relative_to(place) or place.is_mount() or not os.access(place.parent, os.W_OK):
        raise ValueError(
            f"{folder} cannot be renamed (it is the current folder or a mounted disk, or the folder above "
            "cannot be written): choose another folder"
        )


def set_aside(folder: Path) -> None:
    """Rename a folder to `NAME.previous`; what bore that name goes."""
    folder, previous = folder.resolve(), previous_of(folder)
    if previous.exists():
        delete_folder(previous)
    folder.rename(previous)


def share_weights(folder: Path) -> None:
    """Let whoever may read a folder's mark read its weights: safetensors closes them to all others."""
    if is_ours(folder):
        mode = stat.S_IMODE((folder / OWN).stat().st_mode)
        for path in folder.rglob("*.safetensors"):
            if not path.is_symlink():
                path.chmod(mode)


def require_apart(folders: Sequence[Path], inputs: Mapping[str, Input]) -> None:
    """Make sure that nothing that a run reads lies in the folders that it writes."""
    written = [folder.resolve() for folder in folders]
    for key, value in inputs.items():
        for path in paths_of(value):
            lies_in = [folder for folder in written if path.resolve().is_relative_to(folder)]
            # In the current folder, each name on the Hub would seem to lie.
            if any(path.exists() or not Path.cwd().is_relative_to(folder) for folder in lies_in):
                raise ValueError(
                    f"{key} is {path}, which lies in the folder that this run writes: copy it elsewhere "
                    "first, or choose another output"
                )


def require_free(output: str, *, overwrite: bool) -> None:
    """Refuse a folder that a command is to write, if something is there."""
    if not output.strip():
        raise ValueError(f"OUTPUT is {output!r}: name a folder; use . for the current folder")
    folder = Path(output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{output} is a file: name a folder")
    if not overwrite and folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{output} is not empty: choose another folder, or --overwrite")


def require_replaceable(files: Sequence[Path], model: str | Path, source: str, *, overwrite: bool) -> None:
    """Make sure that a command may write its `--output`; it reads the file `source`, unless that is `-`."""
    folder = files[0].absolute().parent
    if not folder.is_dir():
        raise ValueError(f"--output {files[0]} is in a folder that does not exist: create it first")
    if Path(model).is_dir() and folder.resolve() == Path(model).resolve():
        raise ValueError(f"--output {files[0]} lies in the model {model}: choose another --output")
    for file in files:
        if source != "-" and file.resolve() == Path(source).expanduser().resolve():
            raise ValueError(f"--output {file} is the FILE that is read: choose another --output")
        if file.is_dir() or (file.exists() and not overwrite):
            remedy = "choose another --output" + ("" if file.is_dir() else ", or add --overwrite")
            raise ValueError(f"{file} exists: {remedy}")


def paths_of(value: Input) -> Iterator[Path]:
    """Yield the paths that a recipe names, but for what can be no path: whoever opens that says why."""
    for name in [value] if isinstance(value, str | Path) else value or []:
        with suppress(OSError, RuntimeError, ValueError):
            path = Path(name).expanduser()
            path.resolve()
            path.exists()
            yield path
