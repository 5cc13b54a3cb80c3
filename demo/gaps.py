"""How often the encoder finds a hidden word of a held-out sentence, beside counting.

The word is the one nearest the middle of a sentence that is one token of five letters or more. Only such
words are guessed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .measured import Measured
from .neighbours import NeighbourCounts
from .samples import NUM_GUESSES, SHORTEST_WORD, FilledMask, evenly_spaced, fill_mask, long_words, neighbours

NUM_GAPS = 600
WORDS = re.compile(r"\w+|[^\w\s]")
"""Words and marks."""

TRAINED = "this encoder"
COUNTING = "counting neighbours"
FREQUENT = "most frequent words"

EDGE = ""
"""What stands beside the first word and the last one."""


@dataclass(frozen=True)
class Gaps:
    """What was found in the gaps, by who looked for it."""

    first: Mapping[str, Measured]
    """Whether the first guess is right."""
    among: Mapping[str, Measured]
    """Whether one of five guesses is right."""


def measure_gaps(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    held_out: Sequence[str],
    read: Iterable[str],
) -> Gaps:
    """Hide words of held-out sentences, and look for them.

    Args:
        model: From `AutoModelForMaskedLM`.
        tokenizer: Its own.
        held_out: Texts that were not learned from.
        read: Texts that were.
    """
    chosen = evenly_spaced(list(neighbours(held_out, tokenizer)), NUM_GAPS)
    allowed = long_words(tokenizer).to(model.device)
    filled = [fill_mask(model, tokenizer, *gap, allowed=allowed) for gap in chosen]
    counts = NeighbourCounts.fit(triple for text in read for triple in words_between(text))
    frequent = counts.most_frequent(NUM_GUESSES)
    guesses = {
        TRAINED: [[word for word, _ in own.guesses] for own in filled],
        COUNTING: [counts.best(*beside(own), NUM_GUESSES) for own in filled],
        FREQUENT: [frequent for _ in filled],
    }
    truths = [own.truth.lower() for own in filled]
    return Gaps(
        {name: found(own, truths, 1) for name, own in guesses.items()},
        {name: found(own, truths, NUM_GUESSES) for name, own in guesses.items()},
    )


def found(guesses: Sequence[Sequence[str]], truths: Sequence[str], count: int) -> Measured:
    """Return which truths are among the first so many guesses."""
    pairs = zip(guesses, truths, strict=True)
    return Measured(np.array([truth in map(str.lower, own[:count]) for own, truth in pairs], dtype=float))


def words_between(text: str) -> Iterator[tuple[str, str, str]]:
    """List the words that might be hidden, in lower case, each between its neighbours."""
    words = [EDGE, *WORDS.findall(text.lower()), EDGE]
    for place in range(1, len(words) - 1):
        if len(words[place]) >= SHORTEST_WORD and words[place].isalpha():
            yield words[place - 1], words[place], words[place + 1]


def beside(gap: FilledMask) -> tuple[str, str]:
    """Return what stands on both sides of a gap."""
    before, after = WORDS.findall(gap.before.lower()), WORDS.findall(gap.after.lower())
    return (before or [EDGE])[-1], (after or [EDGE])[0]
