"""The quintic Newton-Schulz iteration of Muon (Jordan et al., 2024), for many matrices at once.

It brings all singular values of a matrix near 1. That needs few digits: on devices that multiply bfloat16
numbers faster than float32, its products are in bfloat16, as in `torch.optim.Muon`. Elsewhere they are in
float32; on a CPU without such instructions, bfloat16 was 150 times as slow.

Matrices of equal shape are orthogonalized together, and a tall one as its transpose. The arithmetic is the
same, in fewer and larger products.

Of matrices in pieces, each process holds some rows. It gathers its share of the matrices, orthogonalizes
these, and sends their rows back (as in distributed Muon; Liu et al., 2025, "Muon is scalable for LLM
training", section 2.3): nothing is computed twice.

Legend: A rows, B columns, K matrices of one shape, with A <= B once tall ones are transposed.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from .precision import has_bfloat16

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration (Jordan et al., 2024), as in `torch.optim.Muon`."""

ITERATIONS = 5
"""How often it is applied."""

BATCH_NUMBERS = 2**22
"""Numbers of the matrices that are orthogonalized together: more would cost memory and save no time."""


def batches_of_one_shape(matrices: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Group matrices by shape, in batches of at most `BATCH_NUMBERS`.

    Tall ones stand with their transposes, but not in pieces, which are rows.
    """
    groups: dict[tuple[Any, ...], list[Tensor]] = {}
    for matrix in matrices:
        shape = matrix.shape if isinstance(matrix, DTensor) else sorted(matrix.shape)
        groups.setdefault((*shape, matrix.dtype, matrix.device), []).append(matrix)
    for group in groups.values():
        size = max(1, BATCH_NUMBERS // group[0].numel())
        for start in range(0, len(group), size):
            yield group[start : start + size]


def orthogonalized(matrices: list[Tensor]) -> list[Tensor]:
    """Bring the singular values of matrices near 1, as `torch.optim.Muon` does.

    All matrices have one shape, or its transpose, and so has the result, in the type of the matrices. All of
    them may be in pieces.
    """
    if isinstance(matrices[0], DTensor):
        return orthogonalized_in_pieces(matrices)
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


def orthogonalized_in_pieces(matrices: list[Any]) -> list[Tensor]:
    """Do the same with matrices (A, B) of which each process holds some rows; all processes call this."""
    mesh, placements, shape = matrices[0].device_mesh, matrices[0].placements, matrices[0].shape
    assert placements == (Shard(0),)
    sizes: dict[str, Any] = {"shape": (len(matrices), *shape)}
    sizes["stride"] = (shape.numel(), shape[1], 1)
    rows = torch.stack([matrix.to_local() for matrix in matrices])  # (K, own rows, B)
    gathered = DTensor.from_local(rows, mesh, (Shard(1),), run_check=False, **sizes)
    own = gathered.redistribute(placements=(Shard(0),)).to_local()  # (own matrices, A, B)
    found = torch.stack(orthogonalized([*own])) if len(own) else own
    sent = DTensor.from_local(found, mesh, (Shard(0),), run_check=False, **sizes)
    pieces = sent.redistribute(placements=(Shard(1),)).to_local()
    whole = {"shape": shape, "stride": (shape[1], 1)}
    return [DTensor.from_local(piece, mesh, placements, run_check=False, **whole) for piece in pieces]


def is_tall(matrix: Tensor) -> bool:
    """Tell whether a matrix has more rows than columns."""
    return matrix.shape[0] > matrix.shape[1]
