"""When a run saves a checkpoint, and when an older one may go.

    step        18   19   20   21   22   23 ...
    gradient    ok   ok   ok   ok   inf  inf
    checkpoint  18                                 due at 18 and 22, with checkpoint_every = 4
    pruned           by 19, which has shown that 18 can be learned from

While steps are skipped, since their gradient is not finite, nothing is saved and nothing deleted: what was
kept before is all that there is to go on from, and the weights of a new checkpoint might be the broken ones.
One that came due meanwhile is saved after the next finite step. A checkpoint pushes others out only once a
step after it was finite.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from .checkpoint import prune
from .recipe import TrainingRecipe


@dataclass
class CheckpointRetention:
    """Watches the steps of a run."""

    folder: Path
    """Of the checkpoints."""
    recipe: TrainingRecipe
    """Says how often they are due, and how many stay."""
    is_main_process: bool
    """Whether this process is the one that deletes."""
    grad_norm: Tensor = field(default_factory=lambda: torch.zeros(()))
    """Of the latest step; all processes know it."""
    is_due: bool = False
    is_unproved: bool = False
    """Whether no step after the newest checkpoint was finite yet."""

    @property
    def is_skipping(self) -> bool:
        """Whether the latest step was skipped; a GPU is waited for."""
        return not bool(self.grad_norm.isfinite())

    def is_to_save(self, step: int, grad_norm: Tensor) -> bool:
        """Note a step, delete what it allows to, and tell whether a checkpoint is to be saved after it.

        A GPU is waited for only where something depends on the answer.
        """
        self.grad_norm = grad_norm
        every = self.recipe.checkpoint_every
        self.is_due |= every is not None and step % every == 0
        if not (self.is_due or self.is_unproved) or self.is_skipping:
            return False
        self.prune()
        return self.is_due

    def note_saved(self) -> None:
        """Begin to wait for the next one, and for a step that proves this one."""
        self.is_due, self.is_unproved = False, True

    def is_worth_saving(self, is_finished: bool, has_earlier: bool) -> bool:
        """Tell whether a run that ends here saves: not amid skipped steps, if there is one to go on from."""
        return is_finished or not has_earlier or not self.is_skipping

    def prune(self) -> None:
        """Delete what is not among the newest, unless steps are being skipped."""
        if self.is_unproved and not self.is_skipping:
            self.is_unproved = False
            if self.is_main_process:
                prune(self.folder, self.recipe.keep_checkpoints, self.recipe.average_checkpoints or 0)
