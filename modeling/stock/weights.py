"""Tables of weights: how a stock model calls what ours holds, and how a tensor is rearranged on the way.

    "h.*.ln_1.*": "layers.*.self_attention_norm.*"
    "h.*.attn.c_attn.weight": Via("layers.*.self_attention.{q,k,v}_proj.weight", TRANSPOSED, chunked(3))

A star stands for one part of a name, the same on both sides; braces list several names of ours, in the order
of what a rearrangement gives. The way back is defined beside the way there. Both consist of differentiable
operations, so that gradients can be followed.

Shapes: C width of the input, R width of the result, H heads, D head width.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ...configs.messages import shortened


@dataclass(frozen=True)
class Place:
    """Where in a stock model a tensor lies.

    Args:
        config: The stock model's configuration.
        indices: The numbers in the tensor's name, of its layer first.
    """

    config: Any
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Rearrangement:
    """What happens to stock tensors on the way to ours, and on the way back, which undoes it.

    Args:
        to_ours: Turns stock tensors into ours.
        to_stock: Turns our tensors into stock ones.
    """

    to_ours: Callable[[list[Tensor], Place], list[Tensor]]
    to_stock: Callable[[list[Tensor], Place], list[Tensor]]


def transpose(tensors: list[Tensor], place: Place) -> list[Tensor]:
    return [tensor.mT for tensor in tensors]


TRANSPOSED = Rearrangement(transpose, transpose)
"""GPT-2 keeps matrices as (C, R), `torch.nn.Linear` as (R, C)."""

AS_ONE_ROW = Rearrangement(
    lambda tensors, place: [tensor[0] for tensor in tensors],
    lambda tensors, place: [tensor[None] for tensor in tensors],
)
"""BART and its kin keep the vocabulary's bias as a matrix of one row, (1, R)."""


def chunked(parts: int) -> Rearrangement:
    """Cut layers of equal width that read the same input, kept as one: rows of the first, the second, ..."""
    return Rearrangement(
        lambda tensors, place: [part for tensor in tensors for part in tensor.chunk(parts)],
        lambda tensors, place: [torch.cat(tensors)],
    )


def split_heads(tensors: list[Tensor], place: Place) -> list[Tensor]:
    """Collect the queries of all heads, their keys, their values."""
    (joined,) = tensors
    by_head = joined.unflatten(0, (place.config.num_attention_heads, 3, -1))
    return [part.flatten(0, 1) for part in by_head.unbind(1)]


def join_heads(tensors: list[Tensor], place: Place) -> list[Tensor]:
    """Put the queries, keys and values of each head beside each other."""
    by_head = [tensor.unflatten(0, (place.config.num_attention_heads, -1)) for tensor in tensors]
    return [torch.stack(by_head, dim=1).flatten(0, 2)]


CHUNKED_BY_HEAD = Rearrangement(split_heads, join_heads)
"""GPT-NeoX keeps queries, keys and values as one, head by head: (H * 3 * D, ...)."""


def first_scaled(factor: Callable[[Place], float]) -> Rearrangement:
    """Move a factor that the stock model applies elsewhere into the first of the tensors."""
    return Rearrangement(
        lambda tensors, place: [tensors[0] * factor(place), *tensors[1:]],
        lambda tensors, place: [tensors[0] / factor(place), *tensors[1:]],
    )


def in_turn(*steps: Rearrangement) -> Rearrangement:
    """Take several rearrangements, one after the other, in the order of the way to ours."""

    def to_ours(tensors: list[Tensor], place: Place) -> list[Tensor]:
        for step in steps:
            tensors = step.to_ours(tensors, place)
        return tensors

    def to_stock(tensors: list[Tensor], place: Place) -> list[Tensor]:
        for step in reversed(steps):
            tensors = step.to_stock(tensors, place)
        return tensors

    return Rearrangement(to_ours, to_stock)


class Via:
    """Our names of a stock tensor, and what happens to it on the way."""

    def __init__(self, ours: str, *steps: Rearrangement):
        self.ours = ours
        self.steps = in_turn(*steps)


class IfNotZero(Via):
    """A stock tensor that ours does without where it is zero."""


@dataclass(frozen=True)
class Dropped:
    """A stock tensor that ours does without, and the reason why that changes nothing."""

    reason: str


Table = Mapping[str, str | Via | Dropped]
"""A stock pattern, and what it is with us."""


@dataclass(frozen=True)
class Link:
    """One tensor of a stock model, and the tensors of ours that it is.

    Args:
        stock: Its name there.
        ours: Their names here.
        steps: The way between them.
        place: Where it lies.
    """

    stock: str
    ours: tuple[str, ...]
    steps: Rearrangement
    place: Place

    def to_ours(self, tensor: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.ours, self.steps.to_ours([tensor], self.place), strict=True))

    def to_stock(self, tensors: Mapping[str, Tensor]) -> Tensor:
        (tensor,) = self.steps.to_stock([tensors[name] for name in self.ours], self.place)
        return tensor


@dataclass(frozen=True)
class Links:
    """Everything that two models have in common.

    Args:
        tensors: For each stock tensor the links of all its names: of several, if it is tied to others.
        dropped: Names of the stock tensors that ours does without, and why.
    """

    tensors: tuple[tuple[Link, ...], ...]
    dropped: Mapping[str, str]

    def to_ours(self, stock: Mapping[str, Tensor]) -> dict[str, Tensor]:
        ours: dict[str, Tensor] = {}
        for links in self.tensors:
            for link in links:
                ours |= link.to_ours(stock[link.stock])
        return ours

    def to_stock(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Turn our tensors into a stock model's."""
        stock: dict[str, Tensor] = {}
        for links in self.tensors:
            tensors = {link.stock: link.to_stock(ours) for link in links}
            first = next(iter(tensors.values()))
            if not all(torch.equal(first, tensor) for tensor in tensors.values()):
                names = ", ".join(name for link in links for name in link.ours)
                raise ValueError(f"the stock model has one tensor for {names}, which differ in this model")
            stock |= tensors
        return stock


def link(stock: PreTrainedModel, ours: PreTrainedModel, table: Table) -> Links:
    """Find what each tensor of a stock model is with us, and which are dropped for what reason."""
    present = set(ours.state_dict())
    tensors: list[tuple[Link, ...]] = []
    dropped: dict[str, str] = {}
    unknown: list[str] = []
    for names in tied_names(stock):
        entries = [(name, entry) for name in names if (entry := look_up(name, table, stock.config, present))]
        links = tuple(entry for _, entry in entries if isinstance(entry, Link))
        if links:
            tensors.append(links)
        elif entries:
            dropped |= {name: entry.reason for name, entry in entries if isinstance(entry, Dropped)}
        else:
            unknown.append(names[0])
    require_known(unknown, stock, "ours")
    covered = {name for links in tensors for link in links for name in link.ours}
    require_known([names[0] for names in tied_names(ours) if not covered & {*names}], ours, "the stock model")
    return Links(tuple(tensors), dropped)


def look_up(name: str, table: Table, config: Any, present: set[str]) -> Link | Dropped | None:
    """Find what a stock tensor is with us, if the table says so; `present` are the names that ours has."""
    for pattern, entry in table.items():
        if not (found := match_name(pattern, name)):
            continue
        if isinstance(entry, Dropped):
            return entry
        via = entry if isinstance(entry, Via) else Via(entry)
        ours = tuple(filled(via.ours, found.groups()))
        if not present >= {*ours}:
            return Dropped("it is zero") if isinstance(via, IfNotZero) else None
        indices = tuple(int(part) for part in found.groups() if part.isdigit())
        return Link(name, ours, via.steps, Place(config, indices))
    return None


def match_name(pattern: str, name: str) -> re.Match[str] | None:
    """Match a tensor's name with a pattern of a table, whose stars are its parts."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"([^.]+)"), name)


def is_dropped(name: str, table: Table, config: Any) -> bool:
    """Return whether ours has no use for a stock tensor, at least where it is zero."""
    return isinstance(look_up(name, table, config, set()), Dropped)


def require_known(unknown: list[str], model: nn.Module, other: str) -> None:
    """Raise a `ValueError` that names the tensors of a model for which the other one has no place."""
    if unknown:
        raise ValueError(
            f"{len(unknown)} tensors of {type(model).__name__} have no counterpart in {other}: "
            f"{shortened(unknown)}"
        )


def tied_names(model: nn.Module) -> list[list[str]]:
    """Group the names of a model's tensors, saved buffers included: those of one group are one tensor."""
    names: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
    return list(names.values())


def has_own_head(model: Any) -> bool:
    """Return whether a model's LM head is another tensor than its table of token vectors.

    transformers ties no head that files have as another one, although `tie_word_embeddings` stays true.
    """
    head = model.get_output_embeddings()
    return head is not None and head.weight is not model.get_input_embeddings().weight


def filled(pattern: str, parts: tuple[str, ...]) -> Iterator[str]:
    """Put parts in place of stars, and each of the listed names in place of the braces."""
    for part in parts:
        pattern = pattern.replace("*", part, 1)
    if listed := re.search(r"\{(.+?)\}", pattern):
        for name in listed[1].split(","):
            yield pattern.replace(listed[0], name)
    else:
        yield pattern


def below(prefix: str, ours: str, table: Table) -> dict[str, str | Via | Dropped]:
    """Put a table of the base model where a model with a head has it, on both sides."""
    return {prefix + pattern: moved(entry, ours) for pattern, entry in table.items()}


def moved(entry: str | Via | Dropped, prefix: str) -> str | Via | Dropped:
    """Put our names of one row below a prefix."""
    match entry:
        case Dropped():
            return entry
        case Via():
            return type(entry)(prefix + entry.ours, entry.steps)
        case name:
            return prefix + name
