"""Muon (Jordan et al., 2024): a matrix is moved by the momentum of its gradient, made nearly orthogonal.

No direction is then learned faster than another. That is meant for matrices that map hidden states to hidden
states; AdamW moves everything else. An update is scaled to be as long as one of AdamW's (Liu et al., 2025,
"Muon is scalable for LLM training", section 2.2), so that both can take one learning rate and one weight
decay:

    M = mu M + (1 - mu) G
    O = orthogonalized(mu M + (1 - mu) G)
    W = (1 - rate * decay) W - rate * 0.2 sqrt(max(A, B)) * O

This is `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`, with fewer and larger products, and fast on
machines without bfloat16, too (`orthogonalization.py`).

In O the rows, the updates of single neurons, still differ in length. NorMuon (Li et al., 2025, "NorMuon:
Making Muon more efficient and scalable", algorithm 1) divides each row by the root of a moving average of its
mean square, and then gives the whole update the length that it had before, so that its size is Muon's:

    v = beta v + (1 - beta) (mean of each row of O * O)      (A, 1), 0 at first: a common factor cancels
    U = O / (sqrt(v) + epsilon)
    W = (1 - rate * decay) W - rate * 0.2 sqrt(max(A, B)) * U |O| / |U|

Two details are those of the authors' code: the momentum is Nesterov's, and the length is |O|, where algorithm
1 has the length of an exactly orthogonal matrix, sqrt(min(A, B)).

Legend: A rows (neurons), B columns, K matrices of one shape, which move together.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import AdamW, Optimizer

from ...modeling.compatibility import change_each
from ..skipping import FOUND_INF
from .orthogonalization import batches_of_one_shape, norms, orthogonalized, pieces

MOMENTUM = "momentum_buffer"
"""Name of a matrix's momentum in the optimizer's state, as in `torch.optim.Muon`."""

SECOND_MOMENT = "neuron_second_moment"
"""Name of the moving average of a matrix's rows' mean squares, (A, 1), in the optimizer's state."""


class Muon(Optimizer):
    """Moves matrices by orthogonalized updates.

    Like torch's fused optimizers it does nothing if the attribute `found_inf` on the device says so:
    weights and state then stay as they are, to the last bit, whatever the gradients hold.

    Args:
        matrices: (A, B) each.
        lr: Learning rate, in the size of AdamW's.
        weight_decay: Relative to the learning rate.
        momentum: Decay rate of the momentum, mu.
        products: Format of the products that orthogonalize.
        copies: Processes that hold the same matrices and gradients, and share the work.
        constants: Further ones, of a subclass.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        *,
        momentum: float = 0.95,
        products: torch.dtype = torch.float32,
        copies: DeviceMesh | None = None,
        **constants: float,
    ):
        constants = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, **constants}
        super().__init__(matrices, constants)
        self.products = products
        self.copies = copies

    @classmethod
    def with_adamw(
        cls, model: nn.Module, build_adamw: Callable[[list[nn.Parameter]], AdamW], **constants: Any
    ) -> "MuonWithAdamW":
        """Move a model's hidden matrices; AdamW, which is built without them, moves everything else."""
        matrices = hidden_matrices(model)
        return MuonWithAdamW(build_adamw(matrices), cls(matrices, **constants))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move all matrices that have gradients once; there can be no `closure`."""
        assert closure is None
        for group in self.param_groups:
            is_broken = getattr(self, FOUND_INF, torch.zeros((), device=group["params"][0].device)) > 0
            shrinkage = torch.where(is_broken, 1.0, 1 - group["lr"] * group["weight_decay"])
            for matrices in batches_of_one_shape([p for p in group["params"] if p.grad is not None]):
                self._move(matrices, group, shrinkage, is_broken)

    def _move(
        self, matrices: list[Tensor], group: dict[str, Any], shrinkage: Tensor, is_broken: Tensor
    ) -> None:
        weights, momenta = pieces(matrices), self._remembered(MOMENTUM, matrices)
        gradients = torch.stack(pieces(matrix.grad for matrix in matrices if matrix.grad is not None))
        averages = self._advance(momenta, gradients, 1 - group["momentum"], is_broken)
        ahead = gradients.lerp_(averages, group["momentum"])  # Nesterov's view
        del averages  # makes room for the iteration
        directions = orthogonalized(ahead, matrices[0], self.products, self.copies)
        updates = self._updates(matrices, directions, group, is_broken)
        change_each("mul_", weights, shrinkage)
        size = group["lr"] * 0.2 * math.sqrt(max(matrices[0].shape))
        moves = updates.masked_fill_(is_broken, 0).unbind()
        change_each("add_", weights, moves, alpha=-size)

    def _remembered(self, name: str, matrices: list[Tensor], columns: int | None = None) -> list[Tensor]:
        # As wide as the matrices, or of some columns; zeros at first.
        for matrix in matrices:
            if name not in self.state[matrix]:
                self.state[matrix][name] = torch.zeros_like(matrix.narrow(1, 0, columns or matrix.shape[1]))
        return pieces(self.state[matrix][name] for matrix in matrices)

    def _advance(self, averages: list[Tensor], values: Tensor, share: float, is_broken: Tensor) -> Tensor:
        # Like the new values, the averages are returned as one tensor, (K, ...).
        before = torch.stack(averages)
        after = before.lerp(values, share)
        kept = torch.where(is_broken, before, after).unbind()
        change_each("copy_", averages, kept)
        return after

    def _updates(
        self, matrices: list[Tensor], directions: Tensor, group: dict[str, Any], is_broken: Tensor
    ) -> Tensor:
        # Subclasses return others, (K, A, B), of the same length.
        return directions


class NorMuon(Muon):
    """Moves matrices by orthogonalized updates whose rows are normalized.

    Args:
        neuron_beta: Decay rate of the second moment of neurons, beta.
        epsilon: Keeps divisions from dividing by zero.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        *,
        momentum: float = 0.95,
        neuron_beta: float = 0.95,
        epsilon: float = 1e-8,
        products: torch.dtype = torch.float32,
        copies: DeviceMesh | None = None,
    ):
        constants = {"neuron_beta": neuron_beta, "epsilon": epsilon}
        super().__init__(
            matrices, lr, weight_decay, momentum=momentum, products=products, copies=copies, **constants
        )

    def _updates(
        self, matrices: list[Tensor], directions: Tensor, group: dict[str, Any], is_broken: Tensor
    ) -> Tensor:
        moments = self._remembered(SECOND_MOMENT, matrices, columns=1)
        mean_squares = directions.square().mean(dim=2, keepdim=True)
        second_moments = self._advance(moments, mean_squares, 1 - group["neuron_beta"], is_broken)
        updates = directions / (second_moments.sqrt() + group["epsilon"])
        intended, found = norms([directions, updates], matrices[0])
        return updates.mul_(intended / found.clamp(min=group["epsilon"]))


class MuonWithAdamW(Optimizer):
    """Muon for the matrices inside the blocks and AdamW for everything else, as one optimizer.

    Groups and state are those of the whole; AdamW's groups come first. Like torch's fused optimizers it
    does nothing if the attribute `found_inf` on the device says so.
    """

    def __init__(self, others: AdamW, matrices: Muon):
        self.others, self.matrices = others, matrices
        super().__init__(others.param_groups + matrices.param_groups, {})
        self.defaults["fused"] = others.defaults["fused"]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move all parameters once; there can be no `closure`, which both parts would call."""
        assert closure is None
        self._share_state()
        for part in (self.others, self.matrices):
            if hasattr(self, FOUND_INF):
                setattr(part, FOUND_INF, getattr(self, FOUND_INF))
            part.step()

    def _share_state(self) -> None:
        # Our groups and state are new objects once a checkpoint was loaded.
        split = len(self.others.param_groups)
        self.others.param_groups = self.param_groups[:split]
        self.matrices.param_groups = self.param_groups[split:]
        self.others.state = self.matrices.state = self.state


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Find the trainable matrices inside a model's blocks: every `nn.ModuleList`, `nn.LSTM` and `nn.GRU`."""
    blocks = [module for module in model.modules() if isinstance(module, nn.ModuleList | nn.RNNBase)]
    inside = [
        module for block in blocks for module in block.modules() if not isinstance(module, nn.Embedding)
    ]
    parameters = dict.fromkeys(
        parameter for module in inside for parameter in module.parameters(recurse=False)
    )
    matrices = [parameter for parameter in parameters if parameter.dim() == 2 and parameter.requires_grad]
    if not matrices:
        raise ValueError(
            f"optimizer.kind = muon or normuon, but {type(model).__name__} has no trainable matrices in "
            "blocks (torch.nn.ModuleList) or recurrent layers: choose adamw"
        )
    return matrices
