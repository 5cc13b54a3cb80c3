"""A text that is never held as a whole: its windows of documents, tokenized by all processes together.

    stream     | window 0 | window 1 | window 2 ...         begins again when it ends
    process 0  | # # . .  | # # . .  |                      each process reads all documents,
    process 1  | . . # #  | . . # #  |                      tokenizes its share (#) of each window,
                    |           |                           and gets the others' tokens through gloo
                 corpus      corpus                         the same on every process, for any number of them

Data workers neither read nor tokenize: they map the windows of their process, which writes them to temporary
files. Where there are such workers, one more process reads and tokenizes ahead, so that training does not
wait; only the processes of the run talk to each other.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from .corpus import ARRAYS, TokenizedCorpus, join_corpora, save_corpus
from .documents import Documents
from .files.problems import Tally
from .steps.examples import Examples, SharedSource
from .steps.exchange import gather_arrays, place_among_processes
from .steps.workers import AHEAD, DataCursor, PrefetchLoader

WINDOW_DOCUMENTS = 10_000
"""Documents of a window."""


class StreamedExamples(SharedSource):
    """Examples of a stream: an epoch is the next window of its documents, and epoch n always the n-th.

    Args:
        make_examples: Makes the examples of a window, by its corpus and its number: what is drawn is drawn
            anew when the text comes again.
    """

    def __init__(self, stream: "TokenizedStream", make_examples: Callable[[TokenizedCorpus, int], Examples]):
        self.stream = stream
        self.make_examples = make_examples
        self.latest: tuple[int, Examples] | None = None

    def epoch(self, number: int) -> Examples:
        if self.latest is None or self.latest[0] != number:
            self.latest = number, self.make_examples(self.stream.window(number), number)
        return self.latest[1]

    def share_with(self, num_workers: int) -> None:
        self.stream.share_with(num_workers)


class TokenizedStream:
    """The windows of a stream as corpora; several processes divide the tokenizing and get the same corpora.

    All processes of a launch ask for the same windows in the same order, as planning of steps does. The first
    window and the latest are kept; a run that resumes reads over those before its own, without tokenizing
    them.

    Args:
        count: Counts in each document what is told of, beside bad records.
    """

    def __init__(
        self,
        documents: Documents,
        tokenize: Callable[[Sequence[str]], TokenizedCorpus],
        window_documents: int = WINDOW_DOCUMENTS,
        count: Callable[[str, Tally], None] | None = None,
    ):
        self.documents = documents
        self.tokenize = tokenize
        self.window_documents = window_documents
        self.count = count
        self.kept: dict[int, TokenizedCorpus] = {}
        self.reach = 0
        """So many windows before the latest may still be asked for, by data workers."""
        self.folder: TemporaryDirectory | None = None
        self.reader: PrefetchLoader[TokenizedCorpus] | None = None
        self.next_read = 0
        self.owner = os.getpid()

    @cached_property
    def shares(self) -> "WindowShares":
        """Which part of each window this process tokenizes; the launch is known when the first is needed."""
        place = place_among_processes()
        return WindowShares(self.documents, self.tokenize, self.window_documents, *place, self.count)

    def share_with(self, num_workers: int) -> None:
        """Keep windows in files from now on, where data workers that are forked later find them.

        A worker may ask for a window as long as one of its steps is prepared. Windows are then read ahead.
        """
        self.reach = AHEAD * num_workers
        if self.reader is not None and not any(worker.is_alive() for worker in self.reader.workers):
            self.reader = None  # a run that is over has ended it
        if num_workers and self.folder is None:
            self.folder = TemporaryDirectory(prefix="tercet-stream-")

    def window(self, number: int) -> TokenizedCorpus:
        """Return window `number`: all processes call this, in the same order. A data worker finds it made."""
        if number not in self.kept:
            is_owner = os.getpid() == self.owner
            self.kept[number] = self._make(number) if is_owner else TokenizedCorpus.load(self._file(number))
            for old in [old for old in self.kept if not number - self.reach <= old <= number and old != 0]:
                del self.kept[old]
                if is_owner and self.folder is not None:
                    shutil.rmtree(self._file(old), ignore_errors=True)  # of those made before, there is none
        return self.kept[number]

    def _make(self, number: int) -> TokenizedCorpus:
        own = self._own_share(number)
        shares = gather_arrays([getattr(own, name) for name in ARRAYS])
        corpus = own if len(shares) == 1 else join_corpora([TokenizedCorpus(*arrays) for arrays in shares])
        if self.folder is None:
            return corpus
        num_ids = 2 ** (8 * corpus.tokens.itemsize)
        save_corpus([corpus], self._file(number), num_ids, corpus.tally)
        return TokenizedCorpus.load(self._file(number))

    def _own_share(self, number: int) -> TokenizedCorpus:
        # Perhaps from the process that reads ahead.
        if self.reach == 0:
            return self.shares[DataCursor(number, 0)]
        if self.reader is None or self.next_read != number:
            windows = (DataCursor(window, 0) for window in count(number))
            self.reader = PrefetchLoader(self.shares, windows, num_workers=1, pin_memory=False)
        share = next(self.reader)
        self.next_read = number + 1
        return share

    def _file(self, number: int) -> Path:
        assert self.folder is not None, "data workers were not announced by share_with"
        return Path(self.folder.name, str(number))


class WindowShares:
    """One process's shares of a stream's windows, tokenized: what is read ahead.

    A share is some neighbouring documents of a window, which has about as many characters as the others'.
    Arguments are those of `TokenizedStream`, and which process this is of how many.
    """

    def __init__(
        self,
        documents: Documents,
        tokenize: Callable[[Sequence[str]], TokenizedCorpus],
        window_documents: int,
        process_index: int = 0,
        num_processes: int = 1,
        count: Callable[[str, Tally], None] | None = None,
    ):
        self.documents = documents
        self.tokenize = tokenize
        self.window_documents = window_documents
        self.count = count
        self.process_index, self.num_processes = process_index, num_processes
        self._begin()

    def __getitem__(self, cursor: DataCursor) -> TokenizedCorpus:
        """Tokenize the share of the window at `cursor.epoch`, going on in the stream where that is possible.

        Forked processes, which share an open file and would move each other's place in it, begin anew.
        """
        if cursor.epoch < self.next_window or self.reader != os.getpid():
            self._begin()
        for _ in range(cursor.epoch - self.next_window):
            next(self.windows)
        window = next(self.windows)
        self.next_window = cursor.epoch + 1
        lengths = np.array([len(text) for text in window], dtype=np.int64)
        first, last = share_edges(lengths, self.num_processes)[self.process_index :][:2]
        return self.tokenize(window[first:last])

    def describe(self, cursor: DataCursor) -> str:
        return f"window {cursor.epoch} of the stream {self.documents.name}"

    def _begin(self) -> None:
        self.windows, self.next_window, self.reader = self._endless_windows(), 0, os.getpid()

    def _endless_windows(self) -> Iterator[Sequence[str]]:
        # The first process warns when it first has cause, and after each pass.
        name, tally, told = self.documents.name, Tally(), set[str]()

        def passes() -> Iterator[str]:
            nonlocal tally, told
            while True:
                tally = Tally()
                for text in self.documents.read(tally):
                    if self.count is not None:
                        self.count(text, tally)
                    yield text
                if self.process_index == 0:
                    tally.warn(name)
                    told |= tally.causes

        documents = passes()
        while True:
            window = list(islice(documents, self.window_documents))
            if self.process_index == 0 and tally.causes - told:
                tally.warn(f"{name}, as far as it is read")
                told |= tally.causes
            yield window


def share_edges(lengths: np.ndarray, num_shares: int) -> list[int]:
    """Cut a row of documents of some lengths into neighbouring shares of about equal sums; return the edges.

    A document belongs to the share that holds its middle; of a few long ones, a share may have none.

    >>> share_edges(np.array([5, 1, 1, 1, 2]), 2)
    [0, 1, 5]
    >>> share_edges(np.array([7]), 3)
    [0, 0, 1, 1]
    """
    middles = 2 * lengths.cumsum() - lengths
    goals = 2 * int(lengths.sum()) * np.arange(1, num_shares) // num_shares
    return [0, *np.searchsorted(middles, goals).tolist(), len(lengths)]
