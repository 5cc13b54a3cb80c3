"""The five sides of a measurement: what trains, and how. All learn from the same sequences.

    stock            transformers as shipped: float32, batches padded to their longest sequence
    stock-tuned      the best to be had without touching the model: bfloat16 autocast, sequences of about
                     equal length batched together, freed memory kept, no cache of keys and values
    stock-compiled   the same through `torch.compile`, for sequences of any length
    tercet           the engine as a recipe runs it, precision `auto`
    tercet-float32   the same with float32 products

All clip gradients to norm 1 and step AdamW's fused kernel. Batches are collated beforehand: the data's speed
is not measured, and neither is what Trainer adds to the stock model's step.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence
from torch.optim import AdamW

from tercet.data.steps.batches import Step
from tercet.data.steps.objective import IGNORE, Batch, Objective, on_device
from tercet.data.steps.workers import DataCursor
from tercet.modeling.stock.models import links_between
from tercet.training.devices import compiling
from tercet.training.devices.compiling import CompiledBlocks
from tercet.training.devices.precision import (
    build_accelerator,
    choose_precision,
    fastest_float32_products,
)
from tercet.training.devices.recording import WARM_UPS, Recorder
from tercet.training.devices.utilization import count_flops_per_token
from tercet.training.learning import Parts, Session, build_training
from tercet.training.loop import accumulate_gradients, train
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe, TrainingRecipe
from tercet.training.stages import TrainingData, prepare_data

from .cases import Case, CaseExamples, copy_weights

LEARNING_RATE = 1e-4

ROW_MULTIPLE = {"cuda": 8}
"""What the length of stock models' rows is a multiple of: attention on a GPU wants aligned rows."""

Pass = Callable[[], Any]
"""Does a case's work once: here, takes one optimizer step on every batch."""


@dataclass(frozen=True)
class Side:
    """One way to do the work of a case. It travels to a process of its own."""

    prepare: Callable[[Any, torch.device], Pass]
    """Builds all that the work needs: model, optimizer and batches."""
    precision: str = "auto"
    """As a recipe names it."""
    retains_heap: bool = True
    """Whether freed memory is kept for the next step, on a CPU."""
    products: Callable[[torch.device], AbstractContextManager] = nullcontext
    """How float32 products are computed meanwhile."""
    warm_ups: int = 1
    """Passes that do not count; compilation has seen all lengths after three."""


def prepare_stock(
    case: Case,
    device: torch.device,
    *,
    dtype: torch.dtype = torch.float32,
    is_tuned: bool = False,
    compiles: bool = False,
) -> Pass:
    """Build transformers' model and the batches that its collators make, tuned from outside or as it is."""
    with device:
        model: Any = nn.Module.to(case.stock(), dtype).train()
    if is_tuned:
        model.config.use_cache = False
    batches = pad_all(case, case.grouped_batches() if is_tuned else case.batches(), device)
    if compiles:
        vars(model)["loss_type"] = "ForCausalLM"  # GPT-2 warns of its absence, which breaks a compiled graph
        sizes = {tuple(value.shape for value in batch.values()) for batch in batches}
        model.compile(dynamic=len(sizes) > 1, backend=compiling.BACKEND)
    is_autocast = is_tuned and choose_precision("auto", device) == "bf16"
    return step_on(model, batches, lambda batch: model(**batch).loss, device, is_autocast)


def step_on(
    model: nn.Module,
    batches: list[dict[str, Tensor]],
    loss_of: Callable[[dict[str, Tensor]], Tensor],
    device: torch.device,
    is_autocast: bool,
) -> Pass:
    """Write the loop that everybody writes around a model and its loss: an optimizer step on every batch."""
    optimizer = AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def train_once() -> None:
        for batch in batches:
            with torch.autocast(device.type, torch.bfloat16, enabled=is_autocast):
                loss = loss_of(batch)
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return train_once


def pad_all(case: Case, batches: list[Batch], device: torch.device) -> list[dict[str, Tensor]]:
    """Pad batches for the stock models, and move them."""
    multiple = ROW_MULTIPLE.get(device.type, 1)
    rows = [padded(batch, case.pad_token_id, multiple) for batch in batches]
    return [{name: tensor.to(device) for name, tensor in batch.items()} for batch in rows]


def padded(batch: Batch, pad_token_id: int, multiple: int = 1) -> dict[str, Tensor]:
    """Lay a packed batch out as the stock models take it: rows (B, T), T the longest or a multiple."""

    def rows(stream: Tensor, side: str, filler: int) -> Tensor:
        lengths = batch[f"cu_seq_lens_{side}"].diff().tolist()
        found = pad_sequence(list(stream[0].split(lengths)), batch_first=True, padding_value=filler)
        return F.pad(found, (0, -found.shape[1] % multiple), value=filler)

    inputs = {
        "input_ids": rows(batch["input_ids"], "k", pad_token_id),
        "attention_mask": rows(torch.ones_like(batch["input_ids"]), "k", 0),
        "labels": rows(labels, "q", IGNORE) if (labels := batch["labels"]).dim() == 2 else labels,
    }
    if "token_type_ids" in batch:
        inputs["token_type_ids"] = rows(batch["token_type_ids"], "k", 0)
    if "next_sentence_label" in batch:
        inputs["next_sentence_label"] = batch["next_sentence_label"]
    return inputs


def prepare_tercet(
    case: Case,
    device: torch.device,
    *,
    precision: Literal["auto", "fp32"] = "auto",
    compiles: bool | Literal["auto"] = "auto",
) -> Pass:
    """Build ours and what a run of the engine has around it, which finds the device itself."""
    recipe = training_recipe(case, precision=precision, compile=compiles)
    return engine_pass(case.tercet(), case.objective(), case, Session.begin(Path(), recipe, resume=False))


def engine_pass(model: nn.Module, objective: Objective, case: Case, session: Session) -> Pass:
    """Begin a run of the engine, whose steps are collated beforehand."""
    data = prepare_data(CaseExamples(case), objective, session.recipe, session.accelerator)
    parts = Parts(model=model.train(), objective=objective, data=data, width=case.hidden_size)
    training, steps = build_training(session, parts), first_epoch(data)
    if session.accelerator.device.type == "cuda":
        steps = [step.pin_memory() for step in steps]

    def train_once() -> None:
        training.num_steps = training.progress.step + len(steps)
        train(training, iter(steps))

    return train_once


def training_recipe(case: Case, **options: Any) -> TrainingRecipe:
    """Write a recipe by which an epoch of a case's examples has as many steps as the case has batches."""
    lengths = CaseExamples(case).lengths
    room = lengths.max() - lengths.min()  # where lengths differ, steps cannot be cut at every token
    return TrainingRecipe(
        steps=case.num_batches,
        tokens_per_step=int(min(-(-lengths.sum() // case.num_batches) + room, lengths.sum())),
        optimizer=OptimizerRecipe(kind=cast(Any, case.optimizer), learning_rate=LEARNING_RATE),
        schedule=ScheduleRecipe(kind="constant", warmup_steps=0),
        **options,
    )


def first_epoch(data: TrainingData, *, is_ragged: bool = False) -> list[Step]:
    """Collate all steps of the first epoch of a run, on any device as large as their sequences if ragged."""
    if is_ragged:
        data.forgo_fixed_sizes()
    steps = data.stages[0].steps
    return [steps[DataCursor(0, number, number)] for number in range(len(steps.plan(0)[1]))]


def compare(case: Case) -> dict[str, Any]:
    """Score one batch with both models: equal weights, no dropout, float32.

    Returns the relative difference of the losses and of all gradients (Frobenius), and how many
    floating-point operations ours spends on a real token.
    """
    case = replace(case, dropout=0.0)
    recipe = training_recipe(case, precision="fp32", compile=False)
    accelerator = build_accelerator(recipe, Path())
    torch.manual_seed(0)
    device, objective = cast(torch.device, accelerator.device), case.objective()
    with device:
        stock, ours = case.stock().train(), case.tercet().train()
    copy_weights(stock, ours)
    links = links_between(stock, ours)
    ours = accelerator.prepare(ours)
    step = first_epoch(prepare_data(CaseExamples(case), objective, recipe, accelerator), is_ragged=True)[0]

    stock_loss = stock(**pad_all(case, [step.parts[0].batch], device)[0]).loss
    stock_loss.backward()
    with fastest_float32_products(device):
        our_loss = accumulate_gradients(ours, objective, step, accelerator)["loss"]
        gradients: dict[str, Any] = {
            name: each.grad for name, each in stock.named_parameters(remove_duplicate=False)
        }
        difference = gradient_difference(ours, links.to_ours(stock.state_dict() | gradients))
        flops_per_token = count_flops_per_token(ours, step)
    return {
        "loss_difference": abs(our_loss.item() / stock_loss.item() - 1),
        "gradient_difference": difference,
        "flops_per_token": flops_per_token,
    }


def gradient_difference(ours: nn.Module, stock: dict[str, Any]) -> float:
    """Relate the difference of all gradients, as one vector, to the length of the stock model's."""
    pairs = [(parameter.grad, stock[name]) for name, parameter in ours.named_parameters()]
    own, theirs = (torch.cat([each.double().flatten() for each in side]) for side in zip(*pairs, strict=True))
    return float((own - theirs).norm() / theirs.norm())


TIMES_NOISE = 2.0
"""Rounding to bfloat16 makes a noise, measured as the difference of gradients from those in float32. Two ways
that compute the same may differ by so many times as much, since both are rounded."""

LIMITS = {"loss_difference": 1e-5, "gradient_difference": 1e-4}
"""Relative differences in float32 below which two models are the same."""


def laws(case: Case, device: torch.device) -> dict[str, dict[str, float]]:
    """Measure each law's relative `difference`, and the `limit` that it keeps; nothing may be dropped."""
    recipe = training_recipe(case, precision="bf16", compile=True)
    accelerator = build_accelerator(recipe, Path())
    torch.manual_seed(0)
    with device:
        bare = case.tercet().train()
    objective, examples = case.objective(), CaseExamples(case)
    ragged, fixed = (
        first_epoch(prepare_data(examples, objective, recipe, accelerator), is_ragged=is_ragged)[0]
        for is_ragged in (True, False)
    )
    assert ragged.parts[0].sizes is None
    assert fixed.parts[0].sizes is not None

    def by_engine(model: nn.Module, step: Step, recorder: Recorder | None = None) -> Tensor:
        accumulate_gradients(model, objective, step, accelerator, recorder=recorder)
        return taken_gradient(bare)

    exact = by_engine(bare, ragged)
    model = accelerator.prepare(bare)
    packed, found = by_engine(model, ragged), {"static = ragged": by_engine(model, fixed)}
    model(**on_device(padded(ragged.parts[0].batch, case.pad_token_id), device)).loss.backward()
    found["packed = padded"] = taken_gradient(bare)
    with CompiledBlocks(bare, has_fixed_sizes=True).in_use():
        found["compiled = eager"] = by_engine(model, fixed)
        if device.type == "cuda":
            recorder = Recorder(bare)
            for _ in range(WARM_UPS + 2):
                found["recorded = eager"] = by_engine(model, fixed, recorder)
            if not recorder.recordings:
                raise RuntimeError("micro-batches cannot be recorded as CUDA graphs")
    limit = TIMES_NOISE * float((packed - exact).norm() / exact.norm())
    differences = {name: float((own - packed).norm() / packed.norm()) for name, own in found.items()}
    parity = compare(case)
    return {
        f"{name.replace('_', ' ')} to stock in float32": {"difference": parity[name], "limit": own}
        for name, own in LIMITS.items()
    } | {name: {"difference": difference, "limit": limit} for name, difference in differences.items()}


def taken_gradient(model: nn.Module) -> Tensor:
    """Take the gradients of all parameters away, as one vector."""
    found = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
    model.zero_grad()
    return found


def prepare_laws(case: Case, device: torch.device) -> Pass:
    return partial(laws, case, device)


SIDES = {
    "stock": Side(prepare_stock, "fp32", retains_heap=False),
    "stock-tuned": Side(partial(prepare_stock, is_tuned=True)),
    "stock-compiled": Side(partial(prepare_stock, is_tuned=True, compiles=True), warm_ups=3),
    "tercet": Side(prepare_tercet, products=fastest_float32_products),
    "tercet-float32": Side(
        partial(prepare_tercet, precision="fp32"), "fp32", products=fastest_float32_products
    ),
}
"""The sides, by name, in the order of a round."""
