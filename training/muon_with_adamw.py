"""Muon for the matrices inside the blocks and AdamW for everything else, as one optimizer.

Embeddings, heads, norms and biases are AdamW's, and so is the length of all updates: one learning rate serves
both. Processes share the work of Muon (`orthogonalization.py`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from .muon import Muon
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
        for part in (self.others, self.matrices):
            if hasattr(self, FOUND_INF):
                setattr(part, FOUND_INF, getattr(self, FOUND_INF))
            part.step()

    def _share_state(self) -> None:
        """Let the parts work on our groups and state, which are new objects once a checkpoint was loaded."""
        split = len(self.others.param_groups)
        self.others.param_groups = self.param_groups[:split]
        self.matrices.param_groups = self.param_groups[split:]
        self.others.state = self.matrices.state = self.state


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
