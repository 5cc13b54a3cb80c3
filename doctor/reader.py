"""Documents for a model to read in every layout, and the numbers that it gives for their tokens.

A model reads streams of tokens: encoder and decoder one, a sequence-to-sequence model the source and the
target, whose inputs are called `decoder_...`. The numbers belong to the tokens of the last stream. For a task
both stacks read the source. Several texts are those that a model may choose from, where it chooses.

Shapes: B batch, T positions, N real tokens, C classes (the vocabulary, most often) or channels.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from inspect import signature
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from ..modeling.compatibility import CACHE, cache_parameter
from .examined_model import ExaminedModel, ids_of

Document = dict[str, Tensor]
"""The ids (1, T) of each stream, by the stream's prefix."""

Inputs = dict[str, Tensor]
"""What a model is called with."""

LENGTHS = {"": (9, 5, 7), "decoder_": (8, 6, 9)}
"""Tokens of three documents, by stream; none so long that a tiny model has no positions for it."""

PADDED_LENGTH = 11
RESULTS = ("logits", "prediction_logits", "last_hidden_state")
"""Where models keep the numbers of their tokens, best first."""


class Reader:
    """Random documents of ordinary tokens, which are the same in every examination."""

    def __init__(self, examined: ExaminedModel):
        self.examined = examined
        has_target = examined.member == "seq2seq" and not examined.reads_twice
        self.streams = ("", "decoder_") if has_target else ("",)
        self.chooses = examined.is_one_of("AutoModelForMultipleChoice")
        self.parameters = frozenset(signature(examined.model.forward).parameters)
        self.ordinary = ordinary_ids(examined)
        generator = torch.Generator().manual_seed(0)
        self.documents = [
            {stream: self.draw(LENGTHS[stream][number], generator) for stream in self.streams}
            for number in range(3)
        ]

    def draw(self, length: int, generator: torch.Generator) -> Tensor:
        """Draw the ids of a text, (1, T).

        One that is read twice ends in an end-of-sequence token, at which stock models read its label.
        """
        ids = self.ordinary[torch.randint(len(self.ordinary), (1, length), generator=generator)]
        if self.examined.reads_twice and (ends := ids_of(self.examined.config, "eos_token_id")):
            ids[:, -1] = min(ends)
        return ids

    @property
    def target(self) -> str:
        """The stream to whose tokens the numbers belong."""
        return self.streams[-1]

    @property
    def sees_all(self) -> bool:
        """Whether all tokens of a text may change the numbers of each."""
        return self.examined.member == "encoder" or self.examined.reads_twice

    def takes(self, name: str) -> bool:
        """Return whether the model has an input of this name for every stream."""
        return all(f"{stream}{name}" in self.parameters for stream in self.streams)

    @cached_property
    def cache_name(self) -> str | None:
        """The name by which the model takes a cache."""
        return cache_parameter(self.examined.model)

    @cached_property
    def returns_cache(self) -> bool:
        """Whether the model takes a cache, and has a place for one in what it returns."""
        if self.cache_name is None or "use_cache" not in self.parameters:
            return False
        with torch.no_grad():
            outputs = self.examined.model(**self.alone(self.documents[0]), use_cache=True)
        return CACHE in {field.name for field in fields(outputs)}

    @cached_property
    def judges_texts(self) -> bool:
        """Whether the model gives one row of numbers for a whole text, and none for its tokens."""
        return len(self.read(self.alone(self.documents[0]))) == 1

    def read(self, inputs: Inputs, model: PreTrainedModel | None = None) -> Tensor:
        """Read without a cache: the numbers of the real tokens (N, C), or one row (B, C) for each text."""
        without_cache = {"use_cache": False} if "use_cache" in self.parameters else {}
        asked = {name: rows[None] for name, rows in inputs.items()} if self.chooses else inputs
        with torch.no_grad():
            outputs = (model or self.examined.model)(**asked, **without_cache)
        numbers = outputs.logits.mT if self.chooses else results_of(outputs)
        mask = inputs.get(f"{self.target}attention_mask")
        return numbers.flatten(0, -2) if numbers.dim() == 2 or mask is None else numbers[mask.bool()]

    def read_on(self, document: Document, ends: Sequence[int]) -> list[Tensor]:
        """Read a document in pieces that end at `ends`, with a cache: the numbers of each one's tokens."""
        pieces, past = [], None
        for begin, end in pairwise((0, *ends)):
            inputs = self.alone(document | {self.target: document[self.target][:, begin:end]})
            with torch.no_grad():
                outputs = self.examined.model(**inputs, **{str(self.cache_name): past}, use_cache=True)
            past = outputs[CACHE]
            pieces.append(results_of(outputs).flatten(0, -2))
        return pieces

    def alone(self, document: Document) -> Inputs:
        """One document as it is."""
        return {f"{stream}input_ids": ids for stream, ids in document.items()}

    def padded(self, document: Document, side: str = "right") -> Inputs:
        """One document with pads and a mask; those of a target always stand on the right."""
        inputs = {}
        for stream, ids in document.items():
            missing = PADDED_LENGTH - ids.shape[1]
            sides = (missing, 0) if side == "left" and not stream else (0, missing)
            inputs[f"{stream}input_ids"] = F.pad(ids, sides, value=pad_id(self.examined))
            inputs[f"{stream}attention_mask"] = F.pad(torch.ones_like(ids), sides)
        return inputs

    def packed(self, documents: list[Document]) -> Inputs:
        """Several documents in one row, with positions that restart."""
        inputs = {}
        for stream in self.streams:
            texts = [document[stream] for document in documents]
            inputs[f"{stream}input_ids"] = torch.cat(texts, dim=1)
            positions = [torch.arange(ids.shape[1]) for ids in texts]
            inputs[f"{stream}position_ids"] = torch.cat(positions)[None]
        return inputs

    def changed(self, ids: Tensor, since: int) -> Tensor:
        """Replace every token of a text (1, T) from a position on by another."""
        places = torch.searchsorted(self.ordinary, ids).clamp(max=len(self.ordinary) - 1)
        others = self.ordinary.roll(1)[places]
        return torch.cat((ids[:, :since], others[:, since:]), dim=1)


def results_of(outputs: ModelOutput) -> Tensor:
    """Take the numbers of tokens (B, T, C), or of texts (B, C), out of what a model returns."""
    if "start_logits" in outputs:
        return torch.stack((outputs["start_logits"], outputs["end_logits"]), dim=-1)
    return next(outputs[name] for name in RESULTS if name in outputs)


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
