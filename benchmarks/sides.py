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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from cases import Case
from peers import padded
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from tercet.training.batches import Part, Step
from tercet.training.loop import Progress, train
from tercet.training.objective import Batch, Objective
from tercet.training.optimizers import build_optimizer
from tercet.training.packing import select_sequences, sequence_lengths
from tercet.training.precision import build_accelerator, choose_precision, fastest_float32_products
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe, TrainingRecipe
from tercet.training.schedules import build_schedule
from tercet.training.step_planning import share
from tercet.training.threads import thread_adapter
from tercet.training.workers import DataCursor

LEARNING_RATE = 1e-4

Pass = Callable[[], None]
"""Does a case's work once: here, takes one optimizer step on every batch."""


@dataclass(frozen=True)
class Side:
    """One way to do the work of a case. It travels to a process of its own."""

    prepare: Callable[[Any, torch.device], Pass]
    """Builds all that the work needs: model, optimizer and batches."""
    precision: str
    """As a recipe names it."""
    retains_heap: bool
    """Whether freed memory is kept for the next step, on a CPU."""
    products: Callable[[torch.device], AbstractContextManager]
    """How float32 products are computed meanwhile."""
    warm_ups: int = 1
    """Passes that do not count; compilation has seen all lengths after three."""


def prepare_stock(case: Case, device: torch.device) -> Pass:
    """Build transformers' model, and the batches that its collators make."""
    with device:
        model = case.stock()
    return stock_pass(model, pad_all(case, case.batches(), device), device, is_autocast=False)


def prepare_tuned_stock(case: Case, device: torch.device, *, compiles: bool = False) -> Pass:
    """Build the same with everything that makes it faster from outside."""
    with device:
        model = case.stock()
    model.config.use_cache = False
    is_autocast = choose_precision("auto", device) == "bf16"
    return stock_pass(model, pad_all(case, case.grouped_batches(), device), device, is_autocast, compiles)


def stock_pass(
    model: nn.Module,
    batches: list[dict[str, Tensor]],
    device: torch.device,
    is_autocast: bool,
    compiles: bool = False,
) -> Pass:
    """Write the loop that everybody writes."""
    model.train()
    if compiles:
        model.compile(dynamic=True)
    optimizer = AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def train_once() -> None:
        for batch in batches:
            with torch.autocast(device.type, torch.bfloat16, enabled=is_autocast):
                loss = model(**batch).loss
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return train_once


def pad_all(case: Case, batches: list[Batch], device: torch.device) -> list[dict[str, Tensor]]:
    """Pad batches for the stock models, and move them."""
    rows = [padded(batch, case.pad_token_id) for batch in batches]
    return [{name: tensor.to(device) for name, tensor in batch.items()} for batch in rows]


def prepare_tercet(
    case: Case, device: torch.device, *, precision: Literal["auto", "fp32"], adapts_threads: bool = False
) -> Pass:
    """Build ours and the engine's loop around it, which finds the device itself."""
    recipe = TrainingRecipe(
        steps=1,
        precision=precision,
        optimizer=OptimizerRecipe(learning_rate=LEARNING_RATE),
        schedule=ScheduleRecipe(kind="constant", warmup_steps=0),
    )
    accelerator = build_accelerator(recipe, Path())
    bare, objective = case.tercet(), case.objective()
    model = accelerator.prepare(bare).train()
    optimizer = build_optimizer(bare, recipe.optimizer)
    schedule = build_schedule(optimizer, recipe.schedule, steps=recipe.steps, width=case.hidden_size)
    optimizer = accelerator.prepare(optimizer)
    steps = [as_step(batch, objective) for batch in case.batches()]
    progress = Progress()
    adapt_threads = thread_adapter(adapts_threads)

    def train_once() -> None:
        train(
            model,
            objective,
            iter(steps),
            optimizer,
            schedule,
            accelerator,
            progress,
            steps=progress.step + len(steps),
            after_step=lambda progress, metrics: adapt_threads(),
        )

    return train_once


def as_step(batch: Batch, objective: Objective) -> Step:
    """Make the engine's step of a packed batch: one micro-batch, its sequences sorted by length."""
    lengths = sequence_lengths(batch)
    order, edges = share(lengths, int(lengths.sum()), 1, 0)
    return Step(
        cursor=DataCursor(0, 0),
        parts=(Part(select_sequences(batch, order), edges),),
        targets={name: int(number) for name, number in objective.targets(batch).items()},
        examples=len(lengths),
        tokens=int(lengths.sum()),
    )


def as_they_are(device: torch.device) -> AbstractContextManager:
    """Leave float32 products to torch's own choice."""
    return nullcontext()


SIDES = {
    "stock": Side(prepare_stock, "fp32", retains_heap=False, products=as_they_are),
    "stock-tuned": Side(prepare_tuned_stock, "auto", retains_heap=True, products=as_they_are),
    "stock-compiled": Side(
        partial(prepare_tuned_stock, compiles=True),
        "auto",
        retains_heap=True,
        products=as_they_are,
        warm_ups=3,
    ),
    "tercet": Side(
        partial(prepare_tercet, precision="auto"),
        "auto",
        retains_heap=True,
        products=fastest_float32_products,
    ),
    "tercet-float32": Side(
        partial(prepare_tercet, precision="fp32"),
        "fp32",
        retains_heap=True,
        products=fastest_float32_products,
    ),
}
"""The sides, by name, in the order of a round."""
