"""The recipe of a preparation: the text, the tokenizer, which documents are left out, where it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ...configs.named_files import named_path
from ...configs.recipe import recipe_data

if TYPE_CHECKING:
    from datatrove.executor.base import PipelineExecutor
    from datatrove.pipeline.base import PipelineStep

    from .pieces import Piece


@dataclass(frozen=True)
class BlockRecipe:
    """A block of datatrove, by the name of its class."""

    name: str
    """Name of the class, such as `GopherQualityFilter`."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """What it is built with, as datatrove's documentation lists it."""

    def build(self, key: str, *kinds: str) -> "PipelineStep":
        """Build the block.

        Args:
            key: Key of the recipe, for errors.
            kinds: Kinds of blocks that it may be: `readers`, `filters`, `formatters`, `extractors`.
        """
        from datatrove.pipeline.base import PipelineStep

        from .executors import built

        known = {
            name: each
            for kind in kinds
            for name, each in vars(import_module(f"datatrove.pipeline.{kind}")).items()
            if isinstance(each, type) and issubclass(each, PipelineStep) and not name.startswith("Base")
        }
        if self.name not in known:
            raise ValueError(f"{key}: datatrove has no {self.name!r}: use one of {', '.join(sorted(known))}")
        self._require_repeatable(known[self.name], key)
        return built(known[self.name], {}, self.arguments, f"{key}: arguments")

    def _require_repeatable(self, block: "type[PipelineStep]", key: str) -> None:
        from datatrove.pipeline.readers.base import BaseDiskReader

        other = "the same text may give other documents each time it is read"
        if "seed" in signature(block).parameters and self.arguments.get("seed") is None:
            raise ValueError(
                f"{key}: {self.name} may draw at random, and {other}: add seed: 0 to its arguments"
            )
        if issubclass(block, BaseDiskReader) and self.arguments.get("shuffle_files"):
            raise ValueError(
                f"{key}: {self.name} shuffles without a seed, and {other}: leave shuffle_files out"
            )


@dataclass(frozen=True)
class TextRecipe:
    """The text."""

    path: str | tuple[str, ...] | None = None
    """Files, folders, or addresses that fsspec knows (`s3://bucket/part-*.jsonl.gz`,
    `hf://datasets/NAME/*.parquet`): the formats and the documents are those of `tercet pretrain`."""
    reader: BlockRecipe | None = None
    """Instead of `path`: a reader of datatrove, such as `WarcReader` or `HuggingFaceDatasetReader`, with its
    arguments. It divides its files among `tasks`, and decides itself what it does with bad ones. An override
    of one of the two replaces the other."""
    tasks: Annotated[int, Field(ge=1)] = 1
    """Number of shards of what a `reader` reads."""
    text_column: str = "text"
    """Column of the text, if rows have columns."""
    skip_bad_records: bool = False
    """Whether to skip, count and report invalid records. Otherwise the first one is an error that names its
    position."""
    largest_record: Annotated[int, Field(ge=1)] = 2**28
    """Maximum number of characters in a record; longer ones are invalid."""
    control_tokens: Literal["own"] | tuple[str, ...] = "own"
    """The tokenizer's special tokens that are recognized in the text, as in a pretraining recipe."""
    shard_bytes: Annotated[int, Field(ge=1)] = 2**26
    """Bytes of the text files of a shard, about. Smaller files are put together, larger ones cut between
    documents where they are plain (`.txt`, `.jsonl`); compressed ones and tables are not cut."""

    def __post_init__(self):
        if (self.path is None) == (self.reader is None):
            raise ValueError("path and reader: set exactly one of them")

    def tasks_of_text(self) -> "list[list[Piece]]":
        """Divide the text; a reader of datatrove divides itself what it reads."""
        if self.path is None:
            return [[] for _ in range(self.tasks)]
        from .pieces import files_of, tasks_of

        return tasks_of(files_of(self.path), self.shard_bytes)


@dataclass(frozen=True)
class DeduplicationRecipe:
    """MinHash deduplication (Broder, 1997): of documents that are nearly alike, the first one stays.

    Two documents whose n-grams of words overlap by s (Jaccard) are found with a probability of 1 - (1 -
    s^`hashes_per_bucket`)^`num_buckets`: by default half of them at s = 0.7.
    """

    n_grams: Annotated[int, Field(ge=1)] = 5
    """Words of an n-gram."""
    num_buckets: Annotated[int, Field(ge=1)] = 14
    """Number of buckets; each is a task."""
    hashes_per_bucket: Annotated[int, Field(ge=1)] = 8
    """Hashes that must be equal in a bucket."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Seed of the hashes."""


@dataclass(frozen=True)
class ExecutorRecipe:
    """What carries the tasks out."""

    kind: Literal["local", "slurm", "ray", "jobs"] = "local"
    """Processes of this machine, a SLURM cluster, a Ray cluster, or Hugging Face Jobs."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Further arguments of datatrove's executor, such as `{partition: cpu, time: "10:00:00"}` for slurm."""

    def build(
        self,
        workers: int,
        pipeline: "Sequence[PipelineStep]",
        tasks: int,
        logs: str,
        depends: "PipelineExecutor | None",
    ) -> "PipelineExecutor":
        """Build what carries a pipeline out after another one.

        Args:
            workers: Tasks that run at once.
            logs: Folder or address of datatrove's logs, by which it knows which tasks are done.
            depends: What has to be done before.
        """
        from .executors import EXECUTORS, built

        own = {"pipeline": list(pipeline), "tasks": tasks, "workers": workers, "logging_dir": logs}
        return built(EXECUTORS[self.kind], own | {"depends": depends}, self.arguments, "executor.arguments")


@dataclass(frozen=True)
class PreparationRecipe:
    """All settings of a preparation."""

    corpus: TextRecipe
    """The text."""
    tokenizer: str
    """Folder or Hub id of the tokenizer; `tercet tokenizer` trains one."""
    output: str
    """Folder of the prepared corpus: manifest.json, shards, index and tokenizer. For `jobs`, an address."""
    filters: tuple[BlockRecipe, ...] = ()
    """Blocks of datatrove between reading and tokenizing, in order: filters, formatters, extractors."""
    deduplicate: DeduplicationRecipe | None = None
    """Whether near duplicates are left out, after the filters."""
    workers: Annotated[int, Field(ge=1)] = 1
    """Number of tasks that run at once. The corpus does not depend on it."""
    executor: ExecutorRecipe = field(default_factory=ExecutorRecipe)
    """What carries the tasks out."""

    @property
    def options(self) -> dict[str, Any]:
        """The keys that decide what is in the corpus, as plain data."""
        data = recipe_data(self)
        corpus = {key: value for key, value in data["corpus"].items() if key != "path"}
        return {"corpus": corpus, "filters": data["filters"], "deduplicate": data["deduplicate"]}

    @property
    def folder(self) -> Path:
        return named_path(self.output, "output")
