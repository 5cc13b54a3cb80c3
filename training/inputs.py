"""What a run reads does not lie in the folder that it writes, and what a command may write is free."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

Input = str | Path | Sequence[str | Path] | None
"""What a recipe may name as something to read: files, folders, or ids on the Hub, which are no paths."""


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
