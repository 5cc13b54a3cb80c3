"""Windows of a stream: the same again from anywhere, and for any number of processes and data workers."""

import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

from tercet.data.corpus import TokenizedCorpus
from tercet.data.documents import Documents, open_documents
from tercet.data.files.problems import Limit, Place, Record
from tercet.data.steps.workers import DataCursor, PrefetchLoader, leaving_no_workers
from tercet.data.streaming import StreamedExamples, TokenizedStream, WindowShares, share_edges
from tercet.data.tokenizers.tokenization import TextCounter, text_backend, tokenize
from tercet.data.tokenizers.tokenizer import train_tokenizer

from .stream_program import ASKED, windows, write_documents

SLOW = pytest.mark.slow


@dataclass(frozen=True)
class Numbers(Documents):
    """Seven documents, which remember how often they were read."""

    reads: list[int]

    @property
    def name(self) -> str:
        return "numbers"

    def records(self) -> Iterator[Record]:
        for number in range(7):
            self.reads.append(number)
            yield Place("numbers", number + 1), {"text": f"text number {number}"}

    def fingerprint(self) -> str:
        return "numbers"

    def identify(self) -> list[dict[str, Any]]:
        return [{"name": "numbers"}]


@pytest.fixture
def read():
    """Give seven documents and what tokenizes them, and decodes a corpus."""
    documents = Numbers("text", ("text",), False, Limit(), [])
    tokenizer = train_tokenizer(documents, "characters", 100)
    documents.reads.clear()

    def texts(corpus: TokenizedCorpus, window: int) -> list[str]:
        return [str(tokenizer.decode(corpus.document(index))) for index in range(corpus.num_documents)]

    return documents, partial(tokenize, tokenizer=tokenizer), texts


@pytest.fixture
def stream(read):
    documents, tokenize, texts = read
    return StreamedExamples(TokenizedStream(documents, tokenize, 3), texts)  # pyright: ignore[reportArgumentType]


def numbers(stream: StreamedExamples, epoch: int) -> list[int]:
    return [int(text.split()[-1]) for text in stream.epoch(epoch)]  # pyright: ignore[reportGeneralTypeIssues]


WINDOWS = [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4], [5, 6, 0]]


def test_epochs_are_consecutive_windows_of_the_stream(read, stream):
    assert [numbers(stream, epoch) for epoch in range(5)] == WINDOWS
    assert read[0].reads[:10] == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2], "each document is read once per pass"


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("epochs", [[3], [1, 4], [4, 1], [2, 2], [0, 0]])
def test_windows_are_found_again_from_anywhere(stream, epochs, num_workers):
    stream.share_with(num_workers)
    assert [numbers(stream, epoch) for epoch in epochs] == [WINDOWS[epoch] for epoch in epochs]


def test_the_first_window_and_those_that_workers_may_be_in_are_kept(read, stream):
    for epoch in (0, 1, 2, 0, 2):
        numbers(stream, epoch)
    assert len(read[0].reads) == 9, "no document of a kept window is read again"
    assert [*stream.stream.kept] == [0, 2]
    stream.share_with(1)
    for epoch in (3, 4, 5, 3):
        numbers(stream, epoch)
    assert [*stream.stream.kept] == [0, 3, 4, 5]
    assert sorted(os.listdir(stream.stream.folder.name)) == ["3", "4", "5"]


def told_of(shares: WindowShares, windows: int) -> list[list[str]]:
    """List what is warned of in each window."""
    told = []
    for window in range(windows):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _ = shares[DataCursor(window, 0)]
        told.append([str(warning.message).partition(": ")[2][:30] for warning in caught])
    return told


def test_what_is_left_out_of_a_stream_is_told_when_it_is_first_met_and_after_each_pass(tmp_path, read):
    file = tmp_path / "stream.jsonl"
    lines = [json.dumps({"text": f"text number {number}" + "</s>" * (number == 3)}) for number in range(7)]
    file.write_text("\n".join([*lines[:4], "{", *lines[4:], "{"]))
    counter = TextCounter(text_backend(read[1].keywords["tokenizer"]), ["</s>"])
    documents = open_documents(file, skip_bad_records=True)
    first, other = (WindowShares(documents, read[1], 2, process, 2, counter) for process in (0, 1))
    end = "'</s>', which begins or ends t"
    bad = "skipped {} of {} records as bad:"
    assert told_of(first, 5) == [[], [end], [bad.format(1, 7), end], [bad.format(2, 9), end], []]
    assert told_of(other, 5) == [[]] * 5


def share_of(shares: WindowShares, window: int, pipe: Connection) -> None:
    pipe.send([*shares[DataCursor(window, 0)].document(0)[:20]])


def test_processes_of_one_origin_do_not_disturb_each_other(tmp_path, read):
    """Forked from one that has the file open, and more of it than one reading brings."""
    file = tmp_path / "long.txt"
    file.write_text("\n\n".join(f"text number {number} " + "text " * 400 for number in range(2000)))
    shares, alone = (WindowShares(open_documents(file), read[1], 100) for _ in range(2))
    _ = shares[DataCursor(0, 0)]
    context, readers = get_context("fork"), {}
    for window in (12, 15):
        readers[window], theirs = context.Pipe()
        context.Process(target=share_of, args=(shares, window, theirs)).start()
    for window, reader in readers.items():
        assert reader.recv() == [*alone[DataCursor(window, 0)].document(0)[:20]]


def test_a_stream_is_read_on_by_the_next_run_of_a_process(stream):
    for epochs in ((0, 1), (2, 3)):
        with leaving_no_workers():
            stream.share_with(1)
            assert [numbers(stream, epoch) for epoch in epochs] == [WINDOWS[epoch] for epoch in epochs]


class Windows:
    """What data workers make of a stream: the numbers of its documents, and who has read them."""

    def __init__(self, stream: StreamedExamples):
        self.stream = stream

    def __getitem__(self, cursor: DataCursor) -> tuple[int, list[int]]:
        return os.getpid(), numbers(self.stream, cursor.epoch)

    def describe(self, cursor: DataCursor) -> str:
        return f"window {cursor.epoch}"


def test_data_workers_find_the_windows_that_the_process_of_the_run_has_made(stream):
    """Each is planned before a worker is asked for it, and has a single step here: as far as they may lag."""

    def planned() -> Iterator[DataCursor]:
        for epoch in range(12):
            numbers(stream, epoch)
            yield DataCursor(epoch, 0)

    stream.share_with(2)
    found = [*PrefetchLoader(Windows(stream), planned(), num_workers=2, pin_memory=False)]
    assert [window for _, window in found] == [
        [number % 7 for number in range(3 * n, 3 * n + 3)] for n in range(12)
    ]
    assert len({process for process, _ in found}) == 2


def test_a_share_is_told_where_it_cannot_be_made(stream, read):
    def refuse(documents):
        raise ValueError("no such token")

    stream = StreamedExamples(TokenizedStream(read[0], refuse, 3), stream.make_examples)
    with pytest.raises(ValueError, match=r"^no such token"):
        stream.epoch(0)
    stream.share_with(1)
    with pytest.raises(
        ValueError, match=r"^window 1 of the stream numbers cannot be prepared: no such token"
    ):
        stream.epoch(1)


@pytest.mark.parametrize("num_shares", [1, 2, 3, 8, 100])
def test_shares_are_neighbouring_documents_of_about_as_many_characters(num_shares):
    rng = np.random.default_rng(num_shares)
    for lengths in (
        rng.integers(0, 90, 50),
        np.zeros(5, dtype=int),
        np.array([], dtype=int),
        np.array([0, 9, 0]),
    ):
        edges = share_edges(lengths, num_shares)
        assert (edges[0], edges[-1], len(edges)) == (0, len(lengths), num_shares + 1)
        assert edges == sorted(edges)
        for first, last in pairwise(edges):
            excess = lengths[first:last].sum() - lengths.sum() / num_shares
            assert abs(excess) <= lengths.max(initial=0) + 1


@pytest.mark.parametrize(
    ("processes", "window_documents", "num_workers"),
    [(2, 40, 0), (2, 40, 1), (3, 2, 0), pytest.param(3, 40, 2, marks=SLOW)],
)
def test_processes_tokenize_a_share_each_and_get_the_windows_of_one(
    fork_server, tmp_path, processes, window_documents, num_workers
):
    write_documents(tmp_path)
    expected = windows(tmp_path, window_documents, 0, rank=-1)
    program = "from tests.data.stream_program import main; main()"
    arguments = (str(tmp_path), str(window_documents), str(num_workers))
    run = fork_server.start(program, *arguments, processes=processes)
    status, said = fork_server.wait(run), run.output.read_text()
    assert status == 0, said
    tokenized: list[list[tuple[int, int]]] = []
    for rank in range(processes):
        assert json.loads((tmp_path / f"windows-{rank}.json").read_text()) == expected
        lines = [[*map(int, line.split())] for line in (tmp_path / f"tokenized-{rank}").open()]
        tokenized.append([(number // window_documents, length) for _, number, length in lines])
        readers = {process for process, _, _ in lines}
        assert len(readers) == 1 if num_workers == 0 else len(readers) > 1, "who reads ahead does so"
    numbers = [
        line.split()[1] for rank in range(processes) for line in (tmp_path / f"tokenized-{rank}").open()
    ]
    assert len(numbers) == len({*numbers}), "no document is tokenized twice"
    for window in {*ASKED}:
        own = [sum(length for number, length in each if number == window) for each in tokenized]
        assert max(own) <= sum(own) / processes + 97 * len("a tree. ") + 5
        assert sum(number == window for each in tokenized for number, _ in each) == window_documents
