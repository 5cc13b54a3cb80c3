"""How texts lie in a batch: each in a row, pads behind it, or end to end in one stream.

Shapes: B texts, T positions of the longest, N tokens of all.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor


def padded(rows: Sequence[Sequence[int]], device: torch.device, pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """Put ids into one tensor (B, T), pads on the right, beside the mask of the real ones."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(width, device=device) < lengths[:, None]).long()


def in_rows(texts: Sequence[Sequence[int]], device: torch.device) -> tuple[list[int], dict[str, Any]]:
    """Put each text into a row, (B, T); say where each begins in the flattened batch."""
    ids, mask = padded(texts, device)
    return [row * ids.shape[1] for row in range(len(texts))], {"input_ids": ids, "attention_mask": mask}


def packed(texts: Sequence[Sequence[int]], device: torch.device) -> tuple[list[int], dict[str, Any]]:
    """Lay texts end to end, (1, N), with positions that restart; say where each begins."""
    bounds = [0, *accumulate(map(len, texts))]
    inputs: dict[str, Any] = {
        "input_ids": torch.tensor([[token for text in texts for token in text]], device=device),
        "position_ids": torch.tensor(
            [[position for text in texts for position in range(len(text))]], device=device
        ),
        "cu_seq_lens_q": torch.tensor(bounds, dtype=torch.int32, device=device),
        "max_length_q": max(map(len, texts)),
    }
    return bounds[:-1], inputs
