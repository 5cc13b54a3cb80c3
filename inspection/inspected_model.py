"""The parts of a Transformer that are looked at: its attention heads and its blocks, found in any model.

Everything here is done by hooks on the model itself, which is never copied or rewritten. A head is a slice of
what the output projection of its attention module reads: the heads' results stand there side by side, under
every attention kernel, padded and packed, and the projection's weight has a slice for each head. transformers
5 has removed `head_mask`; a pre-hook of the projection does what it did.

Shapes: B batch, T positions, L layers, H heads, D head width, C model width, V vocabulary.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ..modeling.attention.multi_head import Attention, CrossAttention
from ..modeling.attention.packing import restarts, sequence_ids

Batch = Mapping[str, Any]
"""What a model is called with: tensors by the names of its arguments."""

Kind = Literal["self", "encoder", "decoder", "cross"]
"""Where attention stands: `self` is that of a model of one stack, `cross` that of a decoder to an encoder."""

PROJECTIONS = (
    ("q_proj", "v_proj"),
    ("query", "value"),
    ("query_proj", "value_proj"),
    ("q_lin", "v_lin"),
    ("q", "v"),
    ("c_attn",),
    ("query_key_value",),
    ("qkv_proj",),
    ("Wqkv",),
)
"""Names that the projections to queries and values have, of which an attention module has one pair or one."""

OUTPUTS = ("o_proj", "out_proj", "out_lin", "c_proj", "dense", "o", "Wo")
"""Names that the output projection has, in the same module."""

BESIDE = ("output.dense",)
"""Where it stands in the parent of that module, as in BERT."""

COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
"""Names of the number of heads, in the module or in the configuration."""

CROSS = re.compile(r"cross|encoder_attn|EncDec", re.IGNORECASE)
"""How the names of modules read that attend to an encoder."""


@dataclass(frozen=True)
class AttentionLayer:
    """An attention module of a model, and the linear map that its heads write through.

    Args:
        name: Path of the module.
        module: The module.
        output: Its output projection, a `Linear` or transformers' `Conv1D`, which reads (..., H * D).
        num_heads: H.
        kind: Where it stands.
    """

    name: str
    module: nn.Module
    output: nn.Module
    num_heads: int
    kind: Kind

    @property
    def head_dim(self) -> int:
        """Width of what a head gives, D."""
        return width_read(self.output) // self.num_heads


def find_attention(model: PreTrainedModel) -> list[AttentionLayer]:
    """Return the attention modules of a model, in the order in which it holds them.

    Of Tercet's members by their classes, of others by their structure: a module that has projections to
    queries and values (`PROJECTIONS`) and a linear map that reads all heads (`OUTPUTS`, `BESIDE`). A module
    that several layers share, as in ALBERT, is one.

    Raises:
        ValueError: There is none.
    """
    found = []
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            heads = module.o_proj.in_features // module.head_dim
            is_cross = isinstance(module, CrossAttention)
            found.append(AttentionLayer(name, module, module.o_proj, heads, kind_of(model, name, is_cross)))
        elif any(all(hasattr(module, part) for part in parts) for parts in PROJECTIONS):
            output = output_of(model, name, module)
            heads = count_heads(model, module)
            if output is not None and heads and width_read(output) % heads == 0:
                is_cross = CROSS.search(name) is not None
                found.append(AttentionLayer(name, module, output, heads, kind_of(model, name, is_cross)))
    if not found:
        raise ValueError(
            f"no attention heads were found in {type(model).__name__}: give a Transformer whose attention "
            f"modules have separate or joint projections named {' or '.join(PROJECTIONS[0])}, "
            f"{PROJECTIONS[1][0]}, {PROJECTIONS[5][0]}, ... and an output projection named "
            f"{', '.join(OUTPUTS)} or {BESIDE[0]}"
        )
    return found


def output_of(model: nn.Module, name: str, module: nn.Module) -> nn.Module | None:
    """Find the output projection of an attention module in it, or beside it; `None`: it is not known."""
    parent = name.rpartition(".")[0]
    places = [(module, path) for path in OUTPUTS] + [(model.get_submodule(parent), path) for path in BESIDE]
    for owner, path in places:
        try:
            found = owner.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(found, nn.Linear | Conv1D):
            return found
    return None


def width_read(projection: nn.Module) -> int:
    """Return the width of what a linear map reads."""
    return projection.in_features if isinstance(projection, nn.Linear) else int(projection.weight.shape[0])  # pyright: ignore[reportIndexIssue, reportArgumentType]


def count_heads(model: PreTrainedModel, module: nn.Module) -> int | None:
    """Return the number of heads that a module, or the configuration, says."""
    said = [getattr(owner, name, None) for owner in (module, model.config) for name in COUNTS]
    return next((count for count in said if isinstance(count, int)), None)


def kind_of(model: PreTrainedModel, name: str, is_cross: bool) -> Kind:
    """Tell where an attention module stands by its path."""
    if is_cross:
        return "cross"
    if not model.config.is_encoder_decoder:
        return "self"
    return "decoder" if "decoder" in name.split(".") else "encoder"


def find_blocks(model: PreTrainedModel) -> list[nn.Module]:
    """Return the blocks of a model, which read and write the residual stream (B, T, C), first to last.

    They are the elements of the outermost list of modules with attention inside. Of a sequence-to-sequence
    model, they are the decoder's, whose last one the head reads.

    Raises:
        ValueError: There is no such list, or its one block is every layer.
    """
    lists = {path: None for layer in find_attention(model) if (path := list_around(model, layer.name))}
    if not lists:
        raise ValueError(f"no list of blocks was found in {type(model).__name__}: pass `blocks` yourself")
    blocks = list(model.get_submodule(next(reversed(lists))))  # pyright: ignore[reportArgumentType]
    if len(blocks) == 1 and getattr(model.config, "num_hidden_layers", 1) > 1:
        raise ValueError(
            f"all layers of {type(model).__name__} are one module, so that their states cannot be told apart "
            "by hooks: choose a model that does not share its layers"
        )
    return blocks


def list_around(model: nn.Module, name: str) -> str | None:
    """Return the path of the outermost list of modules that a path leads through."""
    parts = name.split(".")
    paths = (".".join(parts[:end]) for end in range(1, len(parts)))
    return next((path for path in paths if isinstance(model.get_submodule(path), nn.ModuleList)), None)


@contextmanager
def hooked(*handles: Any) -> Iterator[None]:
    """Remove hooks in the end, as a context."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def on_heads(
    layers: Sequence[AttentionLayer], change: Callable[[int, Tensor], Tensor | None]
) -> Iterator[None]:
    """Let a function read, or replace, what heads give on its way to the output projection, as a context.

    Args:
        layers: The attention modules.
        change: Is called with the place of a module among `layers` and its heads (B, T, H, D), packed
            sequences being (1, N, H, D), whenever the module computes; returns what is read instead, or
            `None`.
    """

    def hook_of(number: int, layer: AttentionLayer) -> Callable[..., tuple[Tensor, ...] | None]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            x, *others = arguments
            changed = change(number, x.unflatten(-1, (layer.num_heads, layer.head_dim)))
            return None if changed is None else (changed.flatten(-2), *others)

        return hook

    hooks = (
        layer.output.register_forward_pre_hook(hook_of(number, layer)) for number, layer in enumerate(layers)
    )
    with hooked(*hooks):
        yield


def untrained(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Build a model of the same class and size with random weights, drawn as before training.

    It is the baseline of whatever is said to have been learned: maps, probes and heads of random weights look
    like something, too (Jain and Wallace, 2019; Hewitt and Liang, 2019). The random state of the program
    stays as it is.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made: Any = type(model)(model.config)
    return made.to(device=model.device, dtype=model.dtype).eval()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation, as a context, and back to what it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def with_decoder_input(model: PreTrainedModel, batch: Batch) -> Batch:
    """Return a batch with `decoder_input_ids`, also where a model would shift `labels` right to make them.

    `DataCollatorForSeq2Seq` without a model leaves them out; they tell that there is a target. The model
    itself is called without them: it may know more of the target than the labels.
    """
    make = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    labels = None if {"decoder_input_ids", "decoder_inputs_embeds"} & batch.keys() else batch.get("labels")
    return batch if make is None or labels is None else {**batch, "decoder_input_ids": make(labels)}


def sequence_numbers(batch: Batch, size: Sequence[int], *, of_keys: bool = False) -> Tensor:
    """Number the sequence of each position of a batch of `size` (B, T), from 0.

    Packed sequences are told apart by `cu_seq_lens_q`, or `cu_seq_lens_k` (`of_keys`, the sources of a
    sequence-to-sequence model), or in one row by positions that restart; in a padded batch, each row is one.
    """
    bounds = batch.get("cu_seq_lens_k" if of_keys else "cu_seq_lens_q")
    rows = torch.arange(size[0])[:, None].expand(*size)
    if bounds is not None:
        return sequence_ids(bounds, size[1])
    positions = batch.get(
        "position_ids" if of_keys or "decoder_input_ids" not in batch else "decoder_position_ids"
    )
    if (
        size[0] == 1
        and positions is not None
        and positions.shape == (*size,)
        and "attention_mask" not in batch
    ):
        return restarts(positions)
    return rows
