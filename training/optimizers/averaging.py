"""Averages of a run's weights: a moving one (EMA) over all steps, and the mean of the last checkpoints.

    ema    E(t) = E(t-1) + (1 - d) / (1 - d^t) * (W(t) - E(t-1))     after step t, with decay d
    mean   (W(S) + W(c1) + ... + W(cN-1)) / N                        at the end, step S

The moving average begins without bias: the factor is 1 at the first step, so that the random weights before
it have no part, and E(t) is the average of W(1) ... W(t) with weights d^(t-1), ..., d, 1, divided by their
sum. That is Polyak and Juditsky's average (1992) with forgetting, corrected as Adam corrects its moments
(Kingma and Ba, 2015, section 3). Skipped steps move no weights and are not counted.

The mean is of the weights at the end and of the newest checkpoints that were due by `checkpoint_every`
(Vaswani et al., 2017, section 6.1). Those that a signal or an earlier end of the run left have no part, so
that a resumed run has the same mean as an uninterrupted one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from ...modeling.compatibility import change_each
from ..devices.sharding import load_whole_weights, own_part


class WeightAverage:
    """A copy of a model's weights that moves towards them, and can take their place for a while.

    Of a model in pieces, every process averages its own.

    Args:
        model: Prepared, or the bare model; its present weights are what is copied.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self.copies = [weight.clone() for weight in own_weights(model)]

    @torch.no_grad()
    def add(self, share: float | Tensor) -> None:
        """Go a share of the way to the model's present weights: 1 is all of it. A GPU is not waited for."""
        shares: float | list[Tensor]
        if isinstance(share, Tensor) and not self.copies[0].is_cpu:
            by_type = {dtype: share.to(dtype) for dtype in {copy.dtype for copy in self.copies}}
            shares = [by_type[copy.dtype] for copy in self.copies]
        else:
            shares = float(share)
        change_each("lerp_", self.copies, own_weights(self.model), shares)

    def move(self, decay: float, step: int, skipped: int | Tensor, in_a_row: int | Tensor) -> None:
        """Follow the weights after a step, as `moving_share` says."""
        self.add(moving_share(decay, step, skipped, in_a_row))

    @torch.no_grad()
    def exchange(self) -> None:
        """Let the model's weights and these change places."""
        for weight, copy in zip(own_weights(self.model), self.copies, strict=True):
            earlier = weight.clone()
            weight.copy_(copy)
            copy.copy_(earlier)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model have these weights inside the context."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()


def own_weights(model: nn.Module) -> list[Tensor]:
    """List a model's weights, each once, or this process's pieces of them."""
    unique = {id(weight): weight for weight in model.state_dict(keep_vars=True).values()}
    pieces = map(own_part, unique.values())
    return [piece.detach() for piece in pieces if piece.is_floating_point()]


def moving_share(decay: float, step: int, skipped: int | Tensor, in_a_row: int | Tensor) -> Tensor:
    """Return the share of the way to the weights that an unbiased average goes after a step.

    Args:
        step: From 1 on.
        skipped: Steps so far that moved no weights; where they are counted, the share is computed.
        in_a_row: How many of the latest steps those were; after one of them the average stays.
    """
    number = (step - torch.as_tensor(skipped)).double()
    share = (1 - decay) / (1 - decay**number)
    return share.masked_fill(torch.as_tensor(in_a_row, device=share.device) > 0, 0)


def mean_with(model: nn.Module, checkpoints: Sequence[Path]) -> WeightAverage:
    """Average a model's present weights with those of checkpoints, and leave the model as it is."""
    present, mean = WeightAverage(model), WeightAverage(model)
    for number, checkpoint in enumerate(checkpoints, start=2):
        load_whole_weights(model, safetensors.torch.load_file(checkpoint / "model.safetensors"))
        mean.add(1 / number)
    present.exchange()
    return mean
