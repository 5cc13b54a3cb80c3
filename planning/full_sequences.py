"""What one full sequence of a recipe consists of: tokens that are read, positions that are scored.

A plan is made without text, so it takes every sequence to be as long as `corpus.sequence_length` allows.
"""

from dataclasses import dataclass

import numpy as np

from ..objectives.denoising import spoiled_lengths
from ..objectives.recipes import (
    CausalLanguageModelingRecipe,
    DenoisingRecipe,
    MaskedLanguageModelingRecipe,
    NextSentenceRecipe,
    SpanCorruptionRecipe,
    TranslationRecipe,
)
from ..objectives.span_corruption import corrupted_lengths, uncorrupted_length
from ..pretraining.recipe import PretrainingRecipe


@dataclass(frozen=True)
class FullSequence:
    """A sequence of full length; of a translation and its like, source and target together."""

    read: int
    """Tokens that the only stack, or the encoder, reads."""
    written: int
    """Tokens that a decoder beside an encoder reads and writes."""
    targets: float
    """Positions that reach the vocabulary, on average."""
    pairs: int = 0
    """Judgements whether one text follows another."""

    @property
    def tokens(self) -> int:
        """Tokens as a step counts them."""
        return self.read + self.written


def full_sequence(recipe: PretrainingRecipe) -> FullSequence:
    """Describe the longest sequence that a recipe's objective makes.

    Raises:
        ValueError: The recipe's sequences are too short for its objective.
    """
    length = recipe.corpus.sequence_length
    match recipe.objective:
        case MaskedLanguageModelingRecipe(rate=rate):
            return FullSequence(length, 0, rate * (length - 2))  # [CLS] and [SEP] are never targets
        case NextSentenceRecipe(rate=rate):
            return FullSequence(length, 0, rate * (length - 3), pairs=1)
        case CausalLanguageModelingRecipe():
            return FullSequence(length, 0, length - 1)
        case TranslationRecipe():
            return FullSequence(length, length, length)
        case SpanCorruptionRecipe(rate=rate, mean_span_length=mean):
            text = uncorrupted_length(length, rate, mean)
            read, written = (int(side[0]) for side in corrupted_lengths(np.array([text]), rate, mean))
        case DenoisingRecipe(rate=rate, mean_span_length=mean):
            read, written = (int(side[0]) for side in spoiled_lengths(np.array([length - 1]), rate, mean))
    return FullSequence(read, written, written)
