"""Files by their names: those in a recipe, and those in somebody else's file, which lead to its folder alone.

    model.safetensors.index.json    shards            config.json, tokenizer_config.json    code (`auto_map`)
    modules.json                    folders           any file                              a link

What is read in a model's folder is saved and pushed with models of one's own, so a name that leads out of
the folder would take the reader's files along. Only the Hub's cache has links that lead out: to its blobs.

    models--OWNER--NAME/snapshots/COMMIT/config.json -> models--OWNER--NAME/blobs/HASH
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SNAPSHOTS, BLOBS = "snapshots", "blobs"
"""In a cache of the Hub: the folder of the revisions of a repository, and that of their contents."""


def named_path(name: str | Path, key: str) -> Path:
    """Make a path of what a recipe says under `key`; it need not exist. `~` is the user's home."""
    if not str(name).strip():
        raise ValueError(f"{key} is {str(name)!r}: name a file or folder; use . for the current folder")
    try:
        path = Path(name).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # whoever opens it says more
            os.lstat(path)
    except (OSError, RuntimeError, ValueError) as error:  # too long, nobody's home, a NUL character
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(
            f"{key} is {str(name)[:80]!r}, which is not a valid path ({reason}): choose another"
        ) from error
    return path


def is_remote(name: str) -> bool:
    """Return whether a name has a protocol in front, such as s3://.

    >>> is_remote("s3://bucket/corpus/manifest.json"), is_remote("corpus/manifest.json")
    (True, False)
    """
    return "://" in name


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path leads, with all links followed, into a folder, or to a blob of its Hub cache."""
    root, target = folder.resolve(), path.resolve()
    is_blob = root.parent.name == SNAPSHOTS and target.is_relative_to(root.parents[1] / BLOBS)
    return is_blob or target.is_relative_to(root)


def require_inside(path: Path, folder: Path) -> Path:
    """Return a path of a folder; raise a `ValueError` if it is a link that leads out of the folder."""
    if not is_inside(path, folder):
        raise ValueError(
            f"{path} is a link to {path.resolve()}, outside of {folder}: put a copy of the file there"
        )
    return path


def named_file(folder: Path, name: object, named_by: Path) -> Path:
    """Return what a file of a folder calls by its plain name: a file, or a folder of files, beside it."""
    if not isinstance(name, str) or not is_plain(name):
        raise ValueError(
            f"{named_by} names {name!r}, but only files beside it are read, by plain names: correct it, or "
            "copy the folder again from where it comes"
        )
    path = require_inside(folder / name, folder)
    for each in files_below(path):
        require_inside(each, folder)
    return path


def require_own_contents(folder: Path) -> None:
    """Refuse a folder that is read and written, such as a run's, with what leads or waits elsewhere."""
    for each in files_below(folder):
        require_plain(require_inside(each, folder))


def require_plain(*files: Path) -> None:
    """Refuse pipes, sockets and devices, which a reader may wait for without end."""
    for file in files:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise ValueError(
                f"{file} is no file but a pipe, a socket or a device: put a copy of the file there"
            )


def is_plain(name: str) -> bool:
    r"""Return whether a name is that of a file in a folder, and no path.

    >>> [is_plain(name) for name in ("1_Pooling", "", ".", "..", "../a", "/a", "a/b", "a\\b", ".git", "~a")]
    [True, False, False, False, False, False, False, False, False, False]
    """
    return name.isprintable() and name[:1] not in {"", ".", "~"} and not {"/", "\\"} & {*name}


def files_below(folder: Path) -> Iterator[Path]:
    """Yield what lies in a folder and its folders; none if it is none. Links are yielded, not followed."""
    return folder.rglob("*") if folder.is_dir() else iter(())
