"""A preparation, carried out: recipe -> tasks -> a pipeline of datatrove -> shards -> manifest.

    (read, filter, hash -> pairs in buckets -> clusters ->) read, filter, (leave out,) tokenize -> manifest

What stands in parentheses finds near duplicates (`near_duplicates.py`).

`work/` in the output folder holds the plan, by which a preparation goes on with what is missing, and the logs
of datatrove; nothing else reads it.
"""

import json
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any

import datatrove.pipeline.extractors as extractors
import datatrove.pipeline.filters as filters
import datatrove.pipeline.formatters as formatters
import datatrove.pipeline.readers as readers
from datatrove.executor.base import PipelineExecutor
from datatrove.io import DataFolder, get_shard_from_paths_file
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.readers.base import BaseDiskReader

from ...configs.documents import write_document
from ...configs.recipe import recipe_data
from ...data.cache import cache_folder
from ...data.digests import identify_file
from ...data.files.locks import occupied
from ...data.files.remote_files import is_remote
from ...data.prepared import INDEX, MANIFEST, PLAN, SHARDS, TOKENIZER, Manifest
from ...data.texts_read import warn_of_copies
from ...data.tokenizers.special_tokens import control_tokens, ends_read_as_text
from ...data.tokenizers.tokenization import digest_of, num_ids, text_backend
from ...data.tokenizers.tokenizer import load_tokenizer, saved_files
from .blocks import (
    ENTRY,
    ListedReader,
    ManifestWriter,
    RecordCounter,
    RecordReader,
    ShardWriter,
    hash_of,
    shard_name,
)
from .executors import build_executor, built, run_in_turn
from .near_duplicates import find_duplicates
from .pieces import Piece, files_of, tasks_of
from .recipe import BlockRecipe, PreparationRecipe

WORK, RECIPE = "work", "recipe.yaml"
WRITTEN = (MANIFEST, SHARDS, INDEX, TOKENIZER, WORK, RECIPE)
"""Everything that a preparation writes."""


def prepare(recipe: PreparationRecipe, *, overwrite: bool = False) -> str:
    """Prepare a corpus, or go on with it, and return the path or address of its manifest.

    With a cluster's executor that only starts jobs (slurm), the manifest is written by the last of them.

    Args:
        recipe: What is prepared.
        overwrite: Replace another corpus in the output folder.

    Raises:
        ValueError: Parts of the recipe or the text are not possible, or the folder holds another corpus, or
            is being written.
        FileNotFoundError: A named file does not exist.
        UnfinishedError: Tasks failed elsewhere.
    """
    output = recipe.output if is_remote(recipe.output) else str(recipe.folder.absolute())
    with nullcontext() if is_remote(output) else occupied(Path(output)):
        run(recipe, output, overwrite=overwrite)
    return f"{output}/{MANIFEST}"


def run(recipe: PreparationRecipe, output: str, *, overwrite: bool) -> None:
    """Prepare a corpus into a folder or an address; see `prepare`."""
    tokenizer = load_tokenizer(recipe.tokenizer)
    names = control_tokens(tokenizer, recipe.corpus.control_tokens)
    target = DataFolder(output)
    tasks = tasks_of_recipe(recipe)
    backend = text_backend(tokenizer, names)
    sources = identified(tasks) if recipe.corpus.reader is None else listed_by(recipe.corpus.reader)
    warn_of_copies("corpus.path", sources)
    options = options_of(recipe)
    plan = {"tokenizer": digest_of(backend), "tasks": len(tasks), "sources": sources, "options": options}
    saved = saved_files(tokenizer)
    writer = {
        "output": output,
        "tokenizer": backend.to_str(),
        "control_tokens": {name: tokenizer.get_vocab()[name] for name in names},
        "ends": ends_read_as_text(tokenizer, names),
        "sources": [[described(piece) for piece in pieces] for pieces in tasks],
    }
    manifest = ManifestWriter(
        output,
        len(tasks),
        {"digest": plan["tokenizer"], "files": {name: hash_of(contents) for name, contents in saved.items()}},
        num_ids(backend),
        sources,
        options,
        str(recipe.corpus.path or recipe.corpus.reader),
    )
    last = executors_of(recipe, tasks, writer, manifest, f"{output}/{WORK}")
    if claim(target, plan, recipe, saved, overwrite=overwrite):
        return
    forget_missing(target, len(tasks))
    if recipe.executor.kind == "slurm":
        last.run()
        print(f"the tasks are queued; the last one writes {output}/{MANIFEST}", file=sys.stderr)
    else:
        run_in_turn(last)
        tell(target, output, recipe)


def tasks_of_recipe(recipe: PreparationRecipe) -> list[list[Piece]]:
    """Divide a recipe's text; a reader of datatrove divides itself what it reads."""
    if recipe.corpus.path is None:
        return [[] for _ in range(recipe.corpus.tasks)]
    return tasks_of(files_of(recipe.corpus.path), recipe.corpus.shard_bytes)


def executors_of(
    recipe: PreparationRecipe,
    tasks: list[list[Piece]],
    writer: dict[str, Any],
    manifest: ManifestWriter,
    logs: str,
) -> PipelineExecutor:
    """Build all executors, each with what has to be done before it, and return the last one."""

    def beginning() -> tuple[RecordReader | RecordCounter, list[PipelineStep]]:
        corpus = recipe.corpus
        blocks = [block_of(each, "filters", filters, formatters, extractors) for each in recipe.filters]
        if corpus.reader is not None:
            counter, reader = RecordCounter(), block_of(corpus.reader, "corpus.reader", readers)
            if isinstance(reader, BaseDiskReader):
                reader = ListedReader(reader, [source["name"] for source in manifest.sources])
            return counter, [reader, counter, *blocks]
        reader = RecordReader(tasks, corpus.text_column, corpus.skip_bad_records, corpus.largest_record)
        return reader, [reader, *blocks]

    def then(
        pipeline: Sequence[PipelineStep], number: int, name: str, before: PipelineExecutor | None
    ) -> PipelineExecutor:
        return build_executor(recipe.executor, recipe.workers, pipeline, number, f"{logs}/{name}", before)

    before, kept = None, []
    if recipe.deduplicate is not None:
        before, kept = find_duplicates(
            recipe.deduplicate, beginning()[1], len(tasks), f"{logs}/duplicates", then
        )
    reader, blocks = beginning()
    shards = then([*blocks, *kept, ShardWriter(**writer, reader=reader)], len(tasks), "shards", before)
    return then([manifest], 1, "manifest", shards)


def block_of(recipe: BlockRecipe, key: str, *modules: Any) -> PipelineStep:
    """Build a block of datatrove by the name of its class.

    Raises:
        ValueError: There is none of this name, its arguments are not possible, or it draws without a seed.
    """
    known = {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, PipelineStep) and not name.startswith("Base")
    }
    if recipe.name not in known:
        raise ValueError(f"{key}: datatrove has no {recipe.name!r}: use one of {', '.join(sorted(known))}")
    block = known[recipe.name]
    require_repeatable(block, recipe, key)
    return built(block, {}, recipe.arguments, f"{key}: arguments")


def require_repeatable(block: type[PipelineStep], recipe: BlockRecipe, key: str) -> None:
    """Raise a `ValueError` if a block may give other documents when the same text is read again."""
    other = "the same text may give other documents each time it is read"
    if "seed" in signature(block).parameters and recipe.arguments.get("seed") is None:
        raise ValueError(
            f"{key}: {recipe.name} may draw at random, and {other}: add seed: 0 to its arguments"
        )
    if issubclass(block, BaseDiskReader) and recipe.arguments.get("shuffle_files"):
        raise ValueError(
            f"{key}: {recipe.name} shuffles without a seed, and {other}: leave shuffle_files out"
        )


def options_of(recipe: PreparationRecipe) -> dict[str, Any]:
    """Return the keys that decide what is in the corpus."""
    data = recipe_data(recipe)
    corpus = {key: value for key, value in data["corpus"].items() if key != "path"}
    return {"corpus": corpus, "filters": data["filters"], "deduplicate": data["deduplicate"]}


def identified(tasks: Sequence[Sequence[Piece]]) -> list[dict[str, Any]]:
    """Identify the files of all tasks, in order: by their contents, or elsewhere by name and size."""
    files = {piece.file: piece.size for pieces in tasks for piece in pieces}
    return [
        {"name": file, "bytes": size} if is_remote(file) else identify_file(Path(file), cache_folder())
        for file, size in files.items()
    ]


def listed_by(recipe: BlockRecipe) -> list[dict[str, Any]]:
    """List the files of a reader of datatrove, by their places in its folder, with their sizes.

    Those that a `paths_file` lists have no sizes: a store would be asked for each. What is read without
    files, such as a data set of the Hub, is not listed.

    Raises:
        FileNotFoundError: There are none.
    """
    reader = block_of(recipe, "corpus.reader", readers)
    if not isinstance(reader, BaseDiskReader):
        return []
    folder = reader.data_folder
    if reader.paths_file is None:
        names = folder.list_files(recursive=reader.recursive, glob_pattern=reader.glob_pattern)
        told: Any = folder.find("", detail=True)
        listed = [{"name": name, "bytes": told[name]["size"]} for name in names]
    else:
        listed = [{"name": name} for name in get_shard_from_paths_file(reader.paths_file, 0, 1)]
    if not listed:
        raise FileNotFoundError(f"corpus.reader: {recipe.name} finds no files in {folder.resolve_paths('')}")
    return listed


def described(piece: Piece) -> str:
    """Name a piece for the manifest."""
    name = piece.file if is_remote(piece.file) else Path(piece.file).name
    return name if piece.is_whole else f"{name}:{piece.start}-{piece.stop}"


def claim(
    target: DataFolder,
    plan: dict[str, Any],
    recipe: PreparationRecipe,
    tokenizer: dict[str, bytes],
    *,
    overwrite: bool,
) -> bool:
    """Take the output folder, and write the plan, the recipe and the tokenizer there; return if all is done.

    Raises:
        ValueError: The folder holds another corpus, or something else.
    """
    listed = target.ls("", detail=False) if target.exists("") else []
    found = {name for name in (Path(str(each)).name for each in listed) if not name.startswith(".")}
    earlier = json.loads(target.cat_file(PLAN)) if target.isfile(PLAN) else None
    if found and earlier is None:
        strange = ", ".join(sorted(found)[:5])
        raise ValueError(
            f"output {recipe.output} holds {strange}, of no unfinished corpus: choose another folder"
        )
    if earlier is not None and earlier != json.loads(json.dumps(plan)):
        changed = " and ".join(key for key in plan if earlier.get(key) != plan[key])
        if not overwrite:
            raise ValueError(
                f"output {recipe.output} holds a corpus that was prepared with another {changed}: choose "
                "another folder, or replace it with --overwrite"
            )
        for name in WRITTEN:
            if target.exists(name):
                target.rm(name, recursive=True)
    if target.isfile(MANIFEST):
        print(f"{recipe.output} is complete", file=sys.stderr)
        return True
    write(target, PLAN, json.dumps(plan).encode())
    for name, contents in tokenizer.items():
        write(target, f"{TOKENIZER}/{name}", contents)
    write(target, RECIPE, write_document(recipe_data(recipe)).encode())
    return False


def write(target: DataFolder, name: str, contents: bytes) -> None:
    """Write a small file, with the folders above it."""
    with target.open(name, "wb") as file:
        file.write(contents)


def forget_missing(target: DataFolder, shards: int) -> None:
    """Let datatrove do those tasks again whose shards somebody has deleted, and write the manifest anew."""
    for rank in range(shards):
        done = f"{WORK}/shards/completions/{rank:05d}"
        if target.isfile(done) and not target.isfile(f"{shard_name(rank)}/{ENTRY}"):
            target.rm(done)
    if target.isfile(f"{WORK}/manifest/completions/00000"):
        target.rm(f"{WORK}/manifest/completions/00000")


def tell(target: DataFolder, output: str, recipe: PreparationRecipe) -> None:
    """Say what was prepared and how much the recipe leaves out, and warn of what is bad."""
    manifest = Manifest.read(target.cat_file(MANIFEST).decode(), f"{output}/{MANIFEST}")
    counts = asdict(manifest.counts)
    told = ", ".join(f"{number:,} {name}" for name, number in counts.items())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        manifest.tally.warn(output)
    number = len(manifest.shards)
    print(f"prepared {told} in {number:,} shard{'s' * (number != 1)}", file=sys.stderr, flush=True)
    read = manifest.tally.records - manifest.tally.num_left_out
    if left := read - manifest.counts.documents:
        causes = [each.name for each in recipe.filters] + ["deduplication"] * (recipe.deduplicate is not None)
        named = f"by {', '.join(causes)}, or " if causes else ""
        print(f"left out {left:,} of {read:,} documents: {named}without text", file=sys.stderr, flush=True)
