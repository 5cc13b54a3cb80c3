"""The stack of blocks inside every Transformer, its arguments, and how it reads them: padded or packed.

Shapes: B batch, T positions, N tokens of a packed stream, C model width.
"""

import copy
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.cache_utils import Cache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.utils import logging

from .attention.dot_product import is_sparse
from .attention.kernels import kernel_form, kernel_of_packed, reads_packed, with_tiles
from .attention.masks import kernel_masks
from .attention.packing import (
    Layout,
    Mask,
    Masks,
    PackedSequences,
    Padding,
    SharedRows,
    filling,
    has_holes,
    is_padding_mask,
    of_target,
    share_rows,
)
from .attention.patterns import PATTERNS
from .attention.relative_bias import dtype_of_scores
from .compatibility import has_hooks, is_tracing
from .configuration_tercet import TercetConfig, takes_bounds
from .layers.block import BLOCKS, Block
from .layers.position_wise import Dropout, Embeddings, build_norm, look_up
from .layers.positions import POSITIONS
from .pretrained import TercetPreTrainedModel
from .sequences import PackedStream, PaddedRows, Sequences

logger = logging.get_logger(__name__)


class StackCall(NamedTuple):
    """What a call of a stack records and caches, on which it depends whether rows can be packed.

    Args:
        output_attentions: Attentions are recorded, by the definition, which knows masks only.
        can_unpad: Whether pads may be removed: no states between layers are returned, nothing is cached yet.
            They are in training without a cache, and from long texts of sparse patterns.
        has_pairs: A mask says which pairs may attend, and so keeps apart what it should.
        past_length: Tokens already in the cache; `None` without a cache.
        use_cache: A cache is to be returned.
    """

    output_attentions: bool
    can_unpad: bool
    has_pairs: bool = False
    past_length: int | Tensor | None = None
    use_cache: bool = False

    @property
    def may_hold_sequences(self) -> bool:
        """Whether rows may have several sequences: behind a cache they go on, also in its graph."""
        return not (self.has_pairs or self.past_length is not None or (self.use_cache and is_tracing()))


def dtype_of_stream(x: Tensor) -> torch.dtype:
    """Return the type of states between layers in training: bfloat16 on a GPU that multiplies in it.

    Half as many bytes are read, written and kept for the backward pass then. The sums of a layer are rounded,
    and so is the result of a norm behind them; norms compute in float32.
    """
    can_round = x.dtype == torch.float32 and not (x.is_cpu or x.is_meta)
    return torch.bfloat16 if can_round and dtype_of_scores(x) == torch.bfloat16 else x.dtype


def compiles_products(x: Tensor) -> bool:
    """Return whether each size of products of states `x` is compiled once: those in bfloat16 on a CPU are."""
    return x.is_cpu and dtype_of_scores(x) == torch.bfloat16


def filled(
    x: Tensor, position_ids: Tensor, masks: Masks, source: Tensor | None, source_mask: Mask
) -> tuple[Tensor, Tensor, Masks, Tensor | None, Mask]:
    """Fill a packed stream (1, N, C), and that of its source, up to one of few sizes; see `filling`.

    The new tokens are sequences of their own, which no other one reads. Streams whose products need no
    compilation, or that are not kept apart by their bounds alone, stay as they are.
    """
    sequences, *others = masks.values()
    reads_bounds = source is None or isinstance(source_mask, PackedSequences)
    if not isinstance(sequences, PackedSequences) or sequences.tiles is not None:
        return x, position_ids, masks, source, source_mask
    is_packed = all(mask is sequences for mask in others)
    if not (is_packed and reads_bounds and compiles_products(x)):
        return x, position_ids, masks, source, source_mask
    more = filling(x.shape[1])
    masks = dict.fromkeys(masks, sequences.extended(more, more))
    if source is not None and isinstance(source_mask, PackedSequences):
        more_keys = filling(source.shape[1])
        source, source_mask = F.pad(source, (0, 0, 0, more_keys)), source_mask.extended(more, more_keys)
    return F.pad(x, (0, 0, 0, more)), F.pad(position_ids, (0, more)), masks, source, source_mask


def separate_by_mask(implementation: str | None) -> None:
    """Warn once that packed sequences take the slow path; in a compiled graph there is no other."""
    if takes_bounds(implementation) or implementation not in ALL_MASK_ATTENTION_FUNCTIONS:
        raise ValueError(
            f"attn_implementation='{implementation}' takes no mask, which packed sequences of several rows, "
            "or in a compiled graph, need: give one row, or choose attn_implementation='sdpa' or 'eager'"
        )
    if not is_tracing():
        logger.warning_once(
            "packed sequences are separated by a block-diagonal mask, whose cost is quadratic in the number "
            "of tokens: fast kernels take one packed row, need attention 'sdpa', 'eager' or a flash kernel, "
            "and record no attentions"
        )


def require_source(source: Tensor | None, reads_source: bool) -> None:
    """Raise a `ValueError` unless a stack that reads an encoder has its states, and no other stack any."""
    if source is None and reads_source:
        raise ValueError(
            "encoder_hidden_states are missing, which this decoder reads: give them, or call the whole model"
        )
    if source is not None and not reads_source:
        raise ValueError(
            "encoder_hidden_states are given to a stack without cross-attention, which would not read them: "
            "leave them out, or build a sequence-to-sequence model"
        )


def refuse_output_positions(arguments: dict[str, Any], reader: str) -> None:
    """Raise a `ValueError` if `output_positions` are given to a model that needs all states."""
    if arguments.get("output_positions") is not None:
        raise ValueError(
            f"output_positions are given to {reader}, which needs all hidden states: leave them out, or "
            f"call the encoder or the decoder alone"
        )


def require_global_tokens(
    global_attention_mask: Tensor | None, size: torch.Size, attention_mask: object, implementation: str | None
) -> Tensor | None:
    """Return which tokens of a batch of `size` (B, T) are chosen to be global, (B, T); `None`: none are."""
    if global_attention_mask is None:
        return None
    if not isinstance(global_attention_mask, Tensor):
        raise ValueError(
            f"global_attention_mask is a {type(global_attention_mask).__name__}, but has to be a tensor of "
            f"size {(*size,)}: pass torch.tensor(...), 1 where a token is global"
        )
    if global_attention_mask.shape != size:
        raise ValueError(
            f"global_attention_mask has the size {(*global_attention_mask.shape,)}, but there are tokens of "
            f"size {(*size,)}: give each token a number, 1 where it is global"
        )
    is_global = global_attention_mask != 0
    if takes_bounds(implementation):
        raise ValueError(
            f"attn_implementation='{implementation}' takes no mask, as global_attention_mask needs one: "
            "choose attn_implementation='sdpa' or 'eager'"
        )
    if attention_mask is not None and not is_padding_mask(attention_mask):
        raise ValueError(
            "global_attention_mask is given with an attention_mask of pairs, which is used as it is: allow "
            "the pairs of global tokens there, or give an attention_mask of tokens, (B, T)"
        )
    if is_padding_mask(attention_mask) and not is_tracing():
        outside = (is_global & (attention_mask == 0)).nonzero().tolist()
        if outside:
            raise ValueError(
                f"global_attention_mask marks position {outside[0][1]} of row {outside[0][0]}, which is a "
                "pad: mark tokens of the text alone"
            )
    return is_global


def refuse_global_tokens(arguments: dict[str, Any], reader: str) -> None:
    """Raise a `ValueError` if `global_attention_mask` is given to a decoder, whatever its direction."""
    if arguments.get("global_attention_mask") is not None:
        raise ValueError(
            f"global_attention_mask is given to {reader}, but encoders alone take one: leave it out, and set "
            "attention_global_tokens for the first tokens of big bird layers"
        )


def kernel_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Keep what is meant for the attention kernel: the model itself has taken up layout and recording."""
    taken = {
        "cu_seq_lens_q",
        "cu_seq_lens_k",
        "max_length_q",
        "max_length_k",
        "global_attention_mask",
        "output_hidden_states",
        "use_cache",
    }
    return {name: value for name, value in arguments.items() if name not in taken}


class TercetStack(TercetPreTrainedModel):
    """Embeddings, blocks, final norm. Abstract: encoder and decoder say what their blocks attend to."""

    def __init__(self, config: TercetConfig, *, is_causal: bool, has_cross_attention: bool = False):
        super().__init__(config)
        positions = POSITIONS[config.position_embedding_type]
        self.embeddings = Embeddings(config, positions(config))
        self.patterns = {kind: PATTERNS[kind](config, is_causal=is_causal) for kind in config.types_of_layers}
        self.relative_bias = positions.bias(config, is_causal=is_causal)
        self.layers = nn.ModuleList(
            BLOCKS[config.norm_placement](
                config, layer_idx, is_causal=is_causal, has_cross_attention=has_cross_attention
            )
            for layer_idx in range(config.num_hidden_layers)
        )
        # With the norm after every sub-layer, the last sub-layer's norm is the final one.
        self.norm = build_norm(config) if config.norm_placement != "post" else nn.Identity()
        self.dropout = Dropout(config.final_dropout)
        self.gradient_checkpointing = False
        self.post_init()

    def lay_out(self, sequences: Sequences, position_ids: Tensor | None, call: StackCall) -> Layout:
        """Choose the layout in which to compute: packed by the user, to be packed here, or padded.

        By default `position_ids` (B, T) count the real tokens.
        """
        if isinstance(sequences, PackedStream):
            positions = sequences.positions if position_ids is None else position_ids
            if self.reads_bounds(call):
                bounds = PackedSequences.of(sequences.cu_seq_lens, sequences.max_length)
                return Layout(positions, bounds)
            separate_by_mask(self.masking_config(call.output_attentions)._attn_implementation)
            return Layout(positions, sequence_ids=sequences.sequence_ids)
        assert isinstance(sequences, PaddedRows)
        if call.may_hold_sequences and (parts := sequences.parts) is not None:
            assert position_ids is not None  # which tell the parts
            separate_by_mask(self.masking_config(call.output_attentions)._attn_implementation)
            return Layout(position_ids, sequence_ids=parts)
        if call.can_unpad and not call.has_pairs and self.reads_bounds(call):
            unpads = self.training and not call.use_cache and call.past_length is None
            if (padding := self.find_padding(sequences, unpads)) is not None:
                return Layout.unpadded(padding, position_ids)
        if position_ids is None:
            position_ids = sequences.positions
            if sequences.mask is None and call.past_length is not None:
                # The length of a static cache is a tensor, whose value a compiled graph does not know.
                position_ids = position_ids + call.past_length
        return Layout(position_ids)

    def reads_bounds(self, call: StackCall) -> bool:
        """Return whether a kernel keeps packed sequences apart by their bounds."""
        is_plain = not (call.output_attentions or is_tracing())
        return is_plain and reads_packed(self.config._attn_implementation)

    def find_padding(self, sequences: PaddedRows, unpads: bool) -> Padding | None:
        """Find the pads to remove if `unpads`; or, of long texts with sparse patterns, the pads if any."""
        mask, is_long = sequences.mask, self.has_sparse_attention(sequences.size[1], sequences.device)
        if mask is None:
            return Padding(sequences.is_own) if is_long else None
        if mask.shape != sequences.size or not (unpads or is_long):
            return None
        # Windows and relative positions count the places of a hole, which packing would close.
        removes = mask.any() and not has_holes(mask)
        return Padding(mask) if removes and (is_long or not mask.all()) else None

    def has_sparse_attention(self, num_tokens: int, device: torch.device) -> bool:
        """Return whether blocks of patterns save time in texts of so many tokens."""
        drops = self.training and self.config.attention_dropout > 0
        can_be_sparse = self.config.has_dot_products and not (self.config.has_score_bias or drops)
        kinds = self.patterns.values() if can_be_sparse and device.type == "cpu" else ()
        return any(is_sparse(pattern, num_tokens) for pattern in kinds)

    def embed(
        self,
        layout: Layout,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        token_type_ids: Tensor | None,
    ) -> Tensor:
        """First vectors of the stream, in the chosen layout: (B, T, C) or (1, N, C).

        Tokens are looked up as the user gave them, because a hook of the table may depend on their number, as
        the noise of NEFTune does.
        """
        vectors = look_up(self.embeddings.embed_tokens, input_ids) if inputs_embeds is None else inputs_embeds
        return self.embeddings(layout.pack(vectors), layout.pack(token_type_ids), layout.position_ids)

    def masks(
        self,
        layout: Layout,
        x: Tensor,
        attention_mask: Tensor | Masks | None,
        output_attentions: bool,
        cache: Cache | None = None,
        is_causal: bool | None = None,
        global_tokens: Tensor | None = None,
    ) -> Masks:
        """Build what says which pairs of a sequence may attend, once for all layers of a type.

        `is_causal` replaces the stack's own direction. `global_tokens` (B, T) are true where all attend.
        """
        self.relative_bias.require_direction(is_causal)
        patterns = {kind: pattern.toward(is_causal) for kind, pattern in self.patterns.items()}
        global_tokens = layout.pack(global_tokens)
        if (sequences := layout.sequences) is not None:
            if global_tokens is not None:
                sequences = replace(sequences, global_tokens=global_tokens[0])
            dropout = self.config.attention_dropout if self.training else 0.0
            return with_tiles(self.config, patterns, sequences, x, dropout)
        if attention_mask is not None and not is_padding_mask(attention_mask):
            return kernel_masks(attention_mask, self.masking_config(output_attentions), x, cache)
        config, ids, cache = self.masking_config(output_attentions), layout.sequence_ids, of_target(cache)
        return {
            kind: pattern.build_mask(config, x, attention_mask, cache, ids, global_tokens)
            for kind, pattern in patterns.items()
        }

    def transform(
        self,
        layout: Layout,
        x: Tensor,
        masks: Masks,
        arguments: dict[str, Any],
        source: Tensor | None = None,
        source_mask: Mask = None,
        cache: Cache | None = None,
        output_positions: Tensor | None = None,
        can_round: bool = False,
    ) -> Tensor:
        """Apply the blocks and the final norm to the stream, and return to the layout of the input.

        With `output_positions` (n,) of the flattened batch, the last layer computes only their states:
        (1, n, C). Those of pads are zeros where pads are removed. What each layer reads, and the result, is
        noted in `arguments["layer_states"]`, lists by their stack, if there is such a dictionary: hooks, by
        which transformers records it, keep layers from being compiled. Where none of them records, training
        `can_round` the stream; see `dtype_of_stream`.
        """
        require_source(source, cast(Block, self.layers[0]).cross_attention is not None)
        if source is not None:
            refuse_output_positions({"output_positions": output_positions}, "a stack that reads an encoder")
        is_token = None
        if output_positions is not None and layout.padding is not None and layout.padding.has_pads:
            output_positions, is_token = layout.padding.places(output_positions)
        num_tokens, position_ids = x.shape[1], layout.position_ids
        rows = None
        if can_round and cache is None and (rows := self.share_rows(masks, x, arguments)) is not None:
            masks = dict.fromkeys(masks, rows)
            x, position_ids = (rows.arrange(each[0])[None] for each in (x, position_ids))
            output_positions = None if output_positions is None else rows.slot_of_token[output_positions]
        elif can_round and cache is None:
            x, position_ids, masks, source, source_mask = filled(x, position_ids, masks, source, source_mask)
        masks, source_mask = self.kernel_forms(masks, source_mask, x, cache, arguments)
        packed_bias = self.relative_bias.of_packed(masks, x.device)
        rotations = {kind: self.embeddings.positions.rotation(position_ids, kind) for kind in masks}
        dtype = x.dtype
        if can_round and self.training:
            x = x.to(dtype_of_stream(x))
        # Drafts of `generate(assistant_early_exit=...)` lower the number of layers for a while.
        layers = cast(list[Block], list(self.layers)[: self.config.num_hidden_layers])
        noted: dict[Any, list[Tensor]] | None = arguments.pop("layer_states", None)
        for layer in layers:
            if noted is not None:
                noted.setdefault(self, []).append(x.to(dtype))
            if output_positions is not None and layer is layers[-1]:
                arguments = arguments | {"output_positions": output_positions}
            mask, rotation = masks[layer.layer_type], rotations[layer.layer_type]
            x = layer(x, mask, rotation, source, source_mask, packed_bias, cache=cache, **arguments)
        x = self.dropout(self.norm(x)).to(dtype)
        if noted is not None:
            noted[self].append(x)
        if output_positions is None:
            return layout.unpack(x[:, :num_tokens] if rows is None else rows.restore(x[0])[None])
        return x if is_token is None else x.masked_fill(~is_token[:, None], 0.0)

    def share_rows(self, masks: Masks, x: Tensor, arguments: dict[str, Any]) -> SharedRows | None:
        """Let short sequences of a stream (1, N, C) share rows of slots, on a CPU; `None`: they do not.

        Direction and distance alone must decide which pairs attend, and layers not depend on sizes. Neither
        they nor their parts may have hooks, which read the stream in its own order. Products in float32 take
        so long that pads among their slots cost more than gathers would.
        """
        sequences, *others = masks.values()
        if not isinstance(sequences, PackedSequences) or not all(mask is sequences for mask in others):
            return None
        if not compiles_products(x):
            return None
        layers, dropout = cast(list[Block], list(self.layers)), self.config.attention_dropout
        is_grouped = self.config.has_dot_products and all(
            pattern.is_window and kernel_of_packed(self.config, pattern, x, dropout=dropout) == "grouped"
            for pattern in self.patterns.values()
        )
        has_more = self.config.has_score_bias or sequences.global_tokens is not None
        is_seen = any(has_hooks(part) for module in (self.layers, self.norm) for part in module.modules())
        is_kept = arguments.get("layer_states") is not None or any(layer.is_compiled for layer in layers)
        is_other = has_more or is_kept or is_seen or layers[0].cross_attention
        return share_rows(sequences) if is_grouped and not is_other else None

    def kernel_forms(
        self, masks: Masks, source_mask: Mask, x: Tensor, cache: Cache | None, arguments: dict[str, Any]
    ) -> tuple[Masks, Mask]:
        """Join the bias to each mask, and convert what all layers share before the first one reads it."""
        is_causal = arguments.get("is_causal")
        names = ("output_attentions", "is_decode_step")
        options: dict[str, Any] = {name: bool(arguments.get(name)) for name in names}
        options["dropout"] = self.config.attention_dropout if self.training else 0.0
        masks = {
            kind: kernel_form(
                mask, self.config, x, is_causal=self.patterns[kind].toward(is_causal).is_causal, **options
            )
            for kind, mask in self.relative_bias(masks, x, cache, is_causal).items()
        }
        if source_mask is None:  # all that a source has, or there is none
            return masks, None
        return masks, kernel_form(source_mask, self.config, x, is_causal=False, **options)

    def masking_config(self, output_attentions: bool) -> TercetConfig:
        """Return the configuration for transformers' masks: the definition's, if attentions are recorded."""
        if not output_attentions or self.config._attn_implementation == "eager":
            return self.config
        definition = copy.copy(self.config)
        definition._attn_implementation = "eager"
        return definition
