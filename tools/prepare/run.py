"""A preparation, carried out: recipe -> tasks -> a pipeline of datatrove -> shards -> manifest.

    (read, filter, hash -> pairs in buckets -> clusters ->) read, filter, (leave out,) tokenize -> manifest

What stands in parentheses finds near duplicates (`near_duplicates.py`).

`work/` in the output folder holds the plan, by which a preparation goes on with what is missing, and the logs
of datatrove; nothing else reads it.
"""

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from datatrove.executor.base import PipelineExecutor
from datatrove.io import DataFolder, get_shard_from_paths_file
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.readers.base import BaseDiskReader

from ...configs.documents import write_document
from ...configs.named_files import is_remote
from ...configs.recipe import recipe_data
from ...data.cache import cache_folder
from ...data.files.locks import occupied
from ...data.identities import identify_file, warn_of_copies
from ...data.prepared import INDEX, MANIFEST, PLAN, SHARDS, TOKENIZER, Manifest
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
from .executors import run_in_turn
from .near_duplicates import find_duplicates
from .pieces import Piece
from .recipe import BlockRecipe, PreparationRecipe, TextRecipe

WORK, RECIPE = "work", "recipe.yaml"
WRITTEN = (MANIFEST, SHARDS, INDEX, TOKENIZER, WORK, RECIPE)
"""Everything that a preparation writes."""


def prepare(recipe: PreparationRecipe, *, overwrite: bool = False) -> str:
    """Prepare a corpus, or go on with it, and return the path or address of its manifest.

    With a cluster's executor that only starts jobs (slurm), the manifest is written by the last of them.

    Args:
        overwrite: Replace another corpus in the output folder.
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
    corpus, options = recipe.corpus, recipe.options
    tasks = corpus.tasks_of_text()
    backend = text_backend(tokenizer, names)
    sources = identified(tasks) if corpus.reader is None else listed_by(corpus.reader)
    warn_of_copies("corpus.path", sources)
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
        str(corpus.path or corpus.reader),
    )
    logs = f"{output}/{WORK}"

    def then(
        pipeline: Sequence[PipelineStep], number: int, name: str, before: PipelineExecutor | None
    ) -> PipelineExecutor:
        return recipe.executor.build(recipe.workers, pipeline, number, f"{logs}/{name}", before)

    begin = partial(beginning, corpus, recipe.filters, tasks, sources)
    before, kept = None, []
    if recipe.deduplicate is not None:
        before, kept = find_duplicates(recipe.deduplicate, begin()[1], len(tasks), f"{logs}/duplicates", then)
    reader, blocks = begin()
    shards = then([*blocks, *kept, ShardWriter(**writer, reader=reader)], len(tasks), "shards", before)
    last = then([manifest], 1, "manifest", shards)
    files = {f"{TOKENIZER}/{name}": contents for name, contents in saved.items()}
    files[RECIPE] = write_document(recipe_data(recipe)).encode()
    if claim(target, recipe.output, plan, files, overwrite=overwrite):
        return
    forget_missing(target, len(tasks))
    if recipe.executor.kind == "slurm":
        last.run()
        print(f"the tasks are queued; the last one writes {output}/{MANIFEST}", file=sys.stderr)
    else:
        run_in_turn(last)
        causes = [each.name for each in recipe.filters]
        tell(target, output, causes + ["deduplication"] * (recipe.deduplicate is not None))


def beginning(
    corpus: TextRecipe,
    filters: Sequence[BlockRecipe],
    tasks: list[list[Piece]],
    sources: Sequence[Mapping[str, Any]],
) -> tuple[RecordReader | RecordCounter, list[PipelineStep]]:
    """Build the blocks that read and filter, anew for each executor; the first one tells what was bad."""
    blocks = [each.build("filters", "filters", "formatters", "extractors") for each in filters]
    if corpus.reader is not None:
        counter, reader = RecordCounter(), corpus.reader.build("corpus.reader", "readers")
        if isinstance(reader, BaseDiskReader):
            reader = ListedReader(reader, [source["name"] for source in sources])
        return counter, [reader, counter, *blocks]
    reader = RecordReader(tasks, corpus.text_column, corpus.skip_bad_records, corpus.largest_record)
    return reader, [reader, *blocks]


def identified(tasks: Sequence[Sequence[Piece]]) -> list[dict[str, Any]]:
    """Identify the files of all tasks, in order: by their contents, or elsewhere by name and size."""
    files = {piece.file: piece.size for pieces in tasks for piece in pieces}
    return [
        {"name": file, "bytes": size} if is_remote(file) else identify_file(Path(file), cache_folder())
        for file, size in files.items()
    ]


def listed_by(block: BlockRecipe) -> list[dict[str, Any]]:
    """List the files of a reader of datatrove, by their places in its folder, with their sizes.

    Those that a `paths_file` lists have no sizes: a store would be asked for each. What is read without
    files, such as a data set of the Hub, is not listed.
    """
    reader = block.build("corpus.reader", "readers")
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
        raise FileNotFoundError(f"corpus.reader: {block.name} finds no files in {folder.resolve_paths('')}")
    return listed


def described(piece: Piece) -> str:
    name = piece.file if is_remote(piece.file) else Path(piece.file).name
    return name if piece.is_whole else f"{name}:{piece.start}-{piece.stop}"


def claim(
    target: DataFolder, name: str, plan: dict[str, Any], files: Mapping[str, bytes], *, overwrite: bool
) -> bool:
    """Take the output folder, and write the plan and some files there; return if all is done.

    Args:
        plan: By which a preparation is known again.
        files: The recipe's and the tokenizer's, by their names.
    """
    listed = target.ls("", detail=False) if target.exists("") else []
    found = {own for own in (Path(str(each)).name for each in listed) if not own.startswith(".")}
    earlier = json.loads(target.cat_file(PLAN)) if target.isfile(PLAN) else None
    if found and earlier is None:
        strange = ", ".join(sorted(found)[:5])
        raise ValueError(f"output {name} holds {strange}, of no unfinished corpus: choose another folder")
    if earlier is not None and earlier != json.loads(json.dumps(plan)):
        changed = " and ".join(key for key in plan if earlier.get(key) != plan[key])
        if not overwrite:
            raise ValueError(
                f"output {name} holds a corpus that was prepared with another {changed}: choose "
                "another folder, or replace it with --overwrite"
            )
        for each in filter(target.exists, WRITTEN):
            target.rm(each, recursive=True)
    if target.isfile(MANIFEST):
        print(f"{name} is complete", file=sys.stderr)
        return True
    write(target, PLAN, json.dumps(plan).encode())
    for file, contents in files.items():
        write(target, file, contents)
    return False


def write(target: DataFolder, name: str, contents: bytes) -> None:
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


def tell(target: DataFolder, output: str, causes: Sequence[str]) -> None:
    """Say what was prepared and how much was left out, by which causes, and warn of what is bad."""
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
        named = f"by {', '.join(causes)}, or " if causes else ""
        print(f"left out {left:,} of {read:,} documents: {named}without text", file=sys.stderr, flush=True)
