"""Prefix language modeling: read the beginning of a text, write the rest (Raffel et al., 2020, section 3.3).

    text      Thank you for inviting me to your party last week .
    source    Thank you for inviting </s>
    target    me to your party last week . </s>

(Liu et al., 2018, train it in a decoder alone.) The prefix has any number of tokens, from one to all but one,
with equal probability. The encoder reads it in both directions.

There is no decoder-only form, in which the prefix of a decoder is read in both directions: its mask depends
on the text, and the kernels of packed attention know direction and window only.

Legend: L tokens of a text, S sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...data.chunks import FullSequences
from ...data.steps.examples import gather
from ...data.steps.objective import Example
from ...data.steps.packing import Ragged, stretches
from ...data.tokenizers.special_tokens import required_token_id
from ...modeling import TercetSeq2SeqForConditionalGeneration
from .denoising import append_eos
from .randomness import SequenceDraws
from .recipes import BaseObjectiveRecipe, Corpus, FullSequence, ObjectiveContext, Smoothing, single_text
from .teacher_forcing import CorruptedTexts, Pairs, TeacherForcing


class PrefixLanguageModeling(TeacherForcing):
    """Write what follows a prefix; the term is `prefix_lm`.

    Args:
        tokenizer: Has an end-of-sequence token.
        decoder_start_id: What the decoder reads first (T5: the padding token).
        label_smoothing: See `TeacherForcing`.
    """

    noise = "dynamic"

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, decoder_start_id: int, label_smoothing: float = 0.0
    ):
        super().__init__("prefix_lm", decoder_start_id, label_smoothing)
        self.eos_id = required_token_id(tokenizer, "eos", "prefix language modeling")

    def pairs(self, examples: Sequence[Example], seed: int) -> Pairs:
        ids = gather(examples, "input_ids")
        suffixes = draw_suffixes(ids.lengths - 1, SequenceDraws.of(examples, seed))
        return split_suffixes(ids, suffixes, self.eos_id)


def draw_suffixes(longest: np.ndarray, draws: SequenceDraws) -> np.ndarray:
    """Draw how many tokens are written (S,): from 1 to `longest` (S,), all equally likely."""
    return 1 + (draws.random_each() * longest).astype(np.int64)


def split_suffixes(ids: Ragged, suffixes: np.ndarray, eos_id: int) -> tuple[Ragged, Ragged]:
    """Cut the last `suffixes` (S,) tokens off some texts: what is left, and they, each with its end."""
    prefixes = ids.lengths - suffixes
    starts = ids.edges[:-1]
    return (
        append_eos(ids.values[stretches(starts, prefixes)].astype(np.int64), prefixes, eos_id),
        append_eos(ids.values[stretches(starts + prefixes, suffixes)].astype(np.int64), suffixes, eos_id),
    )


@dataclass(frozen=True)
class PrefixLanguageModelingRecipe(BaseObjectiveRecipe):
    """Write what follows a prefix (T5's prefix LM objective)."""

    TERMS = {"prefix_lm": ("tokens behind a prefix", "text2text-generation")}
    model_class = TercetSeq2SeqForConditionalGeneration
    template = "end"

    kind: Literal["prefix_language_modeling"]
    """Which objective this is."""
    label_smoothing: Smoothing = 0.0
    """Label smoothing: probability that is distributed over the whole vocabulary."""

    def build(self, context: ObjectiveContext) -> PrefixLanguageModeling:
        start_id = context.required_start_id(self.kind)
        return PrefixLanguageModeling(context.tokenizer, start_id, self.label_smoothing)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> CorruptedTexts:
        text = single_text(corpus, self.kind)
        texts = FullSequences(
            text, context.sequence_length, isolate_documents=context.isolate_documents, fewest_tokens=2
        )
        return CorruptedTexts(texts, texts.lengths + 2)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        # cut in the middle, as on average
        written = sequence_length // 2 + 1
        return FullSequence(sequence_length + 2 - written, written, written)
