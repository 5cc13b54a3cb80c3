"""Data sets of others, whose card may name the files that are read: those of the data set, and no file here.

`datasets` follows `data_files` in the header of a README.md to any path, also that of a data set on the Hub.
"""

from pathlib import Path

from datasets import Dataset, IterableDataset, load_dataset_builder

from ..ground.named_files import is_inside


def load_dataset(
    dataset: str, config: str | None, *, split: str, streaming: bool = False
) -> Dataset | IterableDataset:
    """Load a split of a data set, of the Hub or in a folder, as `datasets.load_dataset` does.

    Raises:
        ValueError: It names a file that is not its own.
        Exception: As `datasets` fails.
    """
    builder = load_dataset_builder(dataset, config)
    for files in (builder.config.data_files or {}).values():
        for file in map(str, files):
            if "://" not in file and not is_inside(Path(file), Path(dataset)):
                raise ValueError(f"it names {file}, which is no file of the data set: correct its README.md")
    if streaming:
        return builder.as_streaming_dataset(split=split)  # pyright: ignore[reportReturnType]
    builder.download_and_prepare()
    return builder.as_dataset(split=split)  # pyright: ignore[reportReturnType]
