"""Learning rates over a run, as factors of the optimizer's own rate.

Updates are counted from 1, so the first one already moves the weights, and the warm-up's last one moves them
at the highest rate. A curve that falls to an end value would reach it one update after the last, so that the
last one moves them too.

Legend: n number of the update, w updates of the warm-up, N updates of the run, d model width.
"""

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ..recipe import ScheduleRecipe

Curve = Callable[[int], float]
"""Factor of the learning rate at update n."""


def build_schedule(optimizer: Optimizer, schedule: ScheduleRecipe, *, steps: int, width: int) -> LambdaLR:
    """Let a schedule's curve set the optimizer's rate over `steps` updates; `width` is d, for `noam`."""
    curve = CURVES[schedule.kind](schedule, schedule.warmup_updates(steps), steps, width)
    return LambdaLR(optimizer, lambda updates_done: curve(updates_done + 1))


def noam(schedule: ScheduleRecipe, warmup: int, steps: int, width: int) -> Curve:
    """The rate itself: factor * d^-0.5 * min(n^-0.5, n * w^-1.5) (Vaswani et al., 2017, section 5.3)."""
    return lambda n: schedule.factor * width**-0.5 * min(n**-0.5, n * warmup**-1.5)


def inverse_square_root(schedule: ScheduleRecipe, warmup: int, steps: int, width: int) -> Curve:
    """Noam's shape with a highest factor of 1: min(n / w, sqrt(w / n))."""
    return lambda n: min(n / warmup, math.sqrt(warmup / n))


def constant(schedule: ScheduleRecipe, warmup: int, steps: int, width: int) -> Curve:
    """1 after the warm-up."""
    return lambda n: rise(n, warmup)


def linear(schedule: ScheduleRecipe, warmup: int, steps: int, width: int) -> Curve:
    """A straight line from 1 to `final_ratio` (Devlin et al., 2019, appendix A.2, with end 0)."""
    return lambda n: rise(n, warmup) * fall(1 - part(n, warmup, steps), schedule.final_ratio)


def cosine(schedule: ScheduleRecipe, warmup: int, steps: int, width: int) -> Curve:
    """Half a cosine from 1 to `final_ratio` (Loshchilov and Hutter, 2017, section 3, without restarts)."""
    return lambda n: (
        rise(n, warmup) * fall((1 + math.cos(math.pi * part(n, warmup, steps))) / 2, schedule.final_ratio)
    )


def warmup_stable_decay(schedule: ScheduleRecipe, warmup: int, steps: int, width: int) -> Curve:
    """1 until the last `decay_ratio` of the run, then a fall by `decay_shape`.

    The idea is Hu et al., 2024, "MiniCPM", section 4; both shapes are compared in Hägele et al., 2024,
    section 3.
    """
    start = max(warmup, steps - round(schedule.decay_ratio * steps))
    shape = DECAY_SHAPES[schedule.decay_shape]
    return lambda n: rise(n, warmup) * fall(shape(part(n, start, steps)), schedule.final_ratio)


CURVES = {
    "noam": noam,
    "inverse_square_root": inverse_square_root,
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "warmup_stable_decay": warmup_stable_decay,
}
"""What makes each kind's curve from a schedule, w, N and d."""

DECAY_SHAPES: dict[str, Callable[[float], float]] = {
    "sqrt": lambda x: 1 - math.sqrt(x),
    "linear": lambda x: 1 - x,
}
"""Falls from 1 to 0 by the part of the decay that is over, x."""


def rise(n: int, warmup: int) -> float:
    """Rise in a straight line to 1 at update w, and stay there."""
    return min(n / warmup, 1.0) if warmup else 1.0


def part(n: int, start: int, steps: int) -> float:
    """Return which part of the updates after `start` is over: 0 until `start`, 1 just after the run."""
    return min(max(n - start, 0) / (steps + 1 - start), 1.0)


def fall(shape: float, end: float) -> float:
    """Stretch a curve from 1 to 0 so that it ends at `end`."""
    return end + (1 - end) * shape
