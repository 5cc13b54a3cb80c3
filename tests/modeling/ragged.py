"""Sequences of different lengths, in each layout that a batch may have."""

from dataclasses import dataclass

import torch
from torch import Tensor

VOCABULARY = 61


@dataclass
class Ragged:
    """The same sequences, padded left or right, alone, and packed."""

    sequences: list[Tensor]

    def padded(self, side: str = "right", pad: int = 0) -> tuple[Tensor, Tensor]:
        """Ids and mask, (B, T), with pads on one side."""
        mask = [torch.ones_like(ids) for ids in self.sequences]
        return padded(self.sequences, pad, side), padded(mask, 0, side)

    def packed(self) -> dict:
        """Ids (1, N), restarting positions and cumulative lengths."""
        lengths = torch.tensor([len(ids) for ids in self.sequences])
        return {
            "input_ids": torch.cat(self.sequences)[None],
            "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
            "cu_seq_lens_q": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
        }


def padded(rows: list[Tensor], value: int, side: str) -> Tensor:
    """Rows of different lengths as one tensor."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value, padding_side=side)


def ragged(*lengths: int, seed: int = 0) -> Ragged:
    """Random sequences of the given lengths."""
    generator = torch.Generator().manual_seed(seed)
    return Ragged([torch.randint(3, VOCABULARY, (length,), generator=generator) for length in lengths])
