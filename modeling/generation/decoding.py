"""Faster generation: what is chosen from the logits, and when it ends, is transformers' own code.

Whatever the strategy, on a CPU linear layers multiply by prepacked weights, and caches grow in place. A call
of `forward` that is a plain step behind the prompt, one more token for each text and nothing besides, is
`decode_step`. Calls of another shape, and versions of transformers that this code was not tested with, are
left to `forward` itself.

transformers' dynamic cache concatenates, so that every step copies all keys and values so far. Here they lie
in a buffer of up to twice their size, and the cache shows the part of it that is filled. All else that caches
can do (to be cropped, repeated, reordered for beams) is transformers'; what has come about in such a way goes
into a new buffer with the next step.

Prompts in chunks (`prefill_chunk_size`) are cut by transformers as those of decoders alone: of a model with
an encoder it cuts `attention_mask`, which is the source's, to the length of the target.

Shapes: B batch, G key-value heads, S positions, D head width.
"""

from abc import abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, wraps
from inspect import Parameter, signature
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import ModelOutput

from ..attention.packing import Layout, Masks, is_empty, of_target
from ..attention.patterns import PATTERNS
from ..compatibility import CACHE, is_tested, is_tracing, with_one_cache
from ..configuration_tercet import TercetConfig
from ..layers.position_wise import is_untouched
from ..pretrained import TercetLMHeadModel
from ..stack import TercetStack
from .prepacked_weights import prepacked_weights


def refuse_prompt_chunks(
    model: GenerationMixin,
    inputs: Any = None,
    generation_config: GenerationConfig | None = None,
    *_: Any,
    **kwargs: Any,
) -> None:
    """Raise a `ValueError` if a sequence-to-sequence model is to read the target's beginning in chunks.

    The arguments are those of `generate`.
    """
    defaults = generation_config or model.generation_config
    size = kwargs.get("prefill_chunk_size", defaults and defaults.prefill_chunk_size)
    if size is not None:
        raise ValueError(
            f"prefill_chunk_size is {size}, but transformers cuts prompts of "
            "decoders only, and would cut the mask of a source: leave it out"
        )


MIN_SPARE_POSITIONS = 128
"""Least number of positions that a new buffer has beyond those that are filled."""


class Buffer:
    """Storage for keys or values (B, G, S, D), larger than what is filled."""

    def __init__(self) -> None:
        self.storage = self.filled = torch.empty(0, 0, 0, 0)

    def append(self, present: Tensor | None, new: Tensor) -> Tensor:
        """Return `present` and then `new`: what is present stays where it is, if it came from here."""
        start = 0 if present is None or not present.numel() else present.shape[-2]
        end = start + new.shape[-2]
        is_closed = self.storage.is_inference() and not torch.is_inference_mode_enabled()
        if present is not self.filled or end > self.storage.shape[-2] or is_closed:
            self.storage = new.new_empty(*new.shape[:-2], end + max(end, MIN_SPARE_POSITIONS), new.shape[-1])
            if present is not None and start:
                self.storage[..., :start, :] = present
        self.storage[..., start:end, :] = new
        self.filled = self.storage[..., :end, :]
        return self.filled


BUFFERS = ("key_buffer", "value_buffer")
"""What a growing layer has beside what transformers' own has."""


class GrowingLayer(DynamicLayer):
    """The keys and values of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.key_buffer, self.value_buffer = Buffer(), Buffer()

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, G, T, D), and give all of them, (B, G, S, D).

        Where a gradient may need them unchanged, or a graph is made, they are concatenated as before.
        """
        if torch.is_grad_enabled() or is_tracing():
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self.key_buffer.append(self.keys, key_states)
        self.values = self.value_buffer.append(self.values, value_states)
        return self.keys, self.values


def make_growing(cache: Cache | None) -> None:
    """Let a dynamic cache grow in place, new or filled; beside an encoder, the part that grows at all."""
    cache = of_target(cache)
    if type(cache) is DynamicCache and not cache.offloading and not is_tracing():
        cache.layers = [converted(layer, DynamicLayer, GrowingLayer) for layer in cache.layers]


def make_dynamic(cache: Cache | None) -> None:
    """Make a cache transformers' own again, without spare capacity, to be kept, copied or exported."""
    if (cache := of_target(cache)) is not None:
        cache.layers = [converted(layer, GrowingLayer, DynamicLayer) for layer in cache.layers]


def converted(layer: Any, kind: type[DynamicLayer], into: type[DynamicLayer]) -> Any:
    """Convert a layer of exactly one kind into another kind, with what it holds; others stay as they are."""
    if type(layer) is not kind:
        return layer
    result = into()
    vars(result).update({name: value for name, value in vars(layer).items() if name not in BUFFERS})
    if into is GrowingLayer:
        result.key_buffer, result.value_buffer = Buffer(), Buffer()  # pyright: ignore[reportAttributeAccessIssue]
    return result


def grows(cache: Cache | None) -> bool:
    """Return whether a cache, or the part of it that grows at all, does so in place."""
    cache = of_target(cache)
    layers = [] if cache is None else cache.layers
    return bool(layers) and all(type(layer) is GrowingLayer for layer in layers)


# transformers types its mixin's methods for a protocol that not even its own models meet.
# pyright: reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false


class Writing(NamedTuple):
    """A call of `generate` that is under way on a CPU.

    Args:
        model: The model that writes.
        parts: It and the models that it is made of: hooks may be added to each in the meantime.
        may_grow: Whether the cache may grow in place: it is not the caller's.
        can_step: Whether the model's steps behind the prompt may be `decode_step`.
    """

    model: nn.Module
    parts: list[PreTrainedModel]
    may_grow: bool
    can_step: bool


_writing: ContextVar[Writing | None] = ContextVar("writing", default=None)


def by_steps(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Let a model's `forward` be its `decode_step` where `generate` writes a text token by token.

    A call with any other argument than `decode_step` has, with more than one token a row, or with another
    cache than one that grows, is computed as it is written.
    """

    @wraps(forward)
    def forward_or_step(self: TercetGenerativeModel, *args: Any, **kwargs: Any) -> Any:
        writing = None if is_tracing() else _writing.get()
        if writing is None or writing.model is not self:
            return forward(self, *args, **kwargs)
        can_step = writing.can_step and not args and all(map(is_untouched, writing.parts))
        if can_step and (step := step_of(type(self), kwargs)) is not None:
            return self.decode_step(**step)
        if writing.may_grow:
            make_growing(kwargs.get("cache"))
        return forward(self, *args, **kwargs)

    return forward_or_step


def step_of(kind: type[nn.Module], arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `decode_step` if those of `forward` ask for nothing else."""
    tokens, known, required = step_arguments(kind)
    given = {name: value for name, value in arguments.items() if value is not None}
    is_plain = (
        given.pop("use_cache", True) is True
        and given.pop("return_dict", True) is True
        and isinstance(given.pop("logits_to_keep", 0), int)
    )
    if not is_plain or not required <= given.keys() <= known:
        return None
    return given if given[tokens].shape[1] == 1 and grows(given["cache"]) else None


@cache
def step_arguments(kind: type[nn.Module]) -> tuple[str, frozenset[str], frozenset[str]]:
    """Return the arguments of a class's `decode_step`: that of the tokens, all, and the required ones."""
    parameters = list(signature(cast(Any, kind).decode_step).parameters.values())[1:]
    required = frozenset(each.name for each in parameters if each.default is Parameter.empty)
    return parameters[0].name, frozenset(each.name for each in parameters), required


class TercetGenerativeModel(TercetLMHeadModel, GenerationMixin):
    """A model that writes, one token after the other. Abstract: the members say what a step is."""

    @abstractmethod
    def decode_step(self, *args: Any, **kwargs: Any) -> ModelOutput:
        """Predict what follows one more token of each sequence, as `forward` does, and extend the cache."""

    @wraps(GenerationMixin.generate)
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        kwargs = with_one_cache(kwargs, CACHE)
        if self.config.is_encoder_decoder:
            refuse_prompt_chunks(self, *args, **kwargs)
        if self.device.type != "cpu" or not is_tested():
            return super().generate(*args, **kwargs)
        writing, parts = None, models_in(self)
        if all(map(is_untouched, parts)):  # code that hooks, as transformers' exporters, finds its own caches
            writing = Writing(self, parts, CACHE not in kwargs, can_decode_step(self))
        with prepacked_weights(self):
            token = _writing.set(writing)
            try:
                result = super().generate(*args, **kwargs)
            finally:
                _writing.reset(token)
        if isinstance(result, ModelOutput):
            make_dynamic(result.get(CACHE))
        return result

    @wraps(GenerationMixin.init_continuous_batching)
    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        require_key_positions(self.config)
        return super().init_continuous_batching(*args, **kwargs)

    def create_masks_for_generate(
        self,
        inputs_embeds: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Masks | Tensor | None:
        """Build a step's masks ahead of it: transformers calls this where a cache is static, and compiled.

        A long prompt of sparse patterns has none: the forward pass, which is not compiled, finds its blocks.
        Without `position_ids` it would count them from the pads of this mask, and later steps would not.
        """
        decoder, cache = cast(TercetStack, self.get_decoder()), kwargs.get(CACHE)
        has_positions = attention_mask is None or position_ids is not None
        is_long = decoder.has_sparse_attention(inputs_embeds.shape[1], inputs_embeds.device)
        if has_positions and is_long and is_empty(cache):
            return attention_mask
        layout = Layout(cast(Tensor, position_ids))  # which no mask reads
        return decoder.masks(layout, inputs_embeds, attention_mask, False, cache)


def require_key_positions(config: TercetConfig) -> None:
    """Raise a `ValueError` if attention needs every key's position, which a paged cache does not keep."""
    if config.has_score_bias:
        raise ValueError(
            "continuous batching has a paged cache, but position_embedding_type="
            f"{config.position_embedding_type!r} needs the position of every key: use generate() with a "
            "padded batch"
        )
    needing = [kind for kind in dict.fromkeys(config.types_of_layers) if not PATTERNS[kind].is_window]
    if needing:
        raise ValueError(
            f"continuous batching has a paged cache, whose masks know no layers of type {needing[0]!r}: use "
            "generate() with a padded batch"
        )


def can_decode_step(model: TercetGenerativeModel) -> bool:
    """Return whether `decode_step` does what `forward` does: nothing is dropped or overridden."""
    return (
        not model.training
        and owner(model, "forward") is owner(model, "decode_step")
        and not (model.config.output_attentions or model.config.output_hidden_states)
        and set(model.get_decoder().config.types_of_layers) == {"full_attention"}
        and all(module.config._attn_implementation in ("eager", "sdpa") for module in models_in(model))
    )


def models_in(model: nn.Module) -> list[PreTrainedModel]:
    return [module for module in model.modules() if isinstance(module, PreTrainedModel)]


def owner(model: nn.Module, name: str) -> object:
    """Return the class, or the model itself, that a method comes from."""
    return model if name in vars(model) else next(base for base in type(model).__mro__ if name in vars(base))
