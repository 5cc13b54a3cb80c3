"""Where an answer starts and where it ends: the heads of question answering.

Shapes: B batch, T positions, C model width. Packed input is (1, N) instead of (B, T).
"""

from torch import Tensor, nn

from ..configuration_tercet import TercetConfig
from ..layers.dropout import Dropout
from ..layers.feed_forward import FEED_FORWARD
from ..layers.normalization import build_norm
from .classification import TokenClassificationHead, classifier_dropout


class LinearAnswerHead(TokenClassificationHead):
    """A linear layer (Devlin et al., 2019, section 4.2), behind what labels of tokens have before it."""

    def __init__(self, config: TercetConfig):
        super().__init__(config, num_labels=2)


class FeedForwardAnswerHead(nn.Module):
    """norm(x + f(x)) with a feed-forward network f, then a linear layer, as in transformers' BigBird."""

    def __init__(self, config: TercetConfig):
        super().__init__()
        self.feed_forward = FEED_FORWARD[config.feed_forward_type](config)
        self.norm = build_norm(config)
        self.dropout = Dropout(classifier_dropout(config))
        self.out_proj = nn.Linear(config.hidden_size, 2)

    def forward(self, states: Tensor) -> Tensor:
        """Score each token as the first and as the last of an answer: (B, T, C) -> (B, T, 2)."""
        transformed = self.dropout(self.feed_forward(self.dropout(states)))
        return self.out_proj(self.norm(states + transformed))


ANSWER_HEADS: dict[str, type[nn.Module]] = {"linear": LinearAnswerHead, "feed_forward": FeedForwardAnswerHead}
"""By the `answer_head` of a configuration."""
