"""Replaced-token detection: a small masked language model replaces tokens, and an encoder finds the replaced
ones (ELECTRA; Clark et al., 2020, section 2).

    loss = cross-entropy of the generator on masked tokens
         + 50 * binary cross-entropy of the discriminator on all tokens

The discriminator learns from every token, the special ones included; the generator from the masked 15 %.
The numbers that decide the generator's samples are part of the
batch: the same step has the same ones in a resumed run, and on any number of processes.

Deviations: tokens are masked by their own coins, as in `masked_language_modeling.py`, where the paper takes a
fixed number. All targets become [MASK], as the paper says; the authors' code leaves 15 % of them as they are.

ELECTRA's generator and discriminator as one module (Clark et al., 2020, sections 2 and 3.2).

    original    the chef cooked the meal
    masked      [MASK] chef [MASK] the meal          read by the generator, which predicts the masked tokens
    corrupted   the chef ate the meal                its samples in their places; read by the discriminator
    labels       0   0    1   0   0                  a sample that is the original token is no replacement

Nothing is adversarial: the generator learns by maximum likelihood alone, and no gradient passes through the
samples. The two share the embeddings: tokens, positions, segments and their norm, as in the authors' code.
The generator projects them to its own width.

Shapes: N packed tokens of a batch, n masked tokens, C width of the generator, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ...data.chunks import FullSequences
from ...data.steps.objective import IGNORE, Batch, Example, Objective
from ...data.steps.static_shapes import POSITIONS
from ...data.tokenizers.tokenizer import frame_ids
from ...modeling import (
    NeuralConfig,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForReplacedTokenDetection,
    TercetPreTrainedModel,
)
from ...training.run_folder import MODEL
from ...training.token_objective import sample_tokens, token_scores, without_targets
from .masked_language_modeling import MaskedLanguageModeling, MaskingRecipe
from .randomness import SequenceDraws
from .recipes import (
    Corpus,
    FullSequence,
    JointModel,
    ObjectiveContext,
    Share,
    Trainable,
    share_parameters,
    single_text,
)

LOGITS_AT_ONCE = 2**24
"""Logits that are held while tokens are sampled."""

OF_TRANSFORMERS = ("architectures", "model_type", "transformers_version", "auto_map", "dtype")
"""What `to_dict` adds to the fields of a configuration."""


class ReplacedTokenOutput(NamedTuple):
    """What the pair says of a batch."""

    mlm_loss: Tensor
    """The generator's cross-entropy, summed over the masked tokens."""
    rtd_loss: Tensor
    """The discriminator's binary cross-entropy, summed over all tokens."""
    mlm_logits: Tensor | None
    """The generator's, (1, n, V); none in training."""
    rtd_logits: Tensor
    """The discriminator's, (1, N): above 0 where a token seems replaced."""
    replaced: Tensor
    """1 where a token is replaced, else 0, (1, N); `IGNORE` at filling."""


class ReplacedTokenPair(JointModel):
    """A masked language model that replaces tokens, and an encoder that finds the replaced ones.

    Args:
        config: Configuration of the discriminator.
        generator_size: What the generator's widths and heads are of the discriminator's.
    """

    def __init__(self, config: TercetEncoderConfig, generator_size: float):
        discriminator = TercetEncoderForReplacedTokenDetection(config)
        super().__init__(discriminator)
        self.discriminator = discriminator
        self.generator = TercetEncoderForMaskedLM(generator_config(config, generator_size))
        embeddings = self.generator.model.embeddings
        share_parameters(embeddings, discriminator.model.embeddings, excluded=("projection.",))
        self.generator.tie_weights()

    def forward(
        self,
        batch: Batch,
        positions: Tensor,
        labels: Tensor,
        draws: Tensor,
        z_loss: float = 0.0,
        filling: Tensor | None = None,
    ) -> ReplacedTokenOutput:
        """Predict masked tokens, replace them by samples, and judge every token.

        Args:
            batch: What an encoder reads, with masked tokens: `input_ids` (1, N) and others.
            positions: Where tokens are masked (n,).
            labels: The original tokens there (n,).
            draws: Numbers from [0, 1) that decide the samples (n,).
            z_loss: Weight of the z-loss of the generator's predictions; see `LossArguments`.
            filling: Which tokens are none (1, N), if labels of some positions may be `IGNORE`; they are not
                judged.
        """
        states = self.generator.model(**batch, output_positions=positions).last_hidden_state
        mlm_loss, mlm_logits = self.generator.compute_loss_and_logits(
            states, labels[None], 0, {"reduction": "sum", "z_loss": z_loss}, is_selected=filling is not None
        )
        assert mlm_loss is not None
        samples = self.sample(states[0].detach(), draws)
        input_ids, replaced = batch["input_ids"].clone(), torch.zeros_like(batch["input_ids"])
        is_replaced = (samples != labels).long()
        if filling is not None:
            replaced, is_gap = replaced.masked_fill(filling, IGNORE), labels == IGNORE
            samples = torch.where(is_gap, input_ids[0, positions], samples)
            is_replaced = torch.where(is_gap, replaced[0, positions], is_replaced)
        input_ids[0, positions] = samples
        replaced[0, positions] = is_replaced
        corrupted = batch | {"input_ids": input_ids}
        output = self.discriminator(**corrupted, labels=replaced, reduction="sum")
        return ReplacedTokenOutput(mlm_loss, output.loss, mlm_logits, output.logits, replaced)

    @torch.no_grad()
    def sample(self, states: Tensor, draws: Tensor) -> Tensor:
        """Sample tokens (n,) from the generator's distributions at states (n, C), some at a time."""
        rows = max(1, LOGITS_AT_ONCE // self.generator.config.vocab_size)
        parts = zip(states.split(rows), draws.split(rows), strict=True)
        return torch.cat(
            [
                sample_tokens(self.generator.compute_logits(part), numbers, kind=torch.float32)
                for part, numbers in parts
            ]
        )


def generator_config(config: TercetEncoderConfig, size: float) -> TercetEncoderConfig:
    """Describe the generator of a discriminator: as many layers, and a share of the widths and heads.

    Heads stay as wide as they are, and token vectors as wide as the discriminator's (section 3.2, table 6).
    """
    heads = max(1, round(config.num_attention_heads * size))
    heads_per_key = config.num_attention_heads // (config.num_key_value_heads or 1)
    fields = {name: value for name, value in config.to_dict().items() if name not in OF_TRANSFORMERS}
    return type(config)(
        **fields
        | {
            "hidden_size": max(1, round(config.hidden_size * size)),
            "intermediate_size": max(1, round(config.intermediate_size * size)),
            "num_attention_heads": heads,
            "num_key_value_heads": heads if heads % heads_per_key else heads // heads_per_key,
            "embedding_size": config.embedding_width,
            "head_transform": True,
            "tie_word_embeddings": True,
        }
    )


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
        return ReplacedTokenDetection(self.masked_language_modeling.at(progress), self.weights["rtd"])

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # `draws` (1, N) decide the replacements
        batch = self.masked_language_modeling.collate(examples, seed)
        lengths = np.diff(batch["cu_seq_lens_q"].numpy())
        batch[DRAWS] = torch.from_numpy(SequenceDraws.of(examples, seed).random(lengths, np.float32))[None]
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return self.masked_language_modeling.targets(batch) | {"rtd": torch.ones_like(batch["labels"]).sum()}

    def predicted(self, batch: Batch) -> Tensor:
        return self.masked_language_modeling.predicted(batch)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output = self.call(model, batch)
        return {"mlm": output.mlm_loss, "rtd": output.rtd_loss}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
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

    TERMS = {**MaskingRecipe.TERMS, "rtd": ("replaced tokens", "other")}
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
        assert isinstance(config, TercetEncoderConfig)
        return ReplacedTokenPair(config, self.generator_size)

    def parts(
        self, model: Trainable, sequence_length: int
    ) -> Sequence[tuple[TercetPreTrainedModel, FullSequence]]:
        # the generator predicts once more to sample, which costs a forward pass
        assert isinstance(model, ReplacedTokenPair)
        masked = self.full_sequence(sequence_length).targets
        return [
            (model.discriminator, FullSequence(sequence_length, 0, 0, pairs=sequence_length)),
            (model.generator, FullSequence(sequence_length, 0, masked * (1 + 1 / 3), states=masked)),
        ]

    def build(self, context: ObjectiveContext) -> ReplacedTokenDetection:
        masked = MaskedLanguageModeling(self.dynamic_masking(context.tokenizer), self.z_loss)
        return ReplacedTokenDetection(masked, self.discriminator_weight)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> FullSequences:
        text = single_text(corpus, self.kind)
        return FullSequences(
            text, context.sequence_length, *frame_ids(context.tokenizer), context.isolate_documents
        )

    def full_sequence(self, sequence_length: int) -> FullSequence:
        return FullSequence(sequence_length, 0, self.mean_mlm_probability * (sequence_length - 2))
