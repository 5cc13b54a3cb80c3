"""Inputs by which two models are compared: texts, random ids, and the labels to both.

Shapes: B batch, T positions.
"""

from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..configuration_tercet import TercetConfig
from ..heads.classification import problem_of
from ..heads.losses import IGNORE
from ..heads.seq2seq_tasks import TercetSeq2SeqTaskModel
from ..pretrained import TercetPreTrainedModel
from .models import counterpart_of
from .task_heads import LAST_TOKEN

TEXTS = (
    "The ship left the harbour at dawn, and nobody on the quay knew where it was bound.",
    "Why do leaves turn red in autumn?",
    "A proof is a story that leaves no question open; a good one is short.",
    "In 1969, three people flew to the moon: two of them walked on it.",
    "Bread needs flour, water, salt & time.",
    "« Demain, dès l'aube », she read aloud, and closed the book.",
)
"""Sentences of different lengths, with numbers, marks and a foreign word."""

MOST_TOKENS = 48
"""Tokens of a row of which everything is compared."""

MOST_LONG, MOST_OF_A_WINDOW = 1024, 8192
"""Tokens of a row of which predictions alone are compared: as many as a model reads, but no more than these;
or as many as reach beyond its window."""

NUM_RANDOM = 4
NUM_CHOICES = 2
"""Rows from which a model chooses one: as many as divide the random ones and the texts."""


@dataclass(frozen=True)
class Probe:
    """A padded batch.

    Args:
        name: What it is made of.
        input_ids: (B, T).
        attention_mask: (B, T), 0 at pads, which stand behind.
        has_target: Whether a decoder is given the same beside the source; those with the head of a task make
            their input of the source.
        num_choices: Rows of which a model chooses one, if it does.
        names_segments: Whether segments are given, because one of the models would guess them otherwise.
        is_long: Whether it shows what short texts do not: all positions, and what lies beyond a window.
            Predictions alone are compared on it, in one pass.
    """

    name: str
    input_ids: Tensor
    attention_mask: Tensor
    has_target: bool
    num_choices: int | None
    is_long: bool
    names_segments: bool = False

    @property
    def lengths(self) -> list[int]:
        """Real tokens of each row."""
        return self.attention_mask.sum(dim=-1).tolist()

    def unpadded(self) -> "Probe":
        """Keep of each row the end, as long as the shortest row."""
        shortest = min(self.lengths)
        ends = [
            ids[length - shortest : length] for ids, length in zip(self.input_ids, self.lengths, strict=True)
        ]
        ids = torch.stack(ends)
        return replace(self, input_ids=ids, attention_mask=torch.ones_like(ids))

    def inputs(self) -> dict[str, Tensor]:
        """Return what `forward` reads."""
        inputs = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        if self.names_segments:
            inputs["token_type_ids"] = torch.zeros_like(self.input_ids)
        if self.num_choices is not None:
            return {name: rows.unflatten(0, (-1, self.num_choices)) for name, rows in inputs.items()}
        if self.has_target:
            inputs |= {
                "decoder_input_ids": self.input_ids,
                "decoder_attention_mask": self.attention_mask,
            }
        return inputs

    def labels(self, model: PreTrainedModel) -> dict[str, Tensor]:
        """Return something to learn to a model with a head, by what its `forward` takes."""
        taken = signature(model.forward).parameters
        rows = torch.arange(len(self.input_ids))
        labels: dict[str, Tensor] = {}
        if "start_positions" in taken:
            return {"start_positions": rows % 2, "end_positions": rows % 2}
        if "next_sentence_label" in taken:
            labels["next_sentence_label"] = rows % 2
        if "labels" in taken:
            labels["labels"] = self._labels_of(type(model).__name__, model.config)
        return {
            label: value.to(model.dtype) if value.is_floating_point() else value
            for label, value in labels.items()
        }

    def _labels_of(self, name: str, config: Any) -> Tensor:
        if self.num_choices is not None:
            return torch.arange(len(self.input_ids) // self.num_choices) % self.num_choices
        if "SequenceClassification" in name:
            return labels_of_rows(len(self.input_ids), config)
        if "NextSentencePrediction" in name:
            return torch.arange(len(self.input_ids)) % config.num_labels
        if "TokenClassification" in name:
            num_labels = config.num_labels
        elif name == "ElectraForPreTraining":
            num_labels = 2
        else:
            num_labels = config.vocab_size
        return (self.input_ids % num_labels).masked_fill(self.attention_mask == 0, IGNORE)


def labels_of_rows(num_rows: int, config: Any) -> Tensor:
    """Return rows something to learn, by transformers' rule of what a head of labels is for.

    One of the labels (B,), each of them or not (B, L), or numbers (B, L), (B,) if there is one.
    """
    rows = torch.arange(num_rows)
    kind = config.problem_type or problem_of(rows, config.num_labels)
    if kind == "single_label_classification":
        return rows % config.num_labels
    grid = rows[:, None] + torch.arange(config.num_labels)
    if kind == "multi_label_classification":
        return (grid % 2).float()
    return (grid[:, 0] if config.num_labels == 1 else grid).float() / num_rows


def probes_for(
    stock: PreTrainedModel,
    ours: TercetPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
) -> list[Probe]:
    """Make the batches that both models define: random ids, and texts if there is a tokenizer.

    Stock models that label a text by its last token look for that in their own ways: decoders for the last
    that is no pad, alone in its batch if no pad is named; others for the only end-of-sequence token. Of
    BigBird, the head for answers takes what ends in a separator for a question, and sparse attention depends
    on pads.
    """
    limit = min(MOST_TOKENS, getattr(ours.config, "max_position_embeddings", None) or MOST_TOKENS)
    texts = {"random ids": random_rows(stock.config, limit)}
    for length in long_lengths(ours.config):
        if length > limit:
            rows = random_rows(stock.config, length, num_rows=NUM_CHOICES)
            texts[f"random ids, {length} tokens"] = rows
    if tokenizer is not None:
        encoded = tokenizer(list(TEXTS), verbose=False)["input_ids"]  # cut below: to cut would change it
        texts["text"] = [[token for token in row[:limit] if token != pad_id(stock.config)] for row in encoded]
    counterpart = counterpart_of(stock)
    if "eos_token_id" in counterpart.fields:
        texts = {name: ended(rows, stock.config.eos_token_id) for name, rows in texts.items()}
    if counterpart.values == LAST_TOKEN and stock.config.pad_token_id is None:
        texts = {f"{name}, row {i}": [row] for name, rows in texts.items() for i, row in enumerate(rows, 1)}
    seeks_question = "question_lengths" in signature(stock.forward).parameters
    if seeks_question:
        texts = {
            name: [without(stock.config.sep_token_id, row) for row in rows] for name, rows in texts.items()
        }
    if depends_on_pads(ours.config):
        texts = {name: equally_long(rows) for name, rows in texts.items()}
    takes_target = "decoder_input_ids" in signature(ours.forward).parameters
    has_target = takes_target and not isinstance(ours, TercetSeq2SeqTaskModel)
    num_choices = NUM_CHOICES if "MultipleChoice" in counterpart.stock else None
    return [
        Probe(
            name,
            *padded(rows, pad_id(stock.config)),
            has_target,
            num_choices,
            is_long=max(map(len, rows)) > limit,
            names_segments=seeks_question,
        )
        for name, rows in texts.items()
    ]


def long_lengths(config: TercetConfig) -> list[int]:
    """List how long texts must be to show all positions of a model, and what lies beyond its window.

    Both have a bound, `MOST_LONG` and `MOST_OF_A_WINDOW`. Wavelengths that grow with the text do so behind
    the positions that a model was made for, of which these therefore read a few.
    """
    longest = min(config.max_position_embeddings, MOST_LONG)
    if depends_on_pads(config):  # which the stock model appends until the last block is full
        longest -= longest % config.attention_block_size
    lengths = {longest + 8 * config.has_dynamic_rotations}
    if config.sliding_window is not None:
        beyond = min(2 * config.sliding_window + 8, MOST_OF_A_WINDOW)
        lengths.add(min(beyond, config.max_position_embeddings))
    return sorted(lengths)


def depends_on_pads(config: TercetConfig) -> bool:
    """Return whether the stock model of a configuration lets the states of a text depend on its pads."""
    return "stock_big_bird_attention" in config.types_of_layers


def random_rows(config: Any, limit: int, seed: int = 0, num_rows: int = NUM_RANDOM) -> list[list[int]]:
    """Draw rows of different lengths from the whole vocabulary, except for the pad."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.arange(config.vocab_size)
    ids = ids[ids != pad_id(config)]
    lengths = [limit, *torch.randint(2, limit, (num_rows - 1,), generator=generator).tolist()]
    return [ids[torch.randint(len(ids), (length,), generator=generator)].tolist() for length in lengths]


def without(token: int, row: list[int]) -> list[int]:
    """Put a neighbouring token in place of each of a kind."""
    other = token - 1 if token else 1
    return [other if each == token else each for each in row]


def equally_long(rows: list[list[int]]) -> list[list[int]]:
    """Repeat rows from their beginning until all are as long as the longest."""
    longest = max(map(len, rows))
    return [(row * (longest // len(row) + 1))[:longest] for row in rows]


def ended(rows: list[list[int]], end: int) -> list[list[int]]:
    """End each row in a token that it has nowhere else."""
    return [[*(token for token in row[:-1] if token != end), end] for row in rows]


def padded(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Pad rows behind their ends: ids and mask, (B, T) each."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def pad_id(config: Any) -> int:
    """Return the id that fills rows; where none is named, pads are marked by the mask alone."""
    return 0 if config.pad_token_id is None else config.pad_token_id
