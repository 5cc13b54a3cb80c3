"""What is added up between two records of the log: the sums of every step's metrics, and where they begin.

Steps that are not finite are left out, or one of them would make the mean of all not a number. The sums stay
on the device, and a checkpoint keeps them, so that a resumed run writes the records of an uninterrupted one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor

COMMON = "grad_norm"
"""The metric that every process knows; of the others each holds a share."""

FINITE = "finite_steps"
"""Under this name the sums count the steps that are in them."""


@dataclass
class MetricAccumulator:
    """The steps since a record."""

    step: int = 0
    """Progress of the run at the record."""
    tokens: int = 0
    """Tokens seen until then."""
    seconds: float = 0.0
    """Seconds taken until then."""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """This process's shares, added up by name."""

    def add(self, metrics: dict[str, Tensor], num_processes: int) -> None:
        """Add one step's metrics, unless its gradient is not finite; no GPU is waited for."""
        is_finite = metrics[COMMON].isfinite()
        common = {COMMON: metrics[COMMON] / num_processes, FINITE: is_finite / num_processes}
        values = torch.stack([value.float() for value in (metrics | common).values()])
        taken = torch.where(is_finite, values, 0)
        for name, value in zip(metrics | common, taken.unbind(), strict=True):
            self.sums[name] = self.sums[name].to(value.device) + value if name in self.sums else value

    def means(self, accelerator: Accelerator) -> dict[str, float]:
        """Average each metric over the finite steps and all processes; not a number if there are none."""
        totals = cast(Tensor, accelerator.reduce(torch.stack(list(self.sums.values())))).tolist()
        named = dict(zip(self.sums, totals, strict=True))
        count = named.pop(FINITE)
        return {name: total / count if count else math.nan for name, total in named.items()}

    def begin(self, step: int, tokens: int, seconds: float) -> None:
        self.step, self.tokens, self.seconds, self.sums = step, tokens, seconds, {}

    def state_dict(self) -> dict[str, Any]:
        sums = {name: value.cpu().clone() for name, value in self.sums.items()}
        return {"step": self.step, "tokens": self.tokens, "seconds": self.seconds, "sums": sums}

    def load_state_dicts(self, states: Sequence[dict[str, Any]], index: int, num_processes: int) -> None:
        """Continue from the states of all processes; where there are fewer now, each takes over several."""
        self.begin(states[0]["step"], states[0]["tokens"], states[0]["seconds"])
        for state in states[index::num_processes]:
            for name, value in state["sums"].items():
                self.sums[name] = self.sums[name] + value if name in self.sums else value
