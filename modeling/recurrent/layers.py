"""Recurrent layers: torch's kernels, and beside them the equations of one step, which define them.

A layer's state is one tensor, whatever it is made of, so that caches and beams need not know. The two
directions of a bidirectional layer share the width: each has one half of the channels of outputs and states.

Shapes: B batch, T positions, C width, H width of one direction, P parts of a state.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence
from transformers import initialization as init


class RecurrentLayer(ABC):
    """One recurrent layer. Abstract: a subclass also is the layer of torch's that computes it.

    From there come `hidden_size` C, `get_parameter` and `parameters`.
    """

    num_parts: ClassVar[int]
    """P: how many vectors of width C a state consists of."""

    hidden_size: int
    __call__: Callable[..., Any]
    get_parameter: Callable[[str], nn.Parameter]
    parameters: Callable[..., Any]

    @abstractmethod
    def step(self, projected: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Compute one step of one direction by its equations.

        Args:
            projected: What has been read, multiplied by the input's weights, (B, gates * H).
            state: The state before it, (B, P, H).
            weight: Weight of the state, (gates * H, H).
            bias: Bias of the state, (gates * H,).

        Returns:
            The state after it, (B, P, H), whose first part is the output.
        """

    @abstractmethod
    def parts(self, state: Tensor) -> Any:
        """Return a state (B, P, C) of a layer of one direction as torch takes it."""

    @abstractmethod
    def joined(self, parts: Any) -> Tensor:
        """Make a state (B, P, C) of what torch returns, the directions beside each other."""

    def read(self, sequences: PackedSequence | Tensor, state: Tensor | None) -> tuple[Any, Tensor]:
        """Read sequences behind a state (B, P, C), by default zeros: their outputs, and final states."""
        outputs, parts = read_in_full(self, sequences, None if state is None else self.parts(state))
        return outputs, self.joined(parts)

    def define(self, x: Tensor, state: Tensor, direction: str = "") -> tuple[Tensor, Tensor]:
        """Read vectors (B, T, C) one after another: outputs (B, T, H), and the state at the end. The
        definition.

        `direction` is torch's ending of the names of a direction's weights: "" or "_reverse", for which the
        vectors are in reversed order.
        """
        names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        input_weight, input_bias, weight, bias = (self.get_parameter(f"{n}_l0{direction}") for n in names)
        outputs = []
        for vectors in x.unbind(1):
            state = self.step(F.linear(vectors, input_weight, input_bias), state, weight, bias)
            outputs.append(state[:, 0])
        return torch.stack(outputs, dim=1), state

    def draw(self) -> None:
        """Draw all weights evenly between -1 / sqrt(H) and 1 / sqrt(H), as torch does."""
        bound = self.hidden_size**-0.5
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)


class LongShortTermMemory(RecurrentLayer, nn.LSTM):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with forget gates (Gers et al., 2000).

    A state is h, which is the output, and the cell c.
    """

    num_parts = 2

    def step(self, projected: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        hidden, cell = state.unbind(1)
        gates = projected + F.linear(hidden, weight, bias)
        enter, forget, new, leave = gates.chunk(4, dim=-1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return torch.stack((leave.sigmoid() * cell.tanh(), cell), dim=1)

    def parts(self, state: Tensor) -> tuple[Tensor, Tensor]:
        return state[None, :, 0].contiguous(), state[None, :, 1].contiguous()

    def joined(self, parts: tuple[Tensor, Tensor]) -> Tensor:
        return torch.stack([side_by_side(part) for part in parts], dim=1)


class GatedRecurrentUnit(RecurrentLayer, nn.GRU):
    """Gated recurrent unit (Cho et al., 2014), in the form that cuDNN computes.

    The reset gate scales the product of state and weights, where in the paper it scales the state before
    that. A state is h, which is the output.
    """

    num_parts = 1

    def step(self, projected: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        hidden = state[:, 0]
        of_input, of_state = projected.chunk(3, dim=-1), F.linear(hidden, weight, bias).chunk(3, dim=-1)
        reset, keep = ((x + h).sigmoid() for x, h in zip(of_input[:2], of_state[:2], strict=True))
        new = (of_input[2] + reset * of_state[2]).tanh()
        return ((1 - keep) * new + keep * hidden)[:, None]

    def parts(self, state: Tensor) -> Tensor:
        return state[None, :, 0].contiguous()

    def joined(self, parts: Tensor) -> Tensor:
        return side_by_side(parts)[:, None]


def read_in_full(layer: Any, sequences: PackedSequence | Tensor, state: Any = None) -> tuple[Any, Any]:
    """Let a layer of torch's read; where a GPU multiplies in bfloat16, in the type of the layer's weights.

    cuDNN's layers compute in float16 under autocast, whatever its type is: without a scaler, gradients would
    vanish. What the layer gives is of autocast's type, as of all other layers.
    """
    if not (sequences.is_cuda and torch.is_autocast_enabled("cuda")):
        return layer(sequences, state)
    dtype, autocast = layer.weight_ih_l0.dtype, torch.get_autocast_dtype("cuda")
    if autocast == torch.float16:
        return layer(sequences, state)
    with torch.autocast("cuda", enabled=False):
        outputs, parts = layer(cast_to(dtype, sequences), cast_to(dtype, state))
    return cast_to(autocast, outputs), cast_to(autocast, parts)


def cast_to(dtype: torch.dtype, x: Any) -> Any:
    """Cast sequences, or a state as torch takes and gives it: one tensor, two, or none."""
    if isinstance(x, tuple) and not isinstance(x, PackedSequence):
        return tuple(part.to(dtype) for part in x)
    return None if x is None else x.to(dtype)


def side_by_side(part: Tensor) -> Tensor:
    """Put both directions of a part of the state beside each other: (directions, B, H) -> (B, C)."""
    return part.transpose(0, 1).flatten(1)


CELLS: dict[str, type[LongShortTermMemory] | type[GatedRecurrentUnit]] = {
    "lstm": LongShortTermMemory,
    "gru": GatedRecurrentUnit,
}
"""By the field `cell_type` of a configuration."""


def build_layers(cell_type: str, width: int, num_layers: int, *, is_bidirectional: bool) -> Any:
    """Build a `ModuleList` of layers that read and write vectors of one width."""
    hidden_size = width // 2 if is_bidirectional else width
    layers = (
        CELLS[cell_type](width, hidden_size, batch_first=True, bidirectional=is_bidirectional)
        for _ in range(num_layers)
    )
    return nn.ModuleList(layers)
