"""The files of a corpus, found by the name of a file or folder.

What an editor, a notebook or a system leaves beside files is no text of a corpus: copies of older versions,
swap files, resource forks. Their names begin with a dot, or they lie in `__MACOSX`. A README describes the
files beside it. What is left out of a folder is told of.
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from .corpus_files import KNOWN_ENDINGS, READERS
from .packed_files import COMPRESSIONS, ending

RESOURCE_FORKS = "__MACOSX"
"""Folder that archives made by macOS have, with a file for each of theirs."""

README = "readme"

SHOWN = 5
"""Names of files that are left out of a folder that are told."""


def find_files(path: Path) -> list[Path]:
    """Find a corpus file, or those of a folder and of the folders in it, in the order of their names.

    Links are followed. What is named by itself is read whatever its name is but for the ending; of a folder,
    what is hidden or has another ending than a corpus file is left out.

    Warns:
        UserWarning: Something is left out; its first names are given.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: A file has an unknown ending or is none, or a folder has no corpus file, holds itself, or
            has a file both packed and unpacked.
    """
    try:
        if path.is_dir():
            left_out: list[Path] = []
            files = list(_files_below(path, (), left_out))
            told = _told(path, left_out)
            if not files:
                raise ValueError(
                    f"folder {path} has no corpus files{f' but {told}' if told else ''}: their names end in "
                    f"{KNOWN_ENDINGS}"
                )
            _require_once(files)
            if told:
                warnings.warn(f"folder {path}: {told} left out, as no text of the corpus", stacklevel=2)
            return files
        if not path.exists():
            raise FileNotFoundError(f"corpus {path} does not exist: check the path, relative to {Path.cwd()}")
    except PermissionError as error:
        raise ValueError(f"{error.filename} cannot be read: check its permissions") from error
    if ending(path) not in READERS:
        raise ValueError(f"corpus {path} has an unknown ending: use {KNOWN_ENDINGS}")
    return [_file(path)]


def _files_below(folder: Path, above: tuple[Path, ...], left_out: list[Path]) -> Iterator[Path]:
    if folder.resolve() in above:
        raise ValueError(f"{folder} is a link to a folder that contains it: remove it, or list the files")
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == RESOURCE_FORKS:
            left_out.append(path)
        elif path.is_dir():
            yield from _files_below(path, (*above, folder.resolve()), left_out)
        elif ending(path) in READERS and path.name.lower().partition(".")[0] != README:
            yield _file(path)
        else:
            left_out.append(path)


def _told(folder: Path, left_out: Sequence[Path]) -> str:
    """Name what is left out of a folder, the first few of much."""
    names = ", ".join(str(path.relative_to(folder))[-60:] for path in left_out[:SHOWN])
    more = f" and {len(left_out) - SHOWN:,} more" if len(left_out) > SHOWN else ""
    return f"{names}{more}"


def _require_once(files: Sequence[Path]) -> None:
    """Refuse `base.txt` beside `base.txt.gz`: the same text would count twice."""
    found: dict[Path, Path] = {}
    for file in files:
        unpacked = file.with_suffix("") if file.suffix.lower() in COMPRESSIONS else file
        if (other := found.setdefault(unpacked, file)) is not file:
            raise ValueError(
                f"folder {file.parent} has {other.name} and {file.name}, which by their names are the same "
                f"text: remove one, or list the files to read"
            )


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"corpus {path} is not a file but a pipe, a device or a broken link: remove it")
    return path
