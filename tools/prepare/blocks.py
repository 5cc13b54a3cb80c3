"""Blocks of a datatrove pipeline: read as `tercet pretrain` reads, tokenize into shards, join these.

    RecordReader -> filters -> ShardWriter        a task for each shard
    ManifestWriter                                one task, when all shards are there

datatrove's own readers skip a broken line in silence, and know no text files; here a bad record is an error,
or is counted. Its tokenizer writes tokens and the ends of documents; here words and sentences have
boundaries, too. Blocks are sent to other processes and machines, so they hold plain data.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.data import Document
from datatrove.io import DataFolder
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.readers.base import BaseDiskReader, BaseReader
from tokenizers import Tokenizer
from tokenizers import __version__ as tokenizers_version

from ...data.corpus import ARRAYS, TokenizedCorpus, save_corpus, token_kind
from ...data.files.problems import TEXT_REMEDY, Limit, Place, Tally, problem_of_texts, usable
from ...data.files.reading import read
from ...data.prepared import (
    INDEX,
    INDEXED,
    MANIFEST,
    SHARDED,
    SHARDS,
    Counts,
    Manifest,
    Shard,
    shard_of,
)
from ...data.tokenizers.tokenization import TextCounter, num_ids, tokenized_parts
from .pieces import Piece, lines_before, local_file

ENTRY = "shard.json"
"""File of a shard's folder that is written last."""

UNFINISHED = ".partial."
"""How the name of a folder begins in which a shard is being made."""

Documents = Iterable[Document]
"""What a block hands to the next one."""


class RecordReader(BaseReader):
    """Read the documents of a task's pieces, as a corpus of `tercet pretrain` is read.

    Args:
        tasks: The pieces of each task.
        column: Column of the text.
        skip_bad_records: Leave bad records out, and count them, instead of refusing them.
        largest_record: Characters of a record at most.
    """

    name = "records"

    def __init__(
        self, tasks: Sequence[Sequence[Piece]], column: str, skip_bad_records: bool, largest_record: int
    ):
        super().__init__(text_key=column)
        self.tasks = tasks
        self.skip_bad_records = skip_bad_records
        self.bound = Limit(largest_record, "corpus.largest_record=... allows for more")
        self.tally = Tally()

    def run(self, data: Documents = (), rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Read the documents of a task; what was met is counted anew in `tally`."""
        self.tally = Tally()
        with tempfile.TemporaryDirectory() as folder:
            for piece in self.tasks[rank]:
                for number, text in enumerate(self._texts(piece, Path(folder))):
                    document = Document(text=text, id=f"{piece.file}:{piece.start}/{number}")
                    self.update_doc_stats(document)
                    yield document

    def _texts(self, piece: Piece, folder: Path) -> Iterator[str]:
        def in_whole(place: Place) -> Place:
            return place if place.line is None else place._replace(line=place.line + lines_before(piece))

        skip, problem_of = self.skip_bad_records, partial(problem_of_texts, columns=[self.text_key])
        with local_file(piece, folder) as file:
            try:
                records = read(file, [self.text_key], self.bound)
                for _, row in usable(records, self.tally, problem_of, TEXT_REMEDY, skip=skip, where=in_whole):
                    if text := (row[self.text_key] or "").strip():
                        yield text
            except ValueError as error:
                if str(file) == piece.file or str(file) not in str(error):
                    raise
                raise ValueError(str(error).replace(str(file), piece.file)) from error
            finally:
                self.tally.first = [each.replace(str(file), piece.file) for each in self.tally.first]


class ListedReader(PipelineStep):
    """Read given files by a reader of datatrove, of which each task would list what it finds by then.

    Args:
        reader: Reads files.
        files: Their places in its folder.
    """

    type, name = "reader", "files"

    def __init__(self, reader: BaseDiskReader, files: Sequence[str]):
        super().__init__()
        self.reader, self.files = reader, files

    def run(self, data: Documents = (), rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        for document in self.reader.read_files_shard([*self.files[rank::world_size]]):
            self.update_doc_stats(document)
            yield document


class RecordCounter(PipelineStep):
    """Count the documents of a reader of datatrove, in `tally`, and hand them on."""

    type, name = "counter", "records"

    def __init__(self):
        super().__init__()
        self.tally = Tally()

    def run(self, data: Documents = (), rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        self.tally = Tally()
        for document in data:
            self.tally.records += 1
            yield document


class ShardWriter(PipelineStep):
    """Tokenize the documents of a task into the folder of its shard, unless it is there.

    Args:
        output: Folder or address of the prepared corpus.
        tokenizer: What `text_backend` made, as JSON.
        control_tokens: Names and ids of the tokens that are recognized in the text.
        ends: Names of tokens that begin or end texts, which are counted where they stand in the text.
        reader: What counts the records in the same pipeline.
        sources: What each task reads, in words.
    """

    type, name = "writer", "shard"

    def __init__(
        self,
        output: str,
        tokenizer: str,
        control_tokens: dict[str, int],
        ends: Sequence[str],
        reader: RecordReader | RecordCounter,
        sources: Sequence[Sequence[str]],
    ):
        super().__init__()
        self.output, self.tokenizer, self.control_tokens = output, tokenizer, control_tokens
        self.ends, self.reader, self.sources = ends, reader, sources

    def run(self, data: Documents = (), rank: int = 0, world_size: int = 1) -> None:
        """Write the shard of a task; a killed one leaves nothing that bears its name."""
        target = DataFolder(self.output)
        shard = shard_name(rank)
        if target.isfile(f"{shard}/{ENTRY}"):
            return
        above = Path(target.path) if target.is_local() else None
        if above is not None:
            (above / SHARDS).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=None if above is None else above / SHARDS, prefix=UNFINISHED
        ) as folder:
            made = Path(folder) / "shard"
            entry = self._fill(made, shard, data, rank)
            (made / ENTRY).write_text(json.dumps(asdict(entry)), encoding="utf-8")
            if above is None:
                for name in (*ARRAYS, ENTRY):
                    target.put(str(made / name), f"{shard}/{name}")
            else:
                shutil.rmtree(above / shard, ignore_errors=True)
                made.rename(above / shard)

    def _fill(self, folder: Path, shard: str, data: Documents, rank: int) -> Shard:
        backend = Tokenizer.from_str(self.tokenizer)
        backend.encode_special_tokens = True
        size, tally, words = num_ids(backend), Tally(), 0
        counts = np.zeros(size, dtype=np.int64)
        count = TextCounter(backend, self.ends)

        def texts() -> Iterator[str]:
            for document in data:
                if text := document.text.strip():
                    count(text, tally)
                    yield text

        def parts() -> Iterator[TokenizedCorpus]:
            nonlocal words, counts
            for part in tokenized_parts(texts(), backend):
                words += int(part.word_starts.sum())
                counts += np.bincount(part.tokens, minlength=size)
                self.stat_update("tokens", value=part.num_tokens)
                yield part

        writer = save_corpus(parts(), folder, size, tally)
        tokens, sentences, documents = writer.num_tokens, writer.num_sentences, writer.num_documents
        met = self.reader.tally
        tally.records, tally.left_out, tally.first = met.records, met.left_out, met.first
        num_bytes = int(np.fromfile(folder / "document_bytes", dtype=np.int64).sum())
        return Shard(
            shard,
            Counts(documents, sentences, words, tokens, num_bytes),
            {name: hash_of(folder / name) for name in ARRAYS},
            tally,
            list(self.sources[rank]),
            {name: int(counts[idx]) for name, idx in self.control_tokens.items()},
        )


class ManifestWriter(PipelineStep):
    """Write the index and the manifest of a prepared corpus whose shards are all there.

    Args:
        output: Folder or address of the prepared corpus.
        tokenizer: `digest` and `files` of the manifest's.
        size: Ids of the tokenizer.
        options: Keys of the recipe that decide what is in the corpus.
        name: Name of the text, for errors.
    """

    type, name = "writer", "manifest"

    def __init__(
        self,
        output: str,
        shards: int,
        tokenizer: dict[str, Any],
        size: int,
        sources: list[dict[str, Any]],
        options: dict[str, Any],
        text: str,
    ):
        super().__init__()
        self.output, self.shards, self.tokenizer, self.size = output, shards, tokenizer, size
        self.sources, self.options, self.text = sources, options, text

    def run(self, data: Documents = (), rank: int = 0, world_size: int = 1) -> None:
        """Join what the shards say of themselves, and remove what killed tasks left on a disk."""
        target = DataFolder(self.output)
        target.fs.invalidate_cache()
        names = [shard_name(number) for number in range(self.shards)]
        shards = [shard_of(json.loads(target.cat_file(f"{name}/{ENTRY}"))) for name in names]
        counts = sum((shard.counts for shard in shards), Counts())
        tally = Tally.joined(shard.tally for shard in shards)
        if not counts.documents:
            reason = f" ({tally})" if tally.left_out else ""
            raise ValueError(
                f"corpus {self.text} has no text{reason}: give at least one document, or loosen the filters"
            )
        kinds = {name: np.dtype(np.int64) for name in ARRAYS}
        kinds |= {SHARDED[0]: token_kind(self.size), SHARDED[1]: np.dtype(bool)}
        controls = {
            name: sum(shard.control_tokens[name] for shard in shards) for name in shards[0].control_tokens
        }
        manifest = Manifest(
            counts,
            {**self.tokenizer, "tokenizers": tokenizers_version},
            {name: kind.name for name, kind in kinds.items()},
            {name: write_index(target, name, shards) for name in INDEXED},
            tally,
            controls,
            self.sources,
            shards,
            self.options,
        )
        target.pipe_file(f"{MANIFEST}.partial", manifest.text().encode())
        target.mv(f"{MANIFEST}.partial", MANIFEST)
        if target.is_local():
            for left in Path(target.path).glob(f"{SHARDS}/{UNFINISHED}*"):
                shutil.rmtree(left, ignore_errors=True)


def write_index(target: DataFolder, array: str, shards: Sequence[Shard]) -> str:
    """Write one array of the index, and return its hash: a shard's offsets, moved behind those before it."""
    found, base = hashlib.sha256(), 0
    target.makedirs(INDEX, exist_ok=True)
    with target.open(f"{INDEX}/{array}", "wb") as file:

        def write(values: np.ndarray) -> None:
            contents = values.astype(np.int64).tobytes()
            found.update(contents)
            file.write(contents)

        if array.endswith("offsets"):
            write(np.zeros(1))
        for shard in shards:
            own = np.frombuffer(target.cat_file(f"{shard.name}/{array}"), dtype=np.int64)
            if not array.endswith("offsets"):
                write(own)
                continue
            write(own[1:] + base)
            base += int(own[-1])
    return found.hexdigest()


def shard_name(rank: int) -> str:
    """Name a shard's folder, from that of the prepared corpus."""
    return f"{SHARDS}/{rank:05d}"


def hash_of(contents: Path | bytes) -> str:
    """Return the SHA-256 of a file, or of its contents."""
    if isinstance(contents, bytes):
        return hashlib.sha256(contents).hexdigest()
    with contents.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
