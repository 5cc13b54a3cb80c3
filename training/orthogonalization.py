"""The quintic Newton-Schulz iteration of Muon (Jordan et al., 2024), for many matrices at once.

It brings all singular values of a matrix near 1. That needs few digits: on devices that multiply bfloat16
numbers faster than float32, its products are in bfloat16, as in `torch.optim.Muon`. Elsewhere they are in
float32; on a CPU without such instructions, bfloat16 was 150 times as slow.

Matrices of equal shape are orthogonalized together, and a tall one as its transpose. The arithmetic is the
same, in fewer and larger products.

Legend: A rows, B columns, K matrices of one shape, with A <= B once tall ones are transposed.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from .precision import has_bfloat16

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration (Jordan et al., 2024), as in `torch.optim.Muon`."""

ITERATIONS = 5
"""How often it is applied."""

BATCH_NUMBERS = 2**22
"""Numbers of the matrices that are orthogonalized together: more would cost memory and save no time."""


def batches_of_one_shape(matrices: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Group matrices by shape, tall ones with their transposes, in batches of at most `BATCH_NUMBERS`."""
    groups: dict[tuple[Any, ...], list[Tensor]] = {}
    for matrix in matrices:
        groups.setdefault((*sorted(matrix.shape), matrix.dtype, matrix.device), []).append(matrix)
    for group in groups.values():
        size = max(1, BATCH_NUMBERS // group[0].numel())
        for start in range(0, len(group), size):
            yield group[start : start + size]


def orthogonalized(matrices: list[Tensor]) -> list[Tensor]:
    """Bring the singular values of matrices near 1, as `torch.optim.Muon` does.

    All matrices have one shape, or its transpose, and so has the result, in the type of the matrices.
    """
    a, b, c = COEFFICIENTS
    wide = [matrix.T if is_tall(matrix) else matrix for matrix in matrices]
    products = torch.bfloat16 if has_bfloat16(matrices[0].device) else torch.float32
    x = torch.stack([matrix.to(products) for matrix in wide])  # (K, A, B)
    x /= x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT  # (K, A, A)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    found = x.to(matrices[0].dtype)
    return [each.T if is_tall(matrix) else each for each, matrix in zip(found, matrices, strict=True)]


def is_tall(matrix: Tensor) -> bool:
    """Tell whether a matrix has more rows than columns."""
    return matrix.shape[0] > matrix.shape[1]
