"""The teacher: a model of ours or a stock one, that reads the student's batches and learns nothing."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedTokenizerBase

from ..configs.messages import quietly
from ..data.steps.objective import Batch
from ..modeling import TercetPreTrainedModel
from ..modeling.pretrained import TercetLMHeadModel
from ..modeling.saved.checkpoint import Checkpoint
from ..modeling.saved.model_folder import pads, require_fit
from ..training.devices.precision import choose_precision, products_in
from .model_outputs import ModelOutputs, RequiredOutputs, compute_outputs


def load_model(checkpoint: Checkpoint) -> TercetPreTrainedModel:
    """Load a model, ours or a stock one, in float32 on the CPU; its tokenizer pads from now on."""
    from ..modeling.stock.models import as_ours

    with quietly():
        model = as_ours(checkpoint)
    tokenizer = checkpoint.required_tokenizer()
    require_fit(tokenizer, model.config)
    pads(tokenizer, checkpoint.name)
    return model.float()


def require_outputs(teacher: TercetPreTrainedModel, name: str, kind: str, member: str) -> None:
    """Make sure that a teacher has the outputs that an objective needs."""
    if teacher.config.model_type != member:
        raise ValueError(
            f"the teacher {name} is a {teacher.config.model_type}, but {kind} needs a {member}: choose "
            f"another objective, or another teacher"
        )
    if not isinstance(teacher, TercetLMHeadModel):
        raise ValueError(
            f"the teacher {name} is a {type(teacher).__name__}, which has no LM head: name one that was "
            f"pretrained with {kind}, with its LM head"
        )


def require_same_vocabulary(teacher: PreTrainedTokenizerBase, student: PreTrainedTokenizerBase) -> None:
    """Make sure that both mean the same by every id."""
    ours, theirs = (
        {number: token for token, number in each.get_vocab().items()} for each in (student, teacher)
    )
    for number in range(max(*ours, *theirs) + 1):
        if ours.get(number) != theirs.get(number):
            raise ValueError(
                f"student and teacher have different vocabularies ({len(ours):,} and {len(theirs):,} "
                f"tokens): id {number} is {ours.get(number)!r} for the student and {theirs.get(number)!r} "
                "for the teacher; train the student with the teacher's tokenizer"
            )


def moved(model: TercetPreTrainedModel, device: torch.device) -> TercetPreTrainedModel:
    nn.Module.to(model, device)
    return model


class LiveTeacher:
    """A teacher that reads every batch: frozen, without dropout, in inference mode, in bf16 if that is fast.

    Under several processes each has the whole of it.

    Args:
        model: Stays as it is.
        needs: What is kept of what it makes.
        device: Where it reads.
        precision: `fp32` or `bf16` for the products; `auto` is what the device is fast at.
    """

    def __init__(
        self,
        model: TercetPreTrainedModel,
        needs: RequiredOutputs,
        device: torch.device,
        precision: str = "auto",
    ):
        self.missing: Mapping[str, float] | None = None
        self.model = moved(model.eval().requires_grad_(False), device)
        self.needs = needs
        self.device = device
        self.precision = choose_precision(precision, device)

    def compute_outputs(self, batch: Batch, positions: Tensor) -> ModelOutputs:
        """Read a batch; what comes back are constants."""
        with torch.inference_mode(), products_in(self.precision, self.device):
            outputs = compute_outputs(self.model, batch, positions, self.needs)
        return tree_map_only(Tensor, constant, outputs)


def constant(value: Tensor) -> Tensor:
    """Copy a tensor out of inference mode: autograd does not keep those that were made there."""
    return value.clone()
