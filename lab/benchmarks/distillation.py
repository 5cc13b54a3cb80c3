"""Distil side by side with stock modules in the way of DistilBERT's script: tokens per second, their ratio.

Teacher 12 layers x 256, student 6, 30,522 words, 16 sequences of at most 128 tokens in a batch; soft
targets at temperature 2, hidden tokens and cosines, weighing 5, 2 and 1. All read the same masked batches.

stock            both models on padded rows in float32, both heads on all tokens; then targets are selected,
                 for the loss of DistilBERT's script with `restrict_ce_to_mask` (written anew here: the script
                 itself is not run, and without that switch it compares soft targets of all tokens)
stock-bf16       the same in bfloat16 autocast
tercet           `tercet distill` with a live teacher, precision `auto`
tercet-cached    the same with a teacher that has read before, known for its 64 likeliest tokens
"""

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from tercet.data.steps.objective import IGNORE, Example
from tercet.data.steps.packing import sequence_lengths
from tercet.distill.cache import CachedTeacher, FixedCopies, write_cache
from tercet.distill.losses import CosineLoss, SoftTargetLoss
from tercet.distill.model_outputs import Learner, RequiredOutputs
from tercet.distill.objective import Distillation, required_outputs
from tercet.distill.teacher import LiveTeacher
from tercet.modeling import TercetEncoderForMaskedLM
from tercet.pretraining.objectives.masked_language_modeling import MaskedLanguageModeling
from tercet.pretraining.objectives.masking import StaticMasking
from tercet.training.devices.precision import fastest_float32_products
from tercet.training.learning import Session

from ..publishing import Result
from .benchmark import Benchmark, side_by_side
from .cases import CaseExamples, EncoderCase, copy_weights, masked_language_modeling
from .sides import Pass, Side, engine_pass, pad_all, step_on, training_recipe

TEMPERATURE, WEIGHTS = 2.0, {"soft_targets": 5.0, "mlm": 2.0, "cosine": 1.0}
KEPT = {"top_k": 64, "precision": "fp16"}
"""What a cache keeps of the teacher."""
WARM_UPS = 4
"""Passes that do not count: in the first ones, a heap that is kept still grows."""


@dataclass(frozen=True)
class DistillationCase(EncoderCase):
    """A teacher of BERT's architecture and a student of half its layers, both without next sentences.

    Masks are always the same ones, so that a teacher may have read the text before.
    """

    model_class = TercetEncoderForMaskedLM

    def objective(self) -> MaskedLanguageModeling:
        corruption = masked_language_modeling(self.vocab_size).masking.corruption
        return MaskedLanguageModeling(StaticMasking(corruption, seed=0))

    def example(self, length: int, rng: np.random.Generator) -> Example:
        return {"input_ids": super().example(length, rng)["input_ids"]}


CASE = DistillationCase(
    "distillation", vocab_size=30_522, sequence_length=128, batch_size=16, num_hidden_layers=12
)


def build_pair(case: DistillationCase) -> tuple[PreTrainedModel, PreTrainedModel]:
    """Build stock teacher and student with the seed that all sides share."""
    torch.manual_seed(0)
    return case.stock(), student_of(case).stock()


def build_ours(case: DistillationCase) -> tuple[Any, Any]:
    """Build ours with the weights of the stock pair."""
    ours = case.tercet(), student_of(case).tercet()
    for stock, own in zip(build_pair(case), ours, strict=True):
        copy_weights(stock, own)
    return ours


def student_of(case: DistillationCase) -> DistillationCase:
    return replace(case, num_hidden_layers=case.num_hidden_layers // 2)


def script_loss(teacher: nn.Module, student: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Compute the loss of DistilBERT's script, restricted to targets: logits of all tokens, then a choice."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    with torch.no_grad():
        right = teacher(**inputs, output_hidden_states=True)
    found = student(**inputs, output_hidden_states=True)
    labels, is_real = batch["labels"], batch["attention_mask"].bool()
    is_target = labels != IGNORE
    own, theirs = (output.logits[is_target] for output in (found, right))
    soft = F.kl_div(
        F.log_softmax(own / TEMPERATURE, dim=-1),
        F.softmax(theirs / TEMPERATURE, dim=-1),
        reduction="batchmean",
    )
    hidden = F.cross_entropy(found.logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)
    states, wanted = (output.hidden_states[-1][is_real] for output in (found, right))
    cosine = F.cosine_embedding_loss(states, wanted, states.new_ones(len(states)))
    parts = {"soft_targets": soft * TEMPERATURE**2, "mlm": hidden, "cosine": cosine}
    return torch.stack([WEIGHTS[name] * part for name, part in parts.items()]).sum()


def prepare_script(case: DistillationCase, device: torch.device, *, is_autocast: bool) -> Pass:
    """Build stock models and the loop of the script around them."""
    teacher, student = (cast(nn.Module, model).to(device) for model in build_pair(case))
    teacher.eval()
    student.train()
    batches = pad_all(case, case.batches(), device)
    return step_on(student, batches, lambda batch: script_loss(teacher, student, batch), device, is_autocast)


def prepare_tercet(case: DistillationCase, device: torch.device, *, is_cached: bool) -> Pass:
    """Build ours and what a run of the engine has around it, the teacher's cache beforehand."""
    session = Session.begin(Path(), training_recipe(case), resume=False)
    teacher, student = build_ours(case)
    objective = build_objective(case, teacher, device, "auto", is_cached=is_cached)
    return engine_pass(Learner(student, objective.needs), objective, case, session)


def build_objective(
    case: DistillationCase, teacher: Any, device: torch.device, precision: str, *, is_cached: bool
) -> Distillation:
    """Build what ours learns, from a teacher that reads along or has read before."""
    base = case.objective()
    losses = [
        SoftTargetLoss("soft_targets", WEIGHTS["soft_targets"], TEMPERATURE),
        CosineLoss("cosine", WEIGHTS["cosine"]),
    ]
    reader: Any = LiveTeacher(teacher, required_outputs(losses), device, precision)
    if is_cached:
        folder = Path(tempfile.mkdtemp())
        reader.needs = RequiredOutputs(logits=True)
        write_cache(folder, reader, base, FixedCopies(CaseExamples(case), 1), KEPT, [TEMPERATURE])
        reader = CachedTeacher(folder, KEPT, device)
    return Distillation(base, WEIGHTS["mlm"], losses, reader)


def compare(case: DistillationCase) -> dict[str, float]:
    """Compute one batch's loss in both ways: equal weights, no dropout, float32."""
    case = replace(case, dropout=0.0)
    device, batch = torch.device("cpu"), case.batches()[0]
    stock = script_loss(*build_pair(case), pad_all(case, [batch], device)[0])
    teacher, student = build_ours(case)
    objective = build_objective(case, teacher, device, "fp32", is_cached=False)
    with fastest_float32_products(device):
        losses = objective.losses(Learner(student, objective.needs).train(), batch)
    targets = objective.targets(batch)
    ours = sum(WEIGHTS[name] * loss.item() / int(targets[name]) for name, loss in losses.items())
    return {"stock": stock.item(), "tercet": ours, "difference": abs(ours / stock.item() - 1)}


SIDES = {
    "stock": Side(partial(prepare_script, is_autocast=False), "fp32", False, warm_ups=WARM_UPS),
    "stock-bf16": Side(partial(prepare_script, is_autocast=True), "bf16", False, warm_ups=WARM_UPS),
} | {
    name: Side(
        partial(prepare_tercet, is_cached=is_cached), products=fastest_float32_products, warm_ups=WARM_UPS
    )
    for name, is_cached in (("tercet", False), ("tercet-cached", True))
}
"""The sides, by name, in the order of a round."""


def parities(result: Result) -> list[str]:
    """Describe how equal the losses are."""
    shown = (
        "Loss of one batch {stock:.6f} (stock) and {tercet:.6f} (Tercet), relative difference "
        "{difference:.0e}, in float32 without dropout."
    )
    return [shown.format(**case["parity"]) for case in result["cases"].values()]


BENCHMARK = Benchmark(
    __doc__,
    {CASE.name: CASE},
    side_by_side(
        SIDES,
        compare,
        lambda case: int(sequence_lengths(case.pool()).sum()),
        {"stock": ("stock",), "stock-bf16": ("stock-bf16",)},
    ),
    {
        "side": "{side}",
        "tokens/s": "{tokens_per_second:,.0f}",
        "slowest to fastest": "{slowest:,.0f} to {fastest:,.0f}",
        "over stock-bf16": "{ratio_to_stock-bf16:.2f}x",
        "over stock": "{ratio_to_stock:.2f}x",
        "memory, MiB": "{memory_mib:,.0f}",
    },
    facts=parities,
)
