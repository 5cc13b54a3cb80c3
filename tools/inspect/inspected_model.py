"""The parts of a Transformer that are looked at: its attention heads and its blocks, found in any model.

Everything here is done by hooks on the model itself, which is never copied or rewritten. A head is a slice of
what the output projection of its attention module reads: the heads' results stand there side by side, under
every attention kernel, padded and packed, and the projection's weight has a slice for each head. transformers
5 has removed `head_mask`; a pre-hook of the projection does what it did.

Shapes: B batch, T positions, L layers, H heads, D head width, C model width, V vocabulary.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ...modeling.attention.multi_head import Attention, CrossAttention

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
    return projection.in_features if isinstance(projection, nn.Linear) else int(projection.weight.shape[0])  # pyright: ignore[reportIndexIssue, reportArgumentType]


def count_heads(model: PreTrainedModel, module: nn.Module) -> int | None:
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
