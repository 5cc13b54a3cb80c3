"""Causal language modeling: predict every token from those before it (Radford et al., 2019, section 2).

    log p(x) = sum over t of log p(x_t | x_1 ... x_{t-1})

Legend: N packed tokens of the batch, n targets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..modeling import TercetDecoderForCausalLM
from ..text.chunks import FullSequences
from ..text.corpus import TokenizedCorpus
from ..text.tokenizer import frame_ids
from ..training.examples import ExampleSource, gather
from ..training.objective import Batch, Example
from .base_recipe import BaseObjectiveRecipe, Corpus, FullSequence, single_text
from .streams import one_stream
from .token_objective import OutputPositions, TokenObjective


class CausalLanguageModeling(TokenObjective):
    """Predict the next token of a decoder's input; the term is `clm`.

    The labels are the input itself: the model shifts them, and the first token of a sequence, which nothing
    precedes, is no target.
    """

    noise = "none"

    def __init__(self) -> None:
        super().__init__("clm")

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the examples; nothing is random."""
        batch = one_stream(gather(examples, "input_ids"))
        batch["labels"] = batch["input_ids"].clone()
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the tokens that follow another one of their sequence."""
        return {"clm": (batch["position_ids"] > 0).count_nonzero()}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum the cross-entropy of the next tokens."""
        return {"clm": model(**batch, reduction="sum").loss}

    def output_positions(self, batch: Batch) -> OutputPositions:
        """Find the tokens that follow another one: each is predicted at the position before it."""
        positions = torch.nonzero(batch["position_ids"][0] > 0).squeeze(1)
        return OutputPositions(positions - 1, batch["labels"][0, positions])


@dataclass(frozen=True)
class CausalLanguageModelingRecipe(BaseObjectiveRecipe):
    """Predict the next token (GPT)."""

    model_class = TercetDecoderForCausalLM
    template = "plain"

    kind: Literal["causal_language_modeling"]
    """Which objective this is."""

    def build(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        decoder_start_id: int | None = None,
    ) -> CausalLanguageModeling:
        """Build the objective."""
        return CausalLanguageModeling()

    def examples(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        isolate_documents: bool = True,
    ) -> FullSequences:
        """Cut sequences that begin with the beginning-of-sequence token; documents end with their own."""
        begin, end = frame_ids(tokenizer)
        text = single_text(corpus, self.kind)
        return FullSequences(text, sequence_length, begin, (), isolate_documents, document_end_ids=end)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        """Predict all tokens but the first."""
        return FullSequence(sequence_length, 0, sequence_length - 1)

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        """Count the bytes of the text that the sequences hold."""
        assert isinstance(source, FullSequences)
        return {"clm": bytes_of_sequences(single_text(corpus, self.kind), source)}


def bytes_of_sequences(corpus: TokenizedCorpus, sequences: FullSequences) -> int:
    """Count the bytes that the targets of sequences stand for: the text's, in proportion to its tokens.

    The first token of a sequence is no target, and tails too short for a sequence are left out. What ends a
    document is a target that stands for no byte.
    """
    targets = int(sequences.lengths.sum()) - len(sequences)
    possible = corpus.num_tokens + corpus.num_documents * len(sequences.document_end)
    return round(int(corpus.document_bytes.sum()) * targets / possible)
