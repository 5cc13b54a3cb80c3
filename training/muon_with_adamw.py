"""Muon for the matrices inside the blocks and AdamW for everything else, as one optimizer.

Embeddings, heads, norms and biases are AdamW's, and so is the length of all updates: one learning rate serves
both. Processes that hold copies repeat Muon's work; those that hold pieces share it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW, Optimizer

from .muon import MOMENTUM, Muon
from .skipping import FOUND_INF


class MuonWithAdamW(Optimizer):
    """Two optimizers as one: groups and state are its own, AdamW's groups come first.

    Like torch's fused optimizers it can be told on the device, by the attribute `found_inf`, to do nothing.

    Args:
        others: Moves everything but the matrices.
        matrices: Moves the matrices.
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
        if (found_inf := getattr(self, FOUND_INF, None)) is None:
            self.others.step()
            self.matrices.step()
        else:
            setattr(self.others, FOUND_INF, found_inf)
            self.others.step()
            with self._undone_where(found_inf > 0):
                self.matrices.step()

    def _share_state(self) -> None:
        """Let the parts work on our groups and state, which are new objects once a checkpoint was loaded."""
        split = len(self.others.param_groups)
        self.others.param_groups = self.param_groups[:split]
        self.matrices.param_groups = self.param_groups[split:]
        self.others.state = self.matrices.state = self.state

    @contextmanager
    def _undone_where(self, is_broken: Tensor) -> Iterator[None]:
        """Leave matrices and their state as they were if the step is broken, without asking the device.

        The copies of the matrices take no more memory than the second moments that Muon does without.
        """
        matrices = [p for group in self.matrices.param_groups for p in group["params"] if p.grad is not None]
        before = [(matrix.clone(), self._beside_momentum(matrix)) for matrix in matrices]
        for matrix in matrices:
            # A momentum moves towards the gradient, and so stays where it is if the gradient equals it.
            momentum = self.state[matrix].get(MOMENTUM, torch.zeros_like(matrix))
            matrix.grad = either(is_broken, momentum, matrix.grad)
        yield
        for matrix, (earlier, state) in zip(matrices, before, strict=True):
            matrix.copy_(either(is_broken, earlier, matrix))
            for name, value in self._beside_momentum(matrix).items():
                start = state.get(name, torch.zeros_like(value))  # every state begins with zeros
                self.state[matrix][name] = either(is_broken, start, value)

    def _beside_momentum(self, matrix: nn.Parameter) -> dict[str, Tensor]:
        """Copy what is remembered of a matrix beside its momentum."""
        return {name: value.clone() for name, value in self.state[matrix].items() if name != MOMENTUM}


def either(condition: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Choose `left` if a condition holds, else `right`; both may be in pieces."""
    if not isinstance(left, DTensor) or not isinstance(right, DTensor):
        return torch.where(condition, left, right)
    own = torch.where(condition, left.to_local(), right.to_local())
    sizes: dict[str, Any] = {"shape": left.shape, "stride": left.stride()}
    return DTensor.from_local(own, left.device_mesh, left.placements, run_check=False, **sizes)


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Find the trainable matrices inside a model's blocks: every `nn.ModuleList`, `nn.LSTM` and `nn.GRU`.

    Raises:
        ValueError: The model has none.
    """
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
