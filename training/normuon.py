"""NorMuon (Li et al., 2025, "NorMuon: Making Muon more efficient and scalable", algorithm 1).

Muon makes the momentum of a gradient nearly orthogonal. The rows of the result, each the update of one
neuron's weights, still differ in length. NorMuon divides each row by the root of a moving average of its mean
square, and then gives the whole update the length that it had before. Its size is therefore Muon's, which is
that of an update of AdamW: 0.2 sqrt(max(A, B)) times a nearly orthogonal matrix (Liu et al., 2025, section
2.2).

    M = mu M + (1 - mu) G
    O = orthogonalized(mu M + (1 - mu) G)
    v = beta v + (1 - beta) (mean of each row of O * O)      (A, 1), 0 at first: a common factor cancels
    U = O / (sqrt(v) + epsilon)
    W = (1 - rate * decay) W - rate * 0.2 sqrt(max(A, B)) * U |O| / |U|

Two details are those of the authors' code: the momentum is Nesterov's, and the length is |O|, where algorithm
1 has the length of an exactly orthogonal matrix, sqrt(min(A, B)).

Legend: A rows (neurons), B columns, K matrices of one shape, which move together.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from .muon import Muon
from .orthogonalization import norms

SECOND_MOMENT = "neuron_second_moment"
"""Name of the moving average of a matrix's rows' mean squares, (A, 1), in the optimizer's state."""


class NorMuon(Muon):
    """Moves matrices by orthogonalized updates whose rows are normalized.

    Args:
        matrices: (A, B) each.
        lr: Learning rate, in the size of AdamW's.
        weight_decay: Relative to the learning rate.
        momentum: Decay rate of the momentum, mu.
        neuron_beta: Decay rate of the second moment of neurons, beta.
        epsilon: Keeps divisions from dividing by zero.
        copies: Processes that hold the same matrices and gradients, and share the work.
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
        copies: DeviceMesh | None = None,
    ):
        constants = {"neuron_beta": neuron_beta, "epsilon": epsilon}
        super().__init__(matrices, lr, weight_decay, momentum=momentum, copies=copies, **constants)

    def _updates(
        self, matrices: list[Tensor], directions: Tensor, group: dict[str, Any], is_broken: Tensor
    ) -> Tensor:
        """Normalize the rows of orthogonalized directions, and give them their lengths again."""
        moments = self._remembered(SECOND_MOMENT, matrices, columns=1)
        mean_squares = directions.square().mean(dim=2, keepdim=True)
        second_moments = self._advance(moments, mean_squares, 1 - group["neuron_beta"], is_broken)
        updates = directions / (second_moments.sqrt() + group["epsilon"])
        intended, found = norms([directions, updates], matrices[0])
        return updates.mul_(intended / found.clamp(min=group["epsilon"]))
