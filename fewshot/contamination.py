"""Which items stand in a corpus: those with an n-gram of words in common (Brown et al., 2020, appendix C).

Words are lower-case and without punctuation; of scripts without spaces, characters are words. N is the fifth
percentile of the items' lengths, at least 8 and at most 13. An item shorter than N cannot be judged.

Legend: W words of a document, N words of an n-gram.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.documents import open_documents
from ..training.metrics.texts import LettersOfEveryScript
from .prompts.items import Item

SHORTEST, LONGEST = 8, 13
"""Words of an n-gram, if the recipe does not say."""

PERCENTILE = 5
"""Of the items' lengths, where N lies."""

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, by whose powers places within an n-gram differ."""


@dataclass(frozen=True)
class Contamination:
    """What a corpus has in common with some items."""

    words: int
    """N."""
    is_touched: list[bool]
    """For each item, whether one of its n-grams stands in the corpus."""
    num_short: int
    """Items with fewer than N words, which count as clean."""
    num_documents: int
    """Documents of the corpus that were read."""

    def as_data(self) -> dict[str, Any]:
        """Return the counts."""
        return {
            "words": self.words,
            "items": len(self.is_touched),
            "touched": sum(self.is_touched),
            "short": self.num_short,
            "documents": self.num_documents,
        }


def find_contamination(
    items: Sequence[Item], corpus: str | Sequence[str], words: int | None = None
) -> Contamination:
    """Look for items in a corpus."""
    source = corpus if isinstance(corpus, str) else list(corpus)
    return compare([text_of(item) for item in items], open_documents(source), words)


def text_of(item: Item) -> str:
    return item.demonstration or (item.references or item.answers)[0]


def compare(texts: Sequence[str], documents: Iterable[str], words: int | None = None) -> Contamination:
    """Look for the n-grams of texts in documents."""
    own = [words_in(text) for text in texts]
    if words is None:
        percentile = np.percentile([len(each) for each in own], PERCENTILE)
        words = int(np.clip(percentile, SHORTEST, LONGEST))
    vocabulary = {
        word: number for number, word in enumerate(dict.fromkeys(w for each in own for w in each), 1)
    }
    codes = np.random.default_rng(0).integers(1, 2**64, size=len(vocabulary) + 1, dtype=np.uint64)
    grams = [
        ngrams(np.array([vocabulary[word] for word in each], dtype=np.int64), codes, words) for each in own
    ]
    wanted = np.unique(np.concatenate(grams)) if grams else np.empty(0, np.uint64)
    is_found, count = np.zeros(len(wanted), dtype=bool), 0
    for document in documents:
        count += 1
        numbers = np.array([vocabulary.get(word, 0) for word in words_in(document)], dtype=np.int64)
        found = ngrams(numbers, codes, words)
        places = np.searchsorted(wanted, found)
        places[places == len(wanted)] = 0
        if len(wanted):
            is_found[places[wanted[places] == found]] = True
    touched = [bool(is_found[np.searchsorted(wanted, each)].any()) for each in grams]
    return Contamination(words, touched, sum(len(each) < words for each in own), count)


def words_in(text: str) -> list[str]:
    """Split a text into what counts.

    >>> words_in("The U.S. Army, 模型")
    ['the', 'u', 's', 'army', '模', '型']
    """
    return LettersOfEveryScript().tokenize(text)


def ngrams(numbers: np.ndarray, codes: np.ndarray, length: int) -> np.ndarray:
    """Return a 64-bit code of every n-gram of words (W,), but those with an unknown word, which is 0."""
    if len(numbers) < length:
        return np.empty(0, dtype=np.uint64)
    of_words = codes[numbers]
    sums = np.zeros(len(numbers) - length + 1, dtype=np.uint64)
    for place in range(length):
        sums = sums * FACTOR + of_words[place : place + len(sums)]
    unknown = np.concatenate(([0], np.cumsum(numbers == 0)))
    return sums[unknown[length:] == unknown[:-length]]
