"""Data sets of others, whose card may name the files that are read: those of the data set, and no file here.

`datasets` follows `data_files` in the header of a README.md to any path and address, also that of a data set
on the Hub. `local:///home/me/notes.txt` is a path, too, and `dir://notes.txt::file:///home/me` leads there.
"""

from pathlib import Path

import yaml
from datasets import Dataset, IterableDataset, load_dataset_builder
from huggingface_hub import metadata_load

from ...configs.documents import texts_in
from ...configs.named_files import is_inside

CARDS = {
    "README.md": metadata_load,
    ".huggingface.yaml": lambda file: yaml.safe_load(file.read_text("utf-8")),
}
"""Files of a folder by which `datasets` finds its files -> what reads the names."""

OF_THE_HUB = ("hf://", "https://")
"""How addresses of files begin that a data set of the Hub may name."""

ADDRESS, CHAIN = "://", "::"
"""Marks of an address, and of one that is reached by way of another."""


def load_dataset(
    dataset: str, config: str | None, *, split: str, streaming: bool = False
) -> Dataset | IterableDataset:
    """Load a split of a data set, of the Hub or in a folder, as `datasets.load_dataset` does."""
    folder = Path(dataset)
    for name, read in CARDS.items():
        facts = read(folder / name) if (folder / name).is_file() else None
        for _, text in texts_in(facts.get("configs") if isinstance(facts, dict) else None):
            require_own_file(text, is_own=ADDRESS not in text)
    builder = load_dataset_builder(dataset, config)
    for files in (builder.config.data_files or {}).values():
        for file in map(str, files):
            is_here = ADDRESS not in file and is_inside(Path(file), folder)
            is_of_hub = file.startswith(OF_THE_HUB) and CHAIN not in file and not folder.is_dir()
            require_own_file(file, is_own=is_here or is_of_hub)
    if streaming:
        return builder.as_streaming_dataset(split=split)  # pyright: ignore[reportReturnType]
    builder.download_and_prepare()
    return builder.as_dataset(split=split)  # pyright: ignore[reportReturnType]


def require_own_file(file: str, *, is_own: bool) -> None:
    if not is_own:
        raise ValueError(f"it names {file}, which is no file of the data set: correct its README.md")
