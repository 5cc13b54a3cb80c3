"""What tells that the parameters of linear layers have changed."""

import torch
from torch import Tensor, nn

ROWS_AT_ONCE = 512
"""Rows of a weight whose bits are summed together."""


def versions(*layers: nn.Linear) -> list[int | None]:
    """Count how often torch has changed each of the layers' parameters; it does not for inference tensors."""
    parameters = (parameter for layer in layers for parameter in layer.parameters())
    return [None if parameter.is_inference() else parameter._version for parameter in parameters]


def checksums(*layers: nn.Linear) -> list[Tensor]:
    """Sum the bits of each row and each column of the layers' parameters as whole numbers.

    They tell of changes that torch does not count, through `.data` or numpy. No single one escapes, nor do
    rows or columns that change places.
    """
    return [checksum(parameter.detach()) for layer in layers for parameter in layer.parameters()]


def checksum(parameter: Tensor) -> Tensor:
    """Sum words of eight bytes where they fit: torch adds these as fast as it reads them.

    Some rows at a time, which the processor's cache still holds when their columns are added. A bias is its
    own checksum.
    """
    row = parameter.shape[-1] * parameter.itemsize
    kind = torch.int64 if row % 8 == 0 else torch.int32 if row % 4 == 0 else torch.int16
    words = parameter.contiguous().view(kind)
    if words.dim() == 1:
        return words.clone()
    of_rows, of_columns = [], torch.zeros(words.shape[1], dtype=torch.int64)
    for part in words.split(ROWS_AT_ONCE):
        of_rows.append(part.sum(dim=1))
        of_columns += part.sum(dim=0)
    return torch.cat([*of_rows, of_columns])
