"""The quintic Newton-Schulz iteration of Muon (Jordan et al., 2024), for many matrices at once.

It brings all singular values of a matrix near 1. That needs few digits: where a run computes in bfloat16, or
a GPU can, its products are in bfloat16, as in `torch.optim.Muon`. Elsewhere they are in float32; on a CPU
without such instructions, bfloat16 was 150 times as slow.

Matrices of equal shape are orthogonalized together, and tall ones as their transposes. The arithmetic is the
same, in fewer and larger products.

Processes share the work, and nothing is computed twice (as in distributed Muon; Liu et al., 2025, "Muon is
scalable for LLM training", section 2.3). Where each holds some rows of every matrix, it gathers its share of
the matrices, orthogonalizes these, and sends their rows back. Where each holds copies, it sends what it has
orthogonalized to all. Replicas of models in pieces (HSDP) each do the whole work: the links between them are
slow.

Legend: A rows, B columns, K matrices of one shape.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from ..devices.sharding import device_of, group_of_pieces, own_part

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration (Jordan et al., 2024), as in `torch.optim.Muon`."""

ITERATIONS = 5
"""How often it is applied."""

BATCH_NUMBERS = {"cpu": 2**22}
"""Numbers of the matrices that are orthogonalized together, by device: a CPU's caches hold no more."""

MANY_NUMBERS = 2**25
"""The same on other devices: fewer and larger products, for 128 MiB of float32 numbers at each stage."""

SHARED_FROM = 512
"""Rows and columns from which copies share the work.

A number that is sent, in two bytes, stands for 20 to 30 min(A, B) operations. A GPU carries out about 3,000
of them in the time in which NVLink sends the number, and 30,000 while PCI Express does: sharing gains much
where links are fast or matrices large, and else loses little beside the exchange of gradients.
"""


def batches_of_one_shape(matrices: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Group matrices by shape, in batches of a size that suits their device."""
    groups: dict[tuple[Any, ...], list[Tensor]] = {}
    for matrix in matrices:
        groups.setdefault((matrix.shape, matrix.dtype, device_of(matrix)), []).append(matrix)
    for group in groups.values():
        size = max(1, BATCH_NUMBERS.get(device_of(group[0]).type, MANY_NUMBERS) // group[0].numel())
        for start in range(0, len(group), size):
            yield group[start : start + size]


def orthogonalized(
    matrices: Tensor, like: Tensor, products: torch.dtype, copies: DeviceMesh | None = None
) -> Tensor:
    """Bring the singular values of stacked matrices (K, A, B) near 1, as `torch.optim.Muon` does.

    Args:
        matrices: Or the rows of each that this process holds; then all processes call this.
        like: One of them, which says whether they are in pieces.
        products: Format of the products; the same on all processes, which send numbers of it.
        copies: Processes that hold the same matrices, and all call this.
    """
    rounded = matrices.to(device_of(like), products)
    if isinstance(like, DTensor):
        assert like.placements in ((Shard(0),), (Replicate(), Shard(0)))
        found = shared_out(rounded, like.shape, group_of_pieces(like), Shard(1))
    elif copies is not None and min(like.shape) >= SHARED_FROM and len(matrices) > 1:
        found = shared_out(rounded, like.shape, copies, Replicate())
    else:
        found = newton_schulz(rounded)
    return found.to(matrices.device, matrices.dtype, memory_format=torch.contiguous_format)


def shared_out(matrices: Tensor, shape: torch.Size, processes: DeviceMesh, held: Placement) -> Tensor:
    """Orthogonalize a share of the matrices (K, A, B), of which a part is here, and exchange the results."""
    sizes: dict[str, Any] = {"shape": (len(matrices), *shape), "stride": (shape.numel(), shape[1], 1)}
    whole = DTensor.from_local(matrices, processes, (held,), run_check=False, **sizes)
    mine = whole.redistribute(placements=(Shard(0),)).to_local()  # (matrices of this process, A, B)
    found = newton_schulz(mine).contiguous()
    sent = DTensor.from_local(found, processes, (Shard(0),), run_check=False, **sizes)
    return sent.redistribute(placements=(held,)).to_local()


def newton_schulz(matrices: Tensor) -> Tensor:
    """Orthogonalize matrices (K, A, B), in the type that they have."""
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT.clone(memory_format=torch.contiguous_format) if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT  # (K, A, A), with A <= B
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


def pieces(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return tensors, or the pieces of them that this process holds; they share memory."""
    return [*map(own_part, tensors)]


def norms(stacks: Iterable[Tensor], like: Tensor) -> Tensor:
    """Measure matrices, (..., K, 1, 1), in stacks (K, A, B); of those in pieces, all processes' rows."""
    lengths = torch.stack([matrices.norm(dim=(1, 2), keepdim=True) for matrices in stacks])
    if not isinstance(like, DTensor):
        return lengths
    squares = lengths.square().to(device_of(like))
    shared = DTensor.from_local(squares, group_of_pieces(like), (Partial(),), run_check=False)
    return shared.full_tensor().sqrt().to(lengths.device)
