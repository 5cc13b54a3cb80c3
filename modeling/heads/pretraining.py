"""Heads of pretraining: from hidden states to the vocabulary, and to the sentence relation.

Shapes: B batch, T positions, C model width, E width that the LM head reads.
"""

from torch import Tensor, nn

from ..configuration_neural import NeuralConfig
from ..layers.feed_forward import build_activation
from ..layers.normalization import build_norm


class HeadTransform(nn.Module):
    """A last non-linear step before the vocabulary, norm(act(W x + b)), as in BERT; `mlp_bias` gives it b.

    It leads to the width of token vectors that the head is tied to, as in ELECTRA's generator.
    """

    prepacks = True
    is_compiled_with_layers = True
    activated = ("dense", "act_fn")  # may be one product: see prepacked_weights

    def __init__(self, config: NeuralConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.head_width, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.norm = build_norm(config, config.head_width)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position: (B, T, C) -> (B, T, E)."""
        return self.norm(self.act_fn(self.dense(x)))


def build_head_transform(config: NeuralConfig) -> nn.Module:
    """Build the transform if the configuration has one.

    Raises:
        ValueError: If there is none, and states have another width than the LM head reads.
    """
    if not config.head_transform and config.head_width != config.hidden_size:
        raise ValueError(
            f"the LM head is tied to token embeddings of embedding_size ({config.embedding_size}), but "
            f"there is no projection from hidden_size ({config.hidden_size}): choose head_transform=True as "
            f"in "
            "ELECTRA, tie_word_embeddings=False, or the same size for both"
        )
    return HeadTransform(config) if config.head_transform else nn.Identity()


class NextSentenceHead(nn.Module):
    """Does B follow A? Read from the first token through a tanh layer (Devlin et al., 2019, section 3.1)."""

    def __init__(self, config: NeuralConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, 2)
        self.act_fn = nn.Tanh()

    def forward(self, first_token: Tensor) -> Tensor:
        """Scores of "follows" and "random": (B, C) -> (B, 2)."""
        return self.classifier(self.act_fn(self.dense(first_token)))


def keep_positions(hidden_states: Tensor, logits_to_keep: int | Tensor) -> Tensor:
    """Keep the last `logits_to_keep` positions (0: all), or those it lists: (B, T, C) -> (B, n, C)."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, slice(-logits_to_keep, None) if logits_to_keep else slice(None)]
    return hidden_states[:, logits_to_keep]
