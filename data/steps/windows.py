"""Examples of a text of any size: an epoch is a window of it, drawn without a list of what there is.

    text      | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |         blocks of neighbouring examples
    pass 0    window 0: 7 2 0    window 1: 9 4 5 8    window 2: 1 6 3
    pass 1    window 3: 3 8 7    ...                            every block once in a pass

A plan of all examples would need memory for each of them, on every process. A window is planned as an epoch
of a small text is. Its blocks are places of a pseudorandom permutation, each of which is computed by itself:
so any window of any pass is found at once, and a run resumes there, with as many processes as it likes.

The permutation is a Feistel network (Luby and Rackoff, 1988), walked along its cycles until a number is in
range (Black and Rogaway, 2002).

Legend: B blocks, n numbers.
"""

from collections.abc import Callable, Sequence

import numpy as np

from .examples import Examples, ExampleSource
from .weighting import WeightedExamples, WeightedSource

ROUNDS = 6
"""Of the network: four make a permutation that no one tells from a random one by asking for numbers."""


class WindowedSource:
    """An `ExampleSource` whose epochs are windows.

    Args:
        make_block: Makes the examples of a block, by its number and by that of the pass.
        num_blocks: B.
        blocks_of_window: How many a window has, about.
    """

    def __init__(
        self, make_block: Callable[[int, int], Examples], num_blocks: int, blocks_of_window: int, seed: int
    ):
        self.make_block = make_block
        self.num_blocks = num_blocks
        self.windows = max(num_blocks // blocks_of_window, 1)
        """How many windows a pass has."""
        self.seed = seed
        self._latest: tuple[int, WeightedExamples] | None = None

    def epoch(self, number: int) -> WeightedExamples:
        """Make the examples of window `number`; those of the latest one are remembered."""
        if self._latest is None or self._latest[0] != number:
            lap, window = divmod(number, self.windows)
            first, last = (self.num_blocks * edge // self.windows for edge in (window, window + 1))
            blocks = permuted(np.arange(first, last), self.num_blocks, [4, self.seed, lap])
            parts = [self.make_block(int(block), lap) for block in blocks]
            every = [np.arange(len(part)) for part in parts]
            self._latest = number, WeightedExamples(parts, every, [0] * len(parts), [lap] * len(parts))
        return self._latest[1]


def windows_of(source: ExampleSource) -> int:
    """Count the epochs that a pass over a text takes: its windows, or one."""
    return source.windows if isinstance(source, WindowedSource) else 1


def tokens_of_pass(source: ExampleSource) -> int:
    """Count the tokens of a pass over a text, or over each of several."""
    if isinstance(source, WeightedSource):
        return sum(map(tokens_of_pass, source.sources.values()))
    return sum(int(np.sum(source.epoch(number).lengths)) for number in range(windows_of(source)))


def permuted(numbers: np.ndarray, size: int, seed: Sequence[int]) -> np.ndarray:
    """Return where a permutation of the numbers below `size`, which `seed` decides, sends some of them (n,).

    >>> sorted(permuted(np.arange(5), 5, [0]).tolist())
    [0, 1, 2, 3, 4]
    """
    bits = np.uint64(max(-(-(size - 1).bit_length() // 2), 1))
    mask = np.uint64((1 << int(bits)) - 1)
    keys = np.random.SeedSequence(seed).generate_state(ROUNDS, np.uint64)
    found = numbers.astype(np.uint64)
    outside = np.ones(len(found), dtype=bool)
    while outside.any():
        left, right = found[outside] >> bits, found[outside] & mask
        for key in keys:
            left, right = right, left ^ (splitmix(right + key) & mask)
        found[outside] = (left << bits) | right
        outside = found >= size
    return found.astype(np.int64)


def splitmix(states: np.ndarray) -> np.ndarray:
    """Hash 64-bit states: SplitMix64's output, variant 13 of Stafford's mixers."""
    mixed = states ^ (states >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
