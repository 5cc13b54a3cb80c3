"""What in a folder is ours: a list of every file that a run has written there, by which it may be replaced.

    .tercet.json    names: what a run may write     files: what it has written
                    writer: who is writing; null when it has ended      foreign: what lay there before
    models: hashes of the models that the run began with, by the keys of its recipe

The list is made when a run ends, however it does. One that was killed leaves its writer's name: then, of the
names that it may write, whatever is of a kind that runs write counts as its own. Nothing else is removed,
ever: files of others that lie among ours are named, and the folder stays as it is. Links are removed, not
followed.
"""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .disk import replace_text
from .lock import LOCK, own_name, require_free_below
from .manifest import UNREADABLE

OWN = ".tercet.json"
"""Name of the list, in the folder that it is about."""

KINDS = (
    *("*.safetensors", "*.json", "*.jsonl", "*.yaml", "*.pt", "*.png", "*.md", "*.html", "*.sha256"),
    *("*.yml", "*.jinja", "*.model", "*.spm", "vocab.txt", "merges.txt", "*.py", "events.out.tfevents.*"),
)
"""Names of the files that runs write."""

UNFINISHED = (".{}*.partial", ".{}*.deleted")
"""What something is called while it is being written or deleted, by its name."""


def require_free(output: str, *, overwrite: bool) -> None:
    """Refuse a folder that a command is to write, if something is there.

    Raises:
        ValueError: It has no name, is a file, or is not empty and not to be overwritten.
    """
    if not output.strip():
        raise ValueError(f"OUTPUT is {output!r}: name a folder; use . for the current folder")
    folder = Path(output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{output} is a file: name a folder")
    if not overwrite and folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{output} is not empty: choose another folder, or --overwrite")


@contextmanager
def recording(folder: Path) -> Iterator[None]:
    """List in the end what a run has written, if it has called `begin` inside."""
    try:
        yield
    finally:
        if (record := read(folder)) and record["writer"] == writer():
            files = files_below(folder, record["names"]) - set(record["foreign"])
            with suppress(OSError):  # where there is no room, the list stays as a killed run leaves it
                write(folder, record | {"writer": None, "files": sorted(files), "foreign": []})
                share(folder, files)


def begin(
    folder: Path,
    names: Sequence[str],
    models: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Record that a run begins to write a folder, from now on under these names; note what is not ours."""
    ours = owned(folder, names)
    foreign = sorted(files_below(folder, names) - ours)
    record = {"names": list(names), "writer": writer(), "files": sorted(ours), "foreign": foreign}
    write(folder, record | {"models": dict(models)})


def record_all(folder: Path) -> None:
    """List a folder that was written at once, whole."""
    names = sorted(path.name for path in folder.iterdir())
    files = sorted(files_below(folder, names))
    write(folder, {"names": names, "writer": None, "files": files, "foreign": []})
    share(folder, files)


def share(folder: Path, files: Iterable[str]) -> None:
    """Let whoever may read the list of a folder read its weights: safetensors closes them to all others."""
    mode = stat.S_IMODE((folder / OWN).stat().st_mode)
    for name in files:
        path = folder / name
        if path.suffix == ".safetensors" and not path.is_symlink() and path.exists():
            path.chmod(mode)


def is_ours(folder: Path) -> bool:
    """Return whether a run of ours has left a list of what it wrote in a folder."""
    return read(folder) is not None


def is_unfinished(name: str, names: Iterable[str]) -> bool:
    """Return whether a killed run left this while it wrote or deleted something of these names."""
    return any(fnmatch(name, pattern.format(known)) for known in (*names, OWN) for pattern in UNFINISHED)


def require_removable(folder: Path, names: Sequence[str]) -> None:
    """Make sure that what lies under these names in a folder is ours and in nobody's use.

    Raises:
        ValueError: It is not; the file is named.
    """
    found = files_below(folder, names)
    require_free_below(folder / name for name in sorted(found))
    if strangers := sorted(found - owned(folder, names)):
        raise ValueError(
            f"{folder / strangers[0]} was not written by a run, and --overwrite would delete it: move it "
            f"out of "
            f"{folder}, or choose another folder"
        )


def remove(folder: Path, names: Sequence[str]) -> None:
    """Remove what lies under these names in a folder; the list goes last, so that this can be repeated.

    Raises:
        ValueError: As in `require_removable`; nothing is removed then.
    """
    require_removable(folder, names)
    for name in files_below(folder, names):
        (folder / name).unlink(missing_ok=True)
    for top in tops_of(folder, names):
        for path, _, _ in os.walk(top, topdown=False):
            os.rmdir(path)
    (folder / OWN).unlink(missing_ok=True)


def owned(folder: Path, names: Sequence[str]) -> set[str]:
    """Find which files of these names are ours, by this folder's list and those of the runs in it.

    Where there is no list, as an earlier version left it, all are that could be. So are what a killed run
    left unfinished, and links in the place of what runs write: with them, nothing is lost.
    """
    found = files_below(folder, names)
    lists = {Path(name).parent.as_posix(): read((folder / name).parent) for name in found if is_list(name)}
    lists["."] = read(folder) or {"names": names, "writer": "an earlier version", "files": [], "foreign": []}
    links = {top.name for top in tops_of(folder, names) if top.is_symlink()}
    ours = {
        name
        for name in found
        if name in links or Path(name).name in (OWN, LOCK) or is_unfinished(Path(name).parts[0], names)
    }
    for base, record in lists.items():
        if record is None:
            continue
        ours |= {joined(base, name) for name in record["files"]}
        if record["writer"] is not None:
            ours |= kept_open(found, base, record)
    return ours & found


def is_list(name: str) -> bool:
    """Return whether a file is the list of a folder, by its name."""
    return Path(name).name == OWN


def kept_open(found: set[str], base: str, record: dict[str, Any]) -> set[str]:
    """Choose what a run that did not end may have written."""
    foreign = {joined(base, name) for name in record["foreign"]}
    ours = set()
    for name in found - foreign:
        parts = Path(name).relative_to(base).parts if Path(name).is_relative_to(base) else ()
        if not parts or not (parts[0] in record["names"] or is_unfinished(parts[0], record["names"])):
            continue
        is_half = any(fnmatch(part, ".*.partial") or fnmatch(part, ".*.deleted") for part in parts)
        if is_half or any(fnmatch(parts[-1], kind) for kind in (*KINDS, *record["names"])):
            ours.add(name)
    return ours


def joined(base: str, name: str) -> str:
    """Name a file by the folder above."""
    return (Path(base) / name).as_posix()


def files_below(folder: Path, names: Sequence[str]) -> set[str]:
    """Find the files and links under these names, or unfinished ones, by their paths in the folder."""
    found: set[str] = set()
    for top in tops_of(folder, names):
        if top.is_symlink() or not top.is_dir():
            found.add(top.name)
            continue
        for path, folders, files in os.walk(top):
            links = [name for name in folders if (Path(path) / name).is_symlink()]
            found |= {(Path(path) / name).relative_to(folder).as_posix() for name in (*files, *links)}
    return found


def tops_of(folder: Path, names: Sequence[str]) -> list[Path]:
    """Find what lies directly in a folder under these names, or unfinished ones."""
    paths = folder.iterdir() if folder.is_dir() else iter(())
    return [path for path in paths if path.name in names or is_unfinished(path.name, names)]


def read(folder: Path) -> dict[str, Any] | None:
    """Read the list of a folder; `None` if there is none, or none of ours."""
    try:
        record = json.loads((folder / OWN).read_text(encoding="utf-8"))
        record = {"models": {}} | record
        return {key: record[key] for key in ("names", "writer", "files", "foreign", "models")}
    except UNREADABLE:
        return None


def write(folder: Path, record: dict[str, Any]) -> None:
    """Write the list of a folder."""
    replace_text(folder / OWN, json.dumps(record, indent=1) + "\n")


def writer() -> str:
    """Name this process, as the writer of a folder."""
    name = own_name()
    return f"process {name['pid']} on {name['host']}"
