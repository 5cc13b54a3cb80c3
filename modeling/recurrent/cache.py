"""The cache of a recurrent decoder: a state of fixed size, however many tokens it stands for.

Shapes: B batch, L layers, P parts of a state, C width, H heads, S source positions, D width of a head.
"""

from torch import Tensor
from transformers.cache_utils import Cache


class RecurrentCache(Cache):
    """What a decoder remembers between steps; to transformers, a cache that can be reordered for beams.

    Args:
        state: Of all layers behind the last token, (B, L, P, C).
        keys: Prepared states of the encoder (B, H, S, D), if the decoder attends to them.
        num_tokens: How many tokens the decoder has read, pads included.
    """

    def __init__(self, state: Tensor, keys: Tensor | None, num_tokens: int):
        super().__init__(layers=[])
        self.state, self.keys, self.num_tokens = state, keys, num_tokens

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Count the tokens that the decoder has read."""
        return self.num_tokens

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Return -1: there is no maximum."""
        return -1

    @property
    def batch_size(self) -> int:
        """Count the sequences."""
        return len(self.state)

    @property
    def is_croppable(self) -> bool:
        """A state cannot be undone."""
        return False

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to forget tokens.

        Raises:
            ValueError: Always, unless there is nothing to remove.
        """
        if tokens_to_remove:
            raise ValueError(
                f"crop({tokens_to_remove}) of the cache of a recurrent decoder: its state holds no single "
                "tokens, so read the tokens anew, and generate without an assistant"
            )

    def reset(self) -> None:
        """Refuse to start anew: a decoder begins with the final state of its encoder.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "reset() of the cache of a recurrent decoder: pass past_key_values=None to start anew"
        )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take the beams that go on, by their numbers (B,)."""
        self.batch_select_indices(beam_idx.to(self.state.device))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the sequences with these numbers, in this order."""
        self.state = self.state[indices]
        self.keys = None if self.keys is None else self.keys[indices]

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence."""
        self.state = self.state.repeat_interleave(repeats, dim=0)
        self.keys = None if self.keys is None else self.keys.repeat_interleave(repeats, dim=0)
