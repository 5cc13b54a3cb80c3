"""Replaced-token detection: a small masked language model replaces tokens, and an encoder finds the replaced
ones (ELECTRA; Clark et al., 2020, section 2).

    loss = cross-entropy of the generator on masked tokens
         + 50 * binary cross-entropy of the discriminator on all tokens

The discriminator learns from every token, the special ones included; the generator from the masked 15 %.
`replaced_token_pair.py` has the models. The numbers that decide the generator's samples are part of the
batch: the same step has the same ones in a resumed run, and on any number of processes.

Deviations: tokens are masked by their own coins, as in `masked_language_modeling.py`, where the paper takes a
fixed number. All targets become [MASK], as the paper says; the authors' code leaves 15 % of them as they are.

Legend: N packed tokens of a batch, n masked tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..modeling import (
    NeuralConfig,
    TercetEncoderConfig,
    TercetEncoderForReplacedTokenDetection,
    TercetPreTrainedModel,
)
from ..text.chunks import FullSequences
from ..text.tokenizer import frame_ids
from ..training.objective import IGNORE, Batch, Example, Objective
from ..training.run_folder import MODEL
from ..training.static_shapes import POSITIONS
from .base_recipe import Corpus, FullSequence, Share, Trainable, single_text
from .masked_language_modeling import MaskedLanguageModeling, MaskingRecipe
from .replaced_token_pair import ReplacedTokenOutput, ReplacedTokenPair
from .token_objective import token_scores, without_targets

GENERATOR = "generator"
"""Folder of the finished generator, and its name in what is trained."""

DRAWS = "draws"
"""In a batch: numbers from [0, 1), one for each token, that decide what the generator samples."""


class ReplacedTokenDetection(Objective):
    """Predict masked tokens, and find those that predictions have replaced; the terms are `mlm` and `rtd`.

    Args:
        masked_language_modeling: Masks tokens, and gives the first term.
        discriminator_weight: What the second term counts; lambda in the paper.
    """

    def __init__(self, masked_language_modeling: MaskedLanguageModeling, discriminator_weight: float = 50.0):
        self.weights = {"mlm": 1.0, "rtd": discriminator_weight}
        self.masked_language_modeling = masked_language_modeling

    def at(self, progress: float) -> "ReplacedTokenDetection":
        """Give the objective at a point of a run, whose masking may have changed."""
        return ReplacedTokenDetection(self.masked_language_modeling.at(progress), self.weights["rtd"])

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack and mask the examples; `draws` (1, N) decide the replacements."""
        batch = self.masked_language_modeling.collate(examples, rng)
        batch[DRAWS] = torch.from_numpy(rng.random(batch["input_ids"].shape, dtype=np.float32))
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the masked tokens, and all tokens."""
        return self.masked_language_modeling.targets(batch) | {"rtd": torch.ones_like(batch["labels"]).sum()}

    def predicted(self, batch: Batch) -> Tensor:
        """List the masked tokens, which the generator predicts."""
        return self.masked_language_modeling.predicted(batch)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum the cross-entropy of the masked tokens, and the binary one of all tokens."""
        output = self.call(model, batch)
        return {"mlm": output.mlm_loss, "rtd": output.rtd_loss}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        """Score the predictions of masked tokens, and the judgements of all tokens."""
        output = self.call(model, batch)
        assert output.mlm_logits is not None
        hits = (output.rtd_logits > 0) == (output.replaced == 1)
        labels = batch["labels"][batch["labels"] != IGNORE]
        return {
            "mlm": token_scores(output.mlm_logits[0], labels),
            "rtd": {"loss": output.rtd_loss, "accuracy": hits.sum()},
        }

    def call(self, model: nn.Module, batch: Batch) -> ReplacedTokenOutput:
        """Let a `ReplacedTokenPair` read a batch."""
        masked, draws = self.masked_language_modeling, batch[DRAWS]
        inputs, places = without_targets(batch, "labels", DRAWS, POSITIONS), masked.output_positions(batch)
        filling = draws.isnan() if POSITIONS in batch else None
        return model(inputs, *places, draws[0, places.positions], masked.z_loss, filling)


@dataclass(frozen=True)
class ReplacedTokenDetectionRecipe(MaskingRecipe):
    """Find tokens that a small masked language model has replaced (ELECTRA)."""

    model_class = TercetEncoderForReplacedTokenDetection
    saved = {MODEL: "discriminator", GENERATOR: GENERATOR}
    inheriting = ("discriminator",)

    kind: Literal["replaced_token_detection"]
    """Which objective this is."""
    mask_replace_prob: Share = 1.0
    """Share of the generator's targets that are replaced by [MASK] in what it reads."""
    random_replace_prob: Share = 0.0
    """Share of the generator's targets that are replaced by a random token in what it reads."""
    generator_size: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Hidden size, feed-forward size and attention heads of the generator, relative to the discriminator."""
    discriminator_weight: Annotated[float, Field(gt=0)] = 50.0
    """Weight of the discriminator's loss; the generator's is 1."""

    def build_model(self, config: NeuralConfig) -> ReplacedTokenPair:
        """Build generator and discriminator."""
        assert isinstance(config, TercetEncoderConfig)
        return ReplacedTokenPair(config, self.generator_size)

    def parts(
        self, model: Trainable, sequence_length: int
    ) -> Sequence[tuple[TercetPreTrainedModel, FullSequence]]:
        """List both models; the generator predicts once more to sample, which costs a forward pass."""
        assert isinstance(model, ReplacedTokenPair)
        masked = self.full_sequence(sequence_length).targets
        return [
            (model.discriminator, FullSequence(sequence_length, 0, 0, pairs=sequence_length)),
            (model.generator, FullSequence(sequence_length, 0, masked * (1 + 1 / 3), states=masked)),
        ]

    def build(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        decoder_start_id: int | None = None,
    ) -> ReplacedTokenDetection:
        """Build the objective."""
        masked = MaskedLanguageModeling(self.dynamic_masking(tokenizer), self.z_loss)
        return ReplacedTokenDetection(masked, self.discriminator_weight)

    def examples(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        isolate_documents: bool = True,
    ) -> FullSequences:
        """Cut sequences and frame them, [CLS] text [SEP]."""
        text = single_text(corpus, self.kind)
        return FullSequences(text, sequence_length, *frame_ids(tokenizer), isolate_documents)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        """Read all tokens, and mask a share of the text."""
        return FullSequence(sequence_length, 0, self.mean_mlm_probability * (sequence_length - 2))
