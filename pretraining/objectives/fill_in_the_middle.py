"""Fill in the middle: a decoder writes what stands between two texts (Bavarian et al., 2022, section 3).

    text    prefix middle suffix
    PSM     <fim_prefix> prefix <fim_suffix> suffix <fim_middle> middle </s>
    SPM     <fim_prefix> <fim_suffix> suffix <fim_middle> prefix middle </s>

A share of the sequences (`fim_rate`) is cut at two random places and rearranged, half of these as SPM
(`spm_rate`); the rest are read from left to right. All tokens are targets. SPM is the paper's second variant,
which lets both orders learn from each other. Whoever gives a model prefix and suffix, and ends with
`<fim_middle>` (SPM: with the prefix), gets the middle, which ends with the end-of-sequence token.

Sequences are rearranged as they are read ("context level", which the paper finds better than whole
documents), and belong to one document. Deviations: the two places are between tokens, not characters, as
corpora are tokenized once; a middle ends with the end-of-sequence token even if its document goes on, since
the model is to say that the middle is complete.

Legend: S sequences, N packed tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...data.steps.examples import ExampleSource, gather
from ...data.steps.objective import Example
from ...data.steps.packing import Ragged, stretches
from ...data.tokenizers.special_tokens import FIM_TOKENS, named_token_ids, required_token_id
from ...data.tokenizers.tokenizer import frame_ids
from ...modeling import TercetDecoderForCausalLM
from .causal_language_modeling import NextTokenPrediction, bytes_of_sequences, causal_sequences
from .randomness import SequenceDraws
from .recipes import BaseObjectiveRecipe, Corpus, FullSequence, ObjectiveContext, Share, single_text
from .teacher_forcing import CorruptedTexts

ADDED = len(FIM_TOKENS) + 1
"""Tokens that a sequence gains at most: those, and the end of the middle."""


class FillInTheMiddle(NextTokenPrediction):
    """Predict the next token of texts, some of which are rearranged; the term is `fill_in_the_middle`.

    Args:
        tokenizer: Has an end-of-sequence token and those of `FIM_TOKENS`.
        fim_rate: Share of the sequences that are rearranged.
        spm_rate: Share of these that are arranged as SPM, the others as PSM.
    """

    noise = "dynamic"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, fim_rate: float = 0.5, spm_rate: float = 0.5):
        super().__init__("fill_in_the_middle")
        self.fim_rate, self.spm_rate = fim_rate, spm_rate
        required_token_id(tokenizer, "eos", "filling in the middle")
        (self.end_id,) = frame_ids(tokenizer)[1]
        self.has_beginning = len(frame_ids(tokenizer)[0]) > 0
        self.fim_ids = named_token_ids(tokenizer, FIM_TOKENS, "filling in the middle")

    def sequences(self, examples: Sequence[Example], seed: int) -> Ragged:
        ids = gather(examples, "input_ids")
        draws, texts = SequenceDraws.of(examples, seed), self.texts_of(ids)
        is_rearranged, is_spm = (draws.random_each() < share for share in (self.fim_rate, self.spm_rate))
        numbers = draws.random(np.full(len(ids), 2)).reshape(-1, 2)
        places = (numbers * (texts[1] - texts[0] + 1)[:, None]).astype(np.int64)
        cuts = texts[0][:, None] + np.sort(places, axis=1)
        return self.rearrange(ids, texts, cuts, is_rearranged, is_spm)

    def texts_of(self, ids: Ragged) -> tuple[np.ndarray, np.ndarray]:
        """Find where the texts of packed sequences begin and end (S,), without what is put around them."""
        is_ended = ids.values[ids.edges[1:] - 1] == self.end_id
        return ids.edges[:-1] + self.has_beginning, ids.edges[1:] - is_ended

    def rearrange(
        self,
        ids: Ragged,
        texts: tuple[np.ndarray, np.ndarray],
        cuts: np.ndarray,
        is_rearranged: np.ndarray,
        is_spm: np.ndarray,
    ) -> Ragged:
        """Rearrange some of the packed sequences.

        Args:
            ids: The sequences.
            texts: Where their texts begin and end among the packed tokens (S,).
            cuts: Where the middle begins and ends among them (S, 2).
            is_rearranged: Which are rearranged (S,).
            is_spm: Which of these are arranged as SPM (S,).
        """
        values = np.concatenate([ids.values, self.fim_ids, [self.end_id]], dtype=np.int64)
        size = len(ids.values)
        before, middle_token, behind, end = (
            piece(np.full(len(ids), place), np.full(len(ids), place + 1))
            for place in range(size, size + ADDED)
        )
        opening, prefix = piece(ids.edges[:-1], texts[0]), piece(texts[0], cuts[:, 0])
        middle, suffix = piece(cuts[:, 0], cuts[:, 1]), piece(cuts[:, 1], texts[1])
        psm = np.stack([opening, before, prefix, behind, suffix, middle_token, middle, end], axis=1)
        spm = np.stack([opening, before, behind, suffix, middle_token, prefix, middle, end], axis=1)
        pieces = np.where(is_spm[:, None, None], spm, psm)  # (S, 8, 2)
        pieces[~is_rearranged, :, 1] = 0
        pieces[~is_rearranged, 0] = piece(ids.edges[:-1], ids.edges[1:])[~is_rearranged]
        starts, lengths = pieces[..., 0].ravel(), pieces[..., 1].ravel()
        return Ragged(values[stretches(starts, lengths)], pieces[..., 1].sum(axis=1))


def piece(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    return np.stack([starts, stops - starts], axis=-1)


@dataclass(frozen=True)
class FillInTheMiddleRecipe(BaseObjectiveRecipe):
    """Predict the next token, also of texts whose middle comes last (fill in the middle)."""

    TERMS = {"fill_in_the_middle": ("next tokens, middles included", "text-generation")}
    model_class = TercetDecoderForCausalLM
    template = "plain"
    special_tokens = FIM_TOKENS

    kind: Literal["fill_in_the_middle"]
    """Which objective this is."""
    fim_rate: Share = 0.5
    """Share of the sequences that are rearranged."""
    spm_rate: Share = 0.5
    """Share of these that begin with the suffix (SPM); the others begin with the prefix (PSM)."""

    def build(self, context: ObjectiveContext) -> FillInTheMiddle:
        return FillInTheMiddle(context.tokenizer, self.fim_rate, self.spm_rate)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> CorruptedTexts:
        # as for causal language modeling, with room for four tokens more
        if not context.isolate_documents:
            raise ValueError(
                "fill_in_the_middle rearranges the text of one document, but corpus.isolate_documents is "
                "false: set it to true"
            )
        shorter = replace(context, sequence_length=context.sequence_length - ADDED)
        texts = causal_sequences(single_text(corpus, self.kind), shorter)
        return CorruptedTexts(texts, texts.lengths + round(self.fim_rate * ADDED))

    def full_sequence(self, sequence_length: int) -> FullSequence:
        return FullSequence(sequence_length, 0, sequence_length - 1)

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        # what is added to the text stands for no bytes
        assert isinstance(source, CorruptedTexts)
        return {"fill_in_the_middle": bytes_of_sequences(single_text(corpus, self.kind), source.texts)}
