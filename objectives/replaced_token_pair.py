"""ELECTRA's generator and discriminator as one module (Clark et al., 2020, sections 2 and 3.2).

    original    the chef cooked the meal
    masked      [MASK] chef [MASK] the meal          read by the generator, which predicts the masked tokens
    corrupted   the chef ate the meal                its samples in their places; read by the discriminator
    labels       0   0    1   0   0                  a sample that is the original token is no replacement

Nothing is adversarial: the generator learns by maximum likelihood alone, and no gradient passes through the
samples. The two share the embeddings: tokens, positions, segments and their norm, as in the authors' code.
The generator projects them to its own width.

Legend: N packed tokens, n masked tokens, C width of the generator, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..modeling import (
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForReplacedTokenDetection,
)
from ..training.objective import IGNORE, Batch
from .joint_model import JointModel, share_parameters

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
        config: Of the discriminator.
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
            z_loss: Of the generator's predictions; see `LossArguments`.
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
        return torch.cat([sample_tokens(self.generator.compute_logits(part), own) for part, own in parts])


def sample_tokens(logits: Tensor, draws: Tensor) -> Tensor:
    """Sample a token (n,) from each softmax of logits (n, V), decided by draws (n,) from [0, 1).

    A draw falls into the interval of one token if the probabilities are laid end to end (inverse transform
    sampling).

    >>> probabilities = torch.tensor([[0.5, 0.2, 0.3]])
    >>> [sample_tokens(probabilities.log(), torch.tensor([draw])).item() for draw in (0.0, 0.49, 0.6, 0.9)]
    [0, 0, 1, 2]
    """
    ends = logits.float().softmax(dim=-1).cumsum(dim=-1)
    found = torch.searchsorted(ends, draws[:, None] * ends[:, -1:], right=True).squeeze(1)
    return found.clamp(max=logits.shape[-1] - 1)


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
