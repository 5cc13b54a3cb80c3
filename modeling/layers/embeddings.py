"""From token ids to the first vectors of the residual stream.

Shapes: B batch, T positions, C model width, E width of token vectors.
"""

from torch import Tensor, nn

from ..configuration_neural import NeuralConfig
from ..tracing import is_tracing
from .position_wise import Dropout, build_norm
from .positions import NoPositions


class Embeddings(nn.Module):
    """Sum of token, segment and absolute position vectors, optionally scaled and normalized.

    Vectors of another width than the model's are projected to it, so that a large vocabulary need not cost
    many parameters (ALBERT: Lan et al., 2020, section 3.1; ELECTRA: Clark et al., 2020, section 3.2).
    """

    def __init__(self, config: NeuralConfig, positions: NoPositions):
        super().__init__()
        width = config.embedding_width
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.token_types = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.positions = positions
        self.norm = build_norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)
        is_projected = width != config.hidden_size
        self.projection = nn.Linear(width, config.hidden_size) if is_projected else nn.Identity()
        self.scale = width**0.5 if config.scale_embedding else 1.0

    def forward(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor,
    ) -> Tensor:
        """Embed tokens (B, T), or take their vectors (B, T, E), and add position and segment: (B, T, C).

        Raises:
            ValueError: If segments are given to a model that has no embedding for them.
        """
        x = look_up(self.embed_tokens, input_ids) if inputs_embeds is None else inputs_embeds
        x = x * self.scale + self.positions.embed(position_ids)
        x = x + self.segments(token_type_ids, position_ids)
        # The stream has the type of the weights: positions are float32, and autocast projects in less.
        dtype = self.embed_tokens.weight.dtype
        return self.projection(self.dropout(self.norm(x.to(dtype)))).to(dtype)

    def segments(self, token_type_ids: Tensor | None, position_ids: Tensor) -> Tensor | float:
        """Vectors of the segments (B, T, E), by default the first segment's (E,); 0 if the model has none."""
        if self.token_types is not None:
            # The table is called, not indexed, since offloaded weights are fetched for calls.
            return self.token_types(position_ids.new_zeros(()) if token_type_ids is None else token_type_ids)
        if token_type_ids is not None:
            raise ValueError(
                "token_type_ids given, but type_vocab_size is 0: build the model with type_vocab_size=2, "
                "or remove 'token_type_ids' from the tokenizer's model_input_names"
            )
        return 0.0


def look_up(table: nn.Embedding, input_ids: Tensor | None) -> Tensor:
    """Look up the vectors of tokens (B, T): (B, T, E).

    Raises:
        ValueError: If one of them has none (found on the CPU).
    """
    if is_tracing():
        return table(input_ids)
    try:
        return table(input_ids)
    except IndexError:
        assert input_ids is not None
        first, last = input_ids.aminmax()
        wrong = int(first if first < 0 else last)
        raise ValueError(
            f"input_ids hold {wrong}, but the model has {len(table.weight)} tokens: "
            "take the tokenizer that was saved with it, or model.resize_token_embeddings(len(tokenizer))"
        ) from None
