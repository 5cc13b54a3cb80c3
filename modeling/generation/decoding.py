"""Faster generation: what is chosen from the logits, and when it ends, is transformers' own code.

Whatever the strategy, on a CPU linear layers multiply by prepacked weights, and caches grow in place. Greedy
decoding and sampling also leave the steps behind the prompt to a callable of the model's, where transformers
itself puts a compiled forward pass. Here it is `decode_step`, unless outputs are requested that only
`forward` returns.

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
from functools import wraps
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import CompileConfig, GenerationConfig, GenerationMixin
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import ModelOutput

from ..attention.packing import Masks, is_empty
from ..attention.patterns import PATTERNS
from ..configuration_tercet import TercetConfig
from ..layers.position_wise import is_untouched
from ..pretrained import TercetLMHeadModel
from ..stack import TercetStack
from ..tracing import is_tracing
from .prepacked_weights import are_in_use, prepacked_weights


def refuse_prompt_chunks(generation_config: GenerationConfig) -> None:
    """Raise a `ValueError` if a sequence-to-sequence model is to read the target's beginning in chunks."""
    if generation_config.prefill_chunk_size is not None:
        raise ValueError(
            f"prefill_chunk_size is {generation_config.prefill_chunk_size}, but transformers cuts prompts of "
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
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    if type(cache) is DynamicCache and not cache.offloading and not is_tracing():
        cache.layers = [converted(layer, DynamicLayer, GrowingLayer) for layer in cache.layers]


def make_dynamic(cache: Cache | None) -> None:
    """Make a cache transformers' own again, without spare capacity, to be kept, copied or exported."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    if cache is not None:
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
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    layers = [] if cache is None else cache.layers
    return bool(layers) and all(type(layer) is GrowingLayer for layer in layers)


# transformers types its mixin's methods for a protocol that not even its own models meet.
# pyright: reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false


STEP_ARGUMENTS = {
    "attention_mask",
    "encoder_outputs",
    "logits_to_keep",
    "past_key_values",
    "position_ids",
    "use_cache",
}
"""What `decode_step` understands of all that `generate` may pass on."""


class TercetGenerativeModel(TercetLMHeadModel, GenerationMixin):
    """A model that writes, one token after the other. Abstract: the members say what a step is."""

    @abstractmethod
    def decode_step(self, *args: Any, **kwargs: Any) -> ModelOutput:
        """Predict what follows one more token of each sequence, as `forward` does, and extend the cache."""

    @wraps(GenerationMixin.generate)
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate token ids: see `GenerationMixin.generate`."""
        if self.device.type != "cpu":
            return super().generate(*args, **kwargs)
        with prepacked_weights(self):
            result = super().generate(*args, **kwargs)
        if isinstance(result, ModelOutput):
            make_dynamic(result.get("past_key_values"))
        return result

    @wraps(GenerationMixin.init_continuous_batching)
    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Start continuous batching: see `GenerationMixin.init_continuous_batching`."""
        require_key_positions(self.config)
        return super().init_continuous_batching(*args, **kwargs)

    def create_masks_for_generate(
        self,
        inputs_embeds: Tensor,
        attention_mask: Tensor | None,
        past_key_values: Cache,
        position_ids: Tensor | None = None,
        **_: Any,
    ) -> Masks | Tensor | None:
        """Build a step's masks ahead of it: transformers calls this where a cache is static, and compiled.

        A long prompt of sparse patterns has none: the forward pass, which is not compiled, finds its blocks.
        Without `position_ids` it would count them from the pads of this mask, and later steps would not.
        """
        decoder = cast(TercetStack, self.get_decoder())
        has_positions = attention_mask is None or position_ids is not None
        if has_positions and decoder.has_sparse_attention(inputs_embeds) and is_empty(past_key_values):
            return attention_mask
        return decoder.build_masks(inputs_embeds, attention_mask, past_key_values)

    def get_compiled_call(self, compile_config: CompileConfig | None) -> Callable[..., Any]:
        """Return what predicts the tokens behind the prompt: within `generate` on a CPU, a lean step."""
        if are_in_use() and compile_config is None:
            return self.decode_step
        return super().get_compiled_call(compile_config)

    # This and the next method are not public: a test names the versions of transformers that call them.
    def _valid_auto_compile_criteria(
        self, model_kwargs: dict[str, Any], generation_config: GenerationConfig
    ) -> bool:
        is_plain = (
            generation_config.compile_config is None
            and generation_config.prefill_chunk_size is None
            and not (generation_config.output_attentions or generation_config.output_hidden_states)
            and {name for name, value in model_kwargs.items() if value is not None} <= STEP_ARGUMENTS
        )
        if is_plain and are_in_use() and grows(model_kwargs.get("past_key_values")) and can_decode_step(self):
            return True
        return super()._valid_auto_compile_criteria(model_kwargs, generation_config)

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any
    ) -> None:
        if self.config.is_encoder_decoder:
            refuse_prompt_chunks(generation_config)
        is_given = model_kwargs.get("past_key_values") is not None
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args)
        # On other devices memory is scarcer than time.
        if not is_given and are_in_use() and not is_hooked(self):
            make_growing(model_kwargs.get("past_key_values"))


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
    """Return whether `decode_step` does what `forward` does: nothing is dropped, overridden or hooked."""
    return (
        not model.training
        and owner(model, "forward") is owner(model, "decode_step")
        and owner(model, "prepare_inputs_for_generation") is GenerationMixin
        and set(model.get_decoder().config.types_of_layers) == {"full_attention"}
        and all(module.config._attn_implementation in ("eager", "sdpa") for module in models_in(model))
        and not is_hooked(model)
    )


def is_hooked(model: TercetGenerativeModel) -> bool:
    """Return whether a forward pass is hooked, replaced or compiled.

    Such code, as transformers' exporters, then finds caches of transformers' own.
    """
    return not all(map(is_untouched, models_in(model)))


def models_in(model: nn.Module) -> list[PreTrainedModel]:
    """Return the model and the models that it is made of."""
    return [module for module in model.modules() if isinstance(module, PreTrainedModel)]


def owner(model: nn.Module, name: str) -> object:
    """Return the class, or the model itself, that a method comes from."""
    return model if name in vars(model) else next(base for base in type(model).__mro__ if name in vars(base))
