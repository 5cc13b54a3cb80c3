"""What is done to masked tokens, and when: the noise of masked language modeling.

`masking_units.py` says what is chosen at once.

Legend: N packed tokens of the batch, n chosen tokens, V ids of the tokenizer.
"""

from collections.abc import Sequence
from copy import copy

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..text.special_tokens import is_special, required_token_id
from ..training.examples import gather
from ..training.objective import IGNORE, Example
from .base_recipe import check_rate, check_share
from .masking_units import RANDOM_TOKEN, REPLACEMENT, MaskingUnit, Tokens, Words
from .randomness import Draws, GeneratedDraws, HashedDraws
from .token_objective import Noise

TOKENS, WORDS = Tokens(), Words()


class Corruption:
    """The replacement of chosen tokens: a function of tokens and randomness.

    Args:
        tokenizer: Has a mask token.
        mlm_probability: Share of the ordinary tokens that become targets.
        mask_replace_prob: Share of the targets that become [MASK].
        random_replace_prob: Share of the targets that become a random token of the vocabulary, never a
            special one.
        unit: What is chosen at once: `Tokens`, `Words` or `Spans`. The shares are of tokens in all cases.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        unit: MaskingUnit = TOKENS,
    ):
        self.mlm_probability = check_rate("mlm_probability", mlm_probability)
        self.mask_replace_prob = check_share("mask_replace_prob", mask_replace_prob)
        self.random_replace_prob = check_share("random_replace_prob", random_replace_prob)
        if (replaced := mask_replace_prob + random_replace_prob) > 1 + 1e-9:
            raise ValueError(
                f"mask_replace_prob + random_replace_prob is {replaced:g}, more than all targets: lower one "
                "of them"
            )
        self.unit = unit
        self.mask_id = required_token_id(tokenizer, "mask", "masked language modeling")
        self.special = is_special(tokenizer)  # (V,)
        self.ordinary_ids = np.flatnonzero(~self.special)

    def with_probability(self, mlm_probability: float) -> "Corruption":
        """Return the same corruption of another share of the tokens."""
        other = copy(self)
        other.mlm_probability = check_rate("mlm_probability", mlm_probability)
        return other

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, draws: Draws
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the packed `ids` (N,) of the examples; return them and their labels, both (N,)."""
        special = self.special[ids]
        choice = self.unit.choose(examples, special, self.mlm_probability, draws)
        chosen = np.flatnonzero(choice.is_target & ~special)  # (n,)
        labels = np.full_like(ids, IGNORE)
        labels[chosen] = ids[chosen]

        is_first = choice.is_first[chosen]
        draw = draws.uniform(chosen[is_first], REPLACEMENT)[is_first.cumsum() - 1]
        is_masked = draw < self.mask_replace_prob
        is_random = ~is_masked & (draw < self.mask_replace_prob + self.random_replace_prob)
        corrupted = ids.copy()
        corrupted[chosen[is_masked]] = self.mask_id
        randomized = chosen[is_random]
        random_ids = draws.below(len(self.ordinary_ids), randomized, RANDOM_TOKEN)
        corrupted[randomized] = self.ordinary_ids[random_ids]
        return corrupted, labels


class DynamicMasking:
    """A new corruption each time that an example is seen (Liu et al., 2019, section 4.1).

    Args:
        corruption: What is done to tokens.
        final_mlm_probability: Share of the tokens that become targets at the end of a run, if it changes on
            the way from that of `corruption`.
    """

    noise: Noise = "dynamic"

    def __init__(self, corruption: Corruption, final_mlm_probability: float | None = None):
        self.corruption = corruption
        self.final_mlm_probability = final_mlm_probability

    def at(self, progress: float) -> "DynamicMasking":
        """Return the masking at a point of a run, from 0 to 1: its probability changes linearly."""
        if self.final_mlm_probability is None:
            return self
        first = self.corruption.mlm_probability
        probability = first + progress * (self.final_mlm_probability - first)
        return DynamicMasking(self.corruption.with_probability(probability))

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the whole pack at once."""
        return self.corruption(examples, ids, GeneratedDraws(rng))


class StaticMasking:
    """The same corruption of an example in every epoch and every batch: a function of `seed` and its `index`.

    BERT's data is masked once in this way (Devlin et al., 2019), and then repeated with several masks, which
    is not done here.
    """

    noise: Noise = "static"

    def __init__(self, corruption: Corruption, seed: int):
        self.corruption = corruption
        self.seed = seed

    def at(self, progress: float) -> "StaticMasking":
        """Return the masking at a point of a run: it never changes."""
        return self

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the whole pack at once, by what each example is, and not by `rng`."""
        lengths = gather(examples, "input_ids").lengths
        draws = HashedDraws(self.seed, gather(examples, "index").values, lengths)
        return self.corruption(examples, ids, draws)
