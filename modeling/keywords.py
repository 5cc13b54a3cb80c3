"""The type of what a `forward` passes on: to its stack, to attention kernels, and to losses."""

from typing import TYPE_CHECKING, Any, Unpack

from transformers.utils.generic import TransformersKwargs

if TYPE_CHECKING:  # whose names overlap with arguments that stand in our signatures, which checkers refuse
    Keywords = Any
else:
    Keywords = Unpack[TransformersKwargs]
    """What transformers looks for in a signature, to know that keywords reach the attention kernel."""
