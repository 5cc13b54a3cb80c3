"""Whether text that is measured on is also learned from: then no score says how well a model generalizes.

It may be meant: a model that cannot learn a text by heart has a fault. So a run warns, and goes on. Files are
compared by where they lie and, where two are equally long, by the hashes of their contents as they lie there:
the same text packed otherwise, or a part of a larger file, is not noticed.
"""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from .digests import identify_file
from .documents import Documents, FileDocuments


def warn_of_overlap(learned: Documents, measured: Documents, cache: Path) -> None:
    """Warn if files of the validation text are files of the training text, too, by name or by contents.

    Args:
        learned: The training text.
        measured: The validation text.
        cache: Keeps the hashes of files that are equally long.
    """
    if not isinstance(learned, FileDocuments) or not isinstance(measured, FileDocuments):
        return
    shared = shared_files(learned.files, measured.files, cache)
    if shared:
        more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
        warnings.warn(
            f"{len(shared)} of {len(measured.files)} files of corpus.validation are also in corpus.train "
            f"({shared[0]}{more}), so that scores are not on held-out text: choose other files",
            stacklevel=2,
        )


def shared_files(learned: Sequence[Path], measured: Sequence[Path], cache: Path) -> list[Path]:
    """Find the measured files that are learned from; `cache` keeps the hashes of those equally long."""
    places = {file.resolve() for file in learned}
    by_size: dict[int, list[Path]] = {}
    for file in learned:
        by_size.setdefault(file.stat().st_size, []).append(file)

    @lru_cache
    def contents(size: int) -> set[str]:
        return {identify_file(file, cache)["sha256"] for file in by_size[size]}

    def is_shared(file: Path) -> bool:
        size = file.stat().st_size
        return file.resolve() in places or (
            size in by_size and identify_file(file, cache)["sha256"] in contents(size)
        )

    return [file for file in measured if is_shared(file)]
