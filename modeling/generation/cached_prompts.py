"""A prompt that is read into an empty cache: attention may read it packed, and the cache keeps it padded.

Where nothing is cached, a prompt attends to itself alone. Long prompts of sparse patterns can then be packed
and computed by blocks, as without a cache (`attention/block_sparse.py`). Tokens behind the prompt need its
keys and values as rows of the padded batch, with zeros at pads, which their masks forbid.

Shapes: B batch, S positions, M tokens of a packed stream, G key-value heads, D head width.
"""

from torch import Tensor
from transformers.cache_utils import Cache, EncoderDecoderCache

from ..attention.packing import Mask, PackedSequences
from ..tracing import is_tracing


def is_empty(cache: Cache | None) -> bool:
    """Return whether a cache is known to hold nothing, neither of the text nor of an encoder's output.

    A length that lies on another device is not waited for, and a graph that is made serves any length: the
    cache then counts as filled.
    """
    if cache is None:
        return True
    if is_tracing() or (isinstance(cache, EncoderDecoderCache) and any(cache.is_updated.values())):
        return False
    length: int | Tensor = cache.get_seq_length()
    return (isinstance(length, int) or length.is_cpu) and int(length) == 0


def extend(
    cache: Cache, key: Tensor, value: Tensor, layer_idx: int, mask: Mask
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Extend a layer of a cache by keys and values (B, G, S, D), or (1, G, M, D) of a packed prompt.

    Returns:
        What the layer then gives, padded; and what queries attend to, in their own layout.
    """
    padding = mask.key_padding if isinstance(mask, PackedSequences) else None
    if padding is None:
        cached = cache.update(key, value, layer_idx)
        return cached, cached
    padded_key, padded_value = (padding.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (key, value))
    return cache.update(padded_key, padded_value, layer_idx), (key, value)
