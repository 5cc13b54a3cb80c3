"""What two models are asked, to see whether they are one: texts, random ids, and the labels to both.

Shapes: B batch, T positions.
"""

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..modeling.cross_entropy import IGNORE

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
    """

    name: str
    input_ids: Tensor
    attention_mask: Tensor

    @property
    def lengths(self) -> list[int]:
        """Real tokens of each row."""
        return self.attention_mask.sum(dim=-1).tolist()

    def unpadded(self) -> "Probe":
        """Cut all rows to the shortest."""
        shortest = min(self.lengths)
        return Probe(self.name, self.input_ids[:, :shortest], self.attention_mask[:, :shortest])

    def inputs(self, model: PreTrainedModel) -> dict[str, Tensor]:
        """Give what `forward` reads.

        A sequence-to-sequence model has the same on both sides, one that chooses has rows to choose from.
        """
        inputs = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        if "MultipleChoice" in type(model).__name__:
            return {name: rows.unflatten(0, (-1, NUM_CHOICES)) for name, rows in inputs.items()}
        if model.config.is_encoder_decoder:
            inputs |= {
                "decoder_input_ids": self.input_ids,
                "decoder_attention_mask": self.attention_mask,
            }
        return inputs

    def labels(self, model: PreTrainedModel) -> dict[str, Tensor]:
        """Give something to learn to a model with a head, by what its `forward` takes."""
        taken = signature(model.forward).parameters
        rows = torch.arange(len(self.input_ids))
        labels: dict[str, Tensor] = {}
        if "start_positions" in taken:
            return {"start_positions": rows % 2, "end_positions": rows % 2}
        if "next_sentence_label" in taken:
            labels["next_sentence_label"] = rows % 2
        if "labels" in taken:
            labels["labels"] = self._labels_of(type(model).__name__, model.config)
        return labels

    def _labels_of(self, name: str, config: Any) -> Tensor:
        if "MultipleChoice" in name:
            return torch.arange(len(self.input_ids) // NUM_CHOICES) % NUM_CHOICES
        if "SequenceClassification" in name or "NextSentencePrediction" in name:
            return torch.arange(len(self.input_ids)) % config.num_labels
        if "TokenClassification" in name:
            num_labels = config.num_labels
        elif name == "ElectraForPreTraining":
            num_labels = 2
        else:
            num_labels = config.vocab_size
        return (self.input_ids % num_labels).masked_fill(self.attention_mask == 0, IGNORE)


def probes_for(config: Any, tokenizer: PreTrainedTokenizerBase | None, seed: int = 0) -> list[Probe]:
    """Make the batches that a model of this configuration can read: random ids, and texts if there is a
    tokenizer.
    """
    limit = min(MOST_TOKENS, getattr(config, "max_position_embeddings", None) or MOST_TOKENS)
    probes = [random_probe(config, limit, seed)]
    if tokenizer is not None:
        encoded = [tokenizer(text, truncation=True, max_length=limit)["input_ids"] for text in TEXTS]
        probes.append(padded_probe("text", encoded, config))
    return probes


def random_probe(config: Any, limit: int, seed: int) -> Probe:
    """Draw rows of different lengths from the whole vocabulary, except for the pad."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.arange(config.vocab_size)
    ids = ids[ids != pad_id(config)]
    lengths = [limit, *torch.randint(2, limit, (NUM_RANDOM - 1,), generator=generator).tolist()]
    rows = [ids[torch.randint(len(ids), (length,), generator=generator)].tolist() for length in lengths]
    return padded_probe("random ids", rows, config)


def padded_probe(name: str, rows: list[list[int]], config: Any) -> Probe:
    """Pad rows behind their ends."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad_id(config)] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return Probe(name, ids, mask)


def pad_id(config: Any) -> int:
    """Give the id that fills rows; where none is named, pads are marked by the mask alone."""
    return 0 if config.pad_token_id is None else config.pad_token_id
