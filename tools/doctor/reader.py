"""Documents for a model to read in every layout, and the states that it computes for their tokens.

A model reads streams of tokens: encoder and decoder one, a sequence-to-sequence model the source and the
target, whose inputs are called `decoder_...`. The states are the last ones of the last stream.

Shapes: T positions, N real tokens, C channels.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from .examined_model import ExaminedModel

Document = dict[str, Tensor]
"""The ids (1, T) of each stream, by the stream's prefix."""

LENGTHS = {"": (9, 5, 7), "decoder_": (8, 6, 9)}
"""Tokens of three documents, by stream; none so long that a tiny model has no positions for it."""

PADDED_LENGTH = 11


class Reader:
    """Random documents of ordinary tokens, which are the same in every examination."""

    def __init__(self, examined: ExaminedModel):
        self.examined = examined
        self.config: Any = examined.config
        self.model: Any = examined.model.base_model
        self.streams = ("", "decoder_") if examined.member == "seq2seq" else ("",)
        self.target = self.streams[-1]
        self.parameters = frozenset(signature(self.model.forward).parameters)
        self.takes_positions = "position_ids" in self.parameters
        self.ordinary = ordinary_ids(examined)
        generator = torch.Generator().manual_seed(0)
        self.documents = [
            {stream: self.draw(LENGTHS[stream][number], generator) for stream in self.streams}
            for number in range(3)
        ]

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        assert self.examined.tokenizer is not None
        return self.examined.tokenizer

    def draw(self, length: int, generator: torch.Generator) -> Tensor:
        """Draw the ids of a text, (1, T)."""
        return self.ordinary[torch.randint(len(self.ordinary), (1, length), generator=generator)]

    def changed(self, ids: Tensor, since: int) -> Tensor:
        """Replace every token of a text (1, T) from a position on by another."""
        places = torch.searchsorted(self.ordinary, ids).clamp(max=len(self.ordinary) - 1)
        return torch.cat((ids[:, :since], self.ordinary.roll(1)[places][:, since:]), dim=1)

    def read(self, inputs: dict[str, Tensor], *, trains: bool = False) -> Tensor:
        """Return the states of the real tokens (N, C); in training, what is random is the same each time."""
        options = {"use_cache": False} if "use_cache" in self.parameters else {}
        if self.examined.member == "encoder" and self.config.model_type == "tercet_decoder":
            options["is_causal"] = False
        self.model.train(trains)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            states = self.model(**inputs, **options)[0]
        self.model.eval()
        mask = inputs.get(f"{self.target}attention_mask")
        return states.flatten(0, -2) if mask is None else states[mask.bool()]

    def read_each(self, lay_out: Callable[[Document], dict[str, Tensor]]) -> Tensor:
        """Return the states of all documents, each laid out alone, (N, C)."""
        return torch.cat([self.read(lay_out(document)) for document in self.documents])

    def alone(self, document: Document, *, counted: bool = False) -> dict[str, Tensor]:
        """One document as it is, maybe with the positions of its tokens."""
        positions = {"position_ids": torch.arange(document[""].shape[1])[None]} if counted else {}
        return {f"{stream}input_ids": ids for stream, ids in document.items()} | positions

    def padded(self, document: Document, side: str = "right") -> dict[str, Tensor]:
        """One document with pads and a mask; those of a target always stand on the right.

        On the left, positions count real tokens if the model takes positions.
        """
        inputs = {}
        for stream, ids in document.items():
            missing = PADDED_LENGTH - ids.shape[1]
            sides = (missing, 0) if side == "left" and not stream else (0, missing)
            inputs[f"{stream}input_ids"] = F.pad(ids, sides, value=pad_id(self.examined))
            inputs[f"{stream}attention_mask"] = F.pad(torch.ones_like(ids), sides)
        if side == "left" and self.takes_positions:
            inputs["position_ids"] = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        return inputs

    def packed(self, documents: list[Document]) -> dict[str, Tensor]:
        """Several documents in one row, with positions that restart."""
        inputs = {}
        for stream in self.streams:
            texts = [document[stream] for document in documents]
            inputs[f"{stream}input_ids"] = torch.cat(texts, dim=1)
            inputs[f"{stream}position_ids"] = torch.cat([torch.arange(ids.shape[1]) for ids in texts])[None]
        return inputs


def ids_of(owner: object, name: str) -> set[int]:
    """Return the ids that a configuration or tokenizer has for a role: none, one, or several."""
    value = getattr(owner, name, None)
    return set(value) if isinstance(value, list) else set() if value is None else {value}


def ordinary_ids(examined: ExaminedModel) -> Tensor:
    """Return the ids of tokens without a special role, ascending."""
    roles = [name for name in examined.config.to_dict() if name.endswith("token_id")]
    special = set().union(*(ids_of(examined.config, name) for name in roles))
    if examined.tokenizer is not None:
        special |= set(examined.tokenizer.all_special_ids)
    return torch.tensor([number for number in range(examined.rows) if number not in special])


def pad_id(examined: ExaminedModel) -> int:
    """Return the id to pad with; where there is none, masks have to hide any."""
    told = [getattr(owner, "pad_token_id", None) for owner in (examined.config, examined.tokenizer)]
    return next((number for number in told if number is not None and 0 <= number < examined.rows), 0)
