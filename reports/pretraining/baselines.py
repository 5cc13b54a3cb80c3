"""What counting alone achieves: the trigram model that a trained network must beat.

Kneser and Ney (1995), interpolated as by Chen and Goodman (1999, section 4.1.6), with one discount per order:
a count gives D of itself away, and the tokens of the next shorter context share what was given in proportion
to how many different contexts they follow, not how often they occur. The shortest context falls back to
1 / V, so every token has a probability and they sum to one.

    p(w | u v) = max(c(u v w) - D, 0) / c(u v) + D n(u v) / c(u v) p(w | v)      n: different tokens after u v
    D = n1 / (n1 + 2 n2)                                                         n1, n2: counted once, twice

Legend: N tokens, D + 1 document offsets into them, V vocabulary.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True, eq=False)
class Discounted:
    """One order of the model: discounted counts of tokens after contexts, and what contexts give away."""

    base: int
    """A context and a token are one number: context * base + token."""
    entries: np.ndarray
    """The pairs of context and token that were seen, ascending."""
    shares: np.ndarray
    """The discounted count of each entry, divided by its context's count."""
    contexts: np.ndarray
    """The contexts that were seen, ascending."""
    given: np.ndarray
    """The probability that each context leaves to shorter ones."""

    @classmethod
    def fit(cls, entries: np.ndarray, counts: np.ndarray, base: int) -> Self:
        """Discount the counts of entries, which are ascending."""
        contexts, first, kinds = np.unique(entries // base, return_index=True, return_counts=True)
        totals = np.add.reduceat(counts, first)
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        # Tiny or odd texts may count nothing once or nothing twice; half a count is then a usual discount.
        discount = once / (once + 2 * twice) if once and twice else 0.5
        shares = (counts - discount) / np.repeat(totals, kinds)
        return cls(base, entries, shares, contexts, discount * kinds / totals)

    def interpolate(self, contexts: np.ndarray, tokens: np.ndarray, shorter: np.ndarray) -> np.ndarray:
        """Mix this order with what shorter contexts say (N,), who have all to say after unseen ones."""
        own = _look_up(self.entries, self.shares, contexts * self.base + tokens, missing=0.0)
        return own + _look_up(self.contexts, self.given, contexts, missing=1.0) * shorter


@dataclass(frozen=True, eq=False)
class TrigramModel:
    """Interpolated Kneser-Ney of order three."""

    vocab_size: int
    """Number of token ids, V."""
    orders: tuple[Discounted, Discounted, Discounted]
    """Contexts of no token, one token and two tokens."""

    @classmethod
    def fit(cls, tokens: np.ndarray, offsets: np.ndarray, vocab_size: int) -> Self:
        """Count the tokens (N,) of documents that begin at `offsets` (D + 1,): a corpus's `token_offsets`."""
        base = vocab_size + 1  # one more id stands before the beginning of a document
        if base > 2**21:
            raise ValueError(f"vocab_size is {vocab_size}, but trigrams are counted for at most {2**21 - 1}")
        pairs = _contexts(tokens, offsets, vocab_size) * base + tokens
        trigrams, counts = np.unique(pairs, return_counts=True)
        # Lower orders count in how many different longer contexts an entry stands.
        bigrams, bigram_counts = np.unique(trigrams % base**2, return_counts=True)
        unigrams, unigram_counts = np.unique(bigrams % base, return_counts=True)
        return cls(
            vocab_size,
            (
                Discounted.fit(unigrams, unigram_counts, base),
                Discounted.fit(bigrams, bigram_counts, base),
                Discounted.fit(trigrams, counts, base),
            ),
        )

    def log_probability(self, tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Score each token (N,) after the two before it in its document, in nats."""
        return np.log(self.probability(_contexts(tokens, offsets, self.vocab_size), tokens.astype(np.int64)))

    def probability(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the probability of tokens (N,) after contexts (N,): the numbers u * (V + 1) + v."""
        base = self.vocab_size + 1
        probability = np.full(len(tokens), 1 / self.vocab_size)
        for order, context in zip(
            self.orders, (np.zeros_like(contexts), contexts % base, contexts), strict=True
        ):
            probability = order.interpolate(context, tokens, probability)
        return probability


def _contexts(tokens: np.ndarray, offsets: np.ndarray, vocab_size: int) -> np.ndarray:
    """Number the two tokens before each token (N,); the id `vocab_size` stands before a document's first."""
    firsts = offsets[:-1][np.diff(offsets) > 0]
    seconds = offsets[:-1][np.diff(offsets) > 1] + 1
    last, last_but_one = np.roll(tokens, 1).astype(np.int64), np.roll(tokens, 2).astype(np.int64)
    last[firsts] = last_but_one[firsts] = last_but_one[seconds] = vocab_size
    return last_but_one * (vocab_size + 1) + last


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray, missing: float) -> np.ndarray:
    """Find each wanted key in ascending `keys`, or give `missing`."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], missing)
