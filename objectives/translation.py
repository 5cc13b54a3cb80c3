"""Translation: write a text of one language in another (Vaswani et al., 2017), with teacher forcing.

Any pairs of texts do: summaries of articles, or numbers and their sorted order, are translations as well.

Legend: S sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..modeling import TercetRecurrentSeq2SeqForConditionalGeneration, TercetSeq2SeqForConditionalGeneration
from ..text.chunks import ParallelPairs
from ..text.special_tokens import required_token_id, target_language
from ..training.examples import ExampleSource, gather
from ..training.objective import Batch, Example
from .base_recipe import BaseObjectiveRecipe, Corpus, FullSequence, Smoothing, ZLoss, unsuited
from .scheduled_sampling import DRAWS, NOISE, DecoderReading, ScheduledSamplingRecipe
from .teacher_forcing import TeacherForcing, required_start_id
from .token_objective import without_targets


class Translation(TeacherForcing):
    """Write the target of a pair; the term is `translation`.

    Args:
        decoder_start_id: What the decoder reads first.
        label_smoothing: See `TeacherForcing`; 0.1 in the paper.
        z_loss: See `TokenObjective`.
        reading: What the decoder reads in training instead of the true tokens; by default nothing.
    """

    noise = "none"

    def __init__(
        self,
        decoder_start_id: int,
        label_smoothing: float = 0.1,
        z_loss: float = 0.0,
        reading: DecoderReading | None = None,
    ):
        super().__init__("translation", decoder_start_id, label_smoothing, z_loss)
        self.reading = reading

    def at(self, progress: float) -> "Translation":
        """Give the objective at a point of a run, where the decoder may read more of its predictions."""
        if self.reading is None:
            return self
        reading = replace(self.reading, progress=progress)
        return Translation(self.decoder_start_id, self.label_smoothing, self.z_loss, reading)

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack sources and targets, and choose what the decoder reads."""
        batch = super().collate(examples, rng)
        return batch if self.reading is None else self.reading.choose(batch, rng)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum the smoothed cross-entropy of the targets behind what the decoder reads."""
        return super().losses(model, batch if self.reading is None else self.reading.apply(model, batch))

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        """Score the targets behind the true tokens."""
        return super().scores(model, without_targets(batch, DRAWS, NOISE))

    def pairs(
        self, examples: Sequence[Example], rng: np.random.Generator
    ) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Take the pairs as they are: `input_ids` and `labels`, both with the end-of-sequence token."""
        return gather(examples, "input_ids"), gather(examples, "labels")


@dataclass(frozen=True)
class TranslationRecipe(BaseObjectiveRecipe):
    """Write the target text of a pair (Transformer, or recurrent layers)."""

    model_class = TercetSeq2SeqForConditionalGeneration
    other_model_classes = (TercetRecurrentSeq2SeqForConditionalGeneration,)
    template = "end"
    reads_pairs = True

    kind: Literal["translation"]
    """Which objective this is."""
    label_smoothing: Smoothing = 0.1
    """Label smoothing: probability that is distributed over the whole vocabulary."""
    z_loss: ZLoss = 0.0
    """Weight of the z-loss, the square of the logarithm of the softmax's normalizer: 1e-4 in PaLM."""
    scheduled_sampling: ScheduledSamplingRecipe | None = None
    """If set, the decoder reads its own predictions at some positions, more of them as the run goes on."""
    input_noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that a position of the decoder reads a random token of the batch's targets."""

    def build(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        decoder_start_id: int | None = None,
    ) -> Translation:
        """Build the objective."""
        start_id = required_start_id(decoder_start_id, self.kind)
        reads_truth = self.scheduled_sampling is None and self.input_noise == 0
        reading = None if reads_truth else DecoderReading(self.scheduled_sampling, self.input_noise)
        return Translation(start_id, self.label_smoothing, self.z_loss, reading)

    def examples(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        isolate_documents: bool = True,
    ) -> ParallelPairs:
        """Close both sides of each pair with the end-of-sequence token.

        Raises:
            ValueError: The corpus has no pairs, or the tokenizer has no such token, or marks languages.
        """
        if not isinstance(corpus, tuple):
            raise unsuited(self.kind)
        if codes := target_language(tokenizer):
            marks = ", ".join(tokenizer.convert_ids_to_tokens([*codes.values()]))
            raise ValueError(
                f"the tokenizer marks the language of a target ({marks}), but pairs of {self.kind} have no "
                f"such marks: use tercet finetune translation, which sets them"
            )
        closing = [required_token_id(tokenizer, "eos", self.kind)]
        return ParallelPairs(*corpus, sequence_length, closing)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        """Read and write as many tokens, and read them again for each pass that makes predictions."""
        whole = FullSequence(sequence_length, sequence_length, sequence_length)
        if self.scheduled_sampling is None:
            return whole
        passes = self.scheduled_sampling.count_passes(sequence_length)
        predictions = passes * self.scheduled_sampling.count_predictions(sequence_length)
        return replace(whole, passes=passes, predictions=predictions)

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        """Count the bytes of the texts to be written."""
        assert isinstance(source, ParallelPairs)
        return {"translation": int(source.target.document_bytes[source.documents].sum())}
