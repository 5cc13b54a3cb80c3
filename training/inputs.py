"""What a run reads does not lie in what it replaces.

A file or folder is reached over the places on its way: every link, and where the last one leads to. If one
of them lies in what will be replaced, the run would lose what it reads. Places are compared by what they are,
not by how they are written: relative or absolute, in upper or lower case where the file system does not care.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

Input = str | Path | Sequence[str | Path] | None
"""What a recipe may name as something to read: files, folders, or ids on the Hub, which are no paths."""

LINKS = 40
"""Links on the way to a file, at most, as Linux has it."""


def require_apart(
    folder: Path, names: Iterable[str], models: Mapping[str, Input], texts: Mapping[str, Input]
) -> None:
    """Make sure that nothing that a run reads lies in what it writes.

    Args:
        folder: Of the run.
        names: What it writes there.
        models: Models, tokenizers and caches that it reads, by their keys: a folder's own files count.
        texts: Corpora and rows, by their keys: a folder's files count, and those of the folders in it.

    Raises:
        ValueError: Something does; it is named.
    """
    replaced = [folder / name for name in names]
    for is_searched, inputs in ((False, models), (True, texts)):
        for key, value in inputs.items():
            for path in paths_of(value):
                if where := found_in_way(path, is_searched, replaced):
                    raise ValueError(
                        f"{key} is {path}, which leads to {where}, where this run writes and which "
                        "--overwrite would delete: copy it elsewhere first, or choose another output"
                    )


def require_replaceable(files: Sequence[Path], model: str | Path, source: str, *, overwrite: bool) -> None:
    """Make sure that a command may write its `--output`.

    Args:
        files: In one folder.
        model: That the command reads.
        source: The file that it reads; `-` is none.
        overwrite: Whether the files may be there.

    Raises:
        ValueError: They may not, and are; or they lie in no folder or in the model's, or one is read.
    """
    folder = files[0].absolute().parent
    if not folder.is_dir():
        raise ValueError(f"--output {files[0]} is in a folder that does not exist: create it first")
    if Path(model).is_dir() and folder.resolve() == Path(model).resolve():
        raise ValueError(f"--output {files[0]} lies in the model {model}: choose another --output")
    texts = {} if source == "-" else {"FILE": source}
    require_apart(folder, [file.name for file in files], {"MODEL": model}, texts)
    for file in files:
        if file.is_dir() or (file.exists() and not overwrite):
            remedy = "choose another --output" + ("" if file.is_dir() else ", or add --overwrite")
            raise ValueError(f"{file} exists: {remedy}")


def paths_of(value: Input) -> Iterator[Path]:
    """Yield the paths that a recipe names, but for what can be no path."""
    for name in [value] if isinstance(value, str | Path) else value or []:
        try:
            path = Path(name).expanduser()
            with suppress(FileNotFoundError, NotADirectoryError):  # a cache that is yet to be made
                os.lstat(path)
        except (OSError, RuntimeError, ValueError):  # whoever opens it says why
            continue
        yield path


def found_in_way(path: Path, is_searched: bool, replaced: Sequence[Path]) -> Path | None:
    """Find the first file or folder to be replaced that would be read with a path."""
    for file in files_of(path, is_searched):
        if where := leading_through(file, replaced):
            return where
    return found_in(path, replaced) if is_searched else None


def leading_through(path: Path, replaced: Iterable[Path]) -> Path | None:
    """Find the first file or folder to be replaced that a path leads through."""
    on_the_way = {above for place in places(path) for above in (place, *place.parents)}
    known = {identity(place) for place in on_the_way if os.path.lexists(place)}
    for path in replaced:
        entry = path.absolute().parent.resolve() / path.name  # the link, if it is one
        if entry in on_the_way or (os.path.lexists(entry) and identity(entry) in known):
            return path
    return None


def found_in(folder: Path, replaced: Iterable[Path]) -> Path | None:
    """Find the first file or folder to be replaced that lies in a folder."""
    there = folder.resolve()
    return next((path for path in replaced if path.exists() and there in path.resolve().parents), None)


def identity(path: Path) -> tuple[int, int, str]:
    """Identify a file, folder or link; names that differ by case alone may be the same one."""
    status = os.lstat(path)
    return status.st_dev, status.st_ino, path.name.lower()


def files_of(path: Path, is_searched: bool) -> Iterator[Path]:
    """Yield a path and, if it is a folder, the links in it.

    Args:
        path: What is read.
        is_searched: Whether all folders in it are read, too: these and the links in them are given as well.
    """
    yield path
    if not path.is_dir():
        return
    for parent, folders, files in os.walk(path, followlinks=is_searched):
        yield Path(parent)
        yield from (Path(parent) / name for name in files if os.path.islink(Path(parent) / name))
        if not is_searched:
            return
        # A link to a folder above would be walked for ever; whoever reads the corpus says so.
        folders[:] = [name for name in folders if not is_above(Path(parent) / name, parent)]


def is_above(folder: Path, parent: str) -> bool:
    """Return whether a link leads to a folder that it lies in."""
    return folder.is_symlink() and Path(parent).resolve().is_relative_to(folder.resolve())


def places(path: Path) -> Iterator[Path]:
    """Yield every link on the way to a path, each in its real folder, and what the path leads to."""
    place, rest, links = Path(path.anchor or Path.cwd()).resolve(), list(path.parts[bool(path.anchor) :]), 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            place = place.parent
            continue
        step = place / part
        if step.is_symlink() and links < LINKS:
            yield step
            target = Path(os.readlink(step))
            links += 1
            rest = [*target.parts[bool(target.anchor) :], *rest]
            place = Path(target.anchor) if target.anchor else place
        else:
            place = step
    yield place
