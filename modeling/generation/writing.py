"""What a sequence-to-sequence model writes for sources, many at a time, and how any model's ids become texts.

Legend: B sources of a batch, T tokens of the longest.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase


def write(
    model: nn.Module,
    sources: Sequence[np.ndarray],
    pad_id: int,
    *,
    batch_size: int = 32,
    **options: int,
) -> list[np.ndarray]:
    """Write a target for each source, the likeliest that is found, and return the targets in their order.

    Batches hold sources of like lengths, so that little is padded.

    Args:
        model: Can generate; in evaluation mode, so that it drops nothing.
        sources: Token ids, framed as in training.
        pad_id: What sources are filled with behind their ends.
        batch_size: Sources of a batch.
        options: What is otherwise than in the model's generation defaults: `num_beams`, `max_new_tokens`, ...

    Returns:
        Token ids as `generate` gives them: from the decoder's start token to the end, and pads.
    """
    longest_first = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    targets: list[Any] = [None] * len(sources)
    device = next(model.parameters()).device
    for start in range(0, len(sources), batch_size):
        indices = longest_first[start : start + batch_size]
        batch = padded([sources[index] for index in indices], pad_id)
        with torch.inference_mode():
            written: Tensor = cast(Any, model).generate(
                **{name: tensor.to(device) for name, tensor in batch.items()},
                do_sample=False,
                **options,
            )
        for index, ids in zip(indices, written.cpu().numpy(), strict=True):
            targets[index] = ids
    return targets


def before_end(ids: np.ndarray, ends: np.ndarray | Sequence[int]) -> np.ndarray:
    """Leave out the first end of a text and what stands behind it, with which `generate` fills an answer.

    An end that is no special token would be read out.

    >>> before_end(np.array([5, 6, 2, 0, 0]), [2, 3]).tolist()
    [5, 6]
    """
    places = np.flatnonzero(np.isin(ids, ends))
    return ids[: places[0]] if len(places) else ids


def read_out(tokenizer: PreTrainedTokenizerBase, targets: Sequence[np.ndarray]) -> list[str]:
    return [cast(str, tokenizer.decode(ids, skip_special_tokens=True)) for ids in targets]


def rewritten(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], longest: int | None = None
) -> list[str]:
    """Encode and decode texts: what a model writes that writes all their tokens, `longest` at most.

    WordPiece sets spaces around punctuation, and what a normalizer changes is never written.
    """
    ids: Any = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return read_out(tokenizer, [each[:longest] for each in ids])


def padded(sequences: Sequence[np.ndarray], pad_id: int) -> dict[str, Tensor]:
    """Fill sequences on the right to the length of the longest: `input_ids` and `attention_mask`, (B, T)."""
    lengths = np.array([len(sequence) for sequence in sequences])
    mask = np.arange(lengths.max()) < lengths[:, None]
    input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
    input_ids[mask] = np.concatenate(sequences)
    return {
        "input_ids": torch.from_numpy(input_ids),
        "attention_mask": torch.from_numpy(mask.astype(np.int64)),
    }
