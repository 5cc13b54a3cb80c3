"""The manifest of a folder: every file's size and SHA-256, by which damage is recognized and named.

It is written after everything else, so that a folder without one was never finished.
"""

import json
from pathlib import Path

from ...configs.hashes import hash_of

MANIFEST = "manifest.json"
"""Its name."""

UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What is raised where a damaged JSON file is read, or has another shape than was written."""


def write_manifest(folder: Path) -> None:
    """Describe the files of a folder, and of the folders in it, in its manifest."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": hash_of(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=2) + "\n", encoding="utf-8")


def find_damage(folder: Path, *, contents: bool = True) -> str | None:
    """Describe what is wrong with a folder that has, or should have, a manifest; `None` if it is whole.

    Without `contents`, sizes alone are compared, in no time.
    """
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        expected = {name: (file["bytes"], file["sha256"]) for name, file in files.items()}
    except FileNotFoundError:
        return f"{MANIFEST} is missing, so it was never finished"
    except UNREADABLE as error:
        return f"{MANIFEST} cannot be read ({type(error).__name__}: {error})"
    for name, (num_bytes, sha256) in expected.items():
        try:
            found = (folder / name).stat().st_size
            if found != num_bytes:
                return f"{name} has {found:,} bytes instead of {num_bytes:,}"
            if contents and hash_of(folder / name) != sha256:
                return f"{name} has changed since it was written"
        except FileNotFoundError:
            return f"{name} is missing"
        except (OSError, ValueError) as error:
            return f"{name} cannot be read ({error})"
    return None
