"""A model's blocks as compiled graphs, in training alone.

All blocks of a kind share one graph, so that compiling takes seconds instead of minutes (regional
compilation, as in accelerate and torchtitan). Micro-batches have one size then (`static_shapes`), and nothing
is compiled again. What lies outside the blocks, and all that is no training step, runs as it is written.

A compiled graph is not believed before it has agreed with the blocks as they are written, on a micro-batch of
the run.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from .batches import Step
from .compatibility import compiler_settings
from .evaluation import undisturbed_randomness
from .exchange import add_up
from .gradient_checkpointing import computing_again
from .objective import Batch, Objective, configs_in
from .recording import Recorder
from .sharding import is_sharded, own_part
from .stages import TrainingData
from .static_shapes import wants_graphs

BACKEND = "inductor"
"""What torch compiles by."""

GRAPHS = 64
"""Graphs that a block may have at most: one for each type of layer, objective, place and size."""

TOLERANCES = {"no": 1e-3}
"""Relative difference of gradients up to which graphs agree, by accelerate's name of the precision."""

TOLERANCE = 5e-2
"""The same in 16 bits, where the order of sums alone makes about a hundredth."""

LOSS_COUNTS = 10.0
"""How many times a difference of losses counts as much as one of gradients."""

PARTITIONING = {"ban_recompute_materialized_backward": False, "graphsafe_rng_functionalization": False}
"""What is cheap to compute again from what is kept anyway is not kept, as norms and activations.

Layers that are computed again draw their dropout from the generator that checkpoints hold, and no other.
"""


class CompiledBlocks:
    """The graphs of a model's blocks, and of its loss; they compute while they are in use.

    Args:
        model: Its blocks are compiled when they are first used.
        has_fixed_sizes: Whether all micro-batches have the same sizes; else graphs serve any.
    """

    def __init__(self, model: nn.Module, *, has_fixed_sizes: bool):
        blocks = layers_of(model)
        serves = [block for block in blocks if block.can_be_compiled]
        if not serves:
            raise ValueError(
                "training.compile: no layer of this model can be compiled (it is no Transformer, its scores "
                "are no dot products, or its attention is neither full nor sliding, which takes CUDA and "
                "attention_dropout=0): set training.compile=false"
            )
        if len(serves) < len(blocks):
            warnings.warn(
                f"training.compile: {len(blocks) - len(serves)} of {len(blocks)} layers are not compiled, "
                "because of their attention's pattern, which takes CUDA and attention_dropout=0",
                stacklevel=2,
            )
        heads = [module for module in model.modules() if hasattr(module, "is_compiled_with_layers")]
        options: Any = {"fullgraph": True, "dynamic": not has_fixed_sizes, "backend": BACKEND}
        self.graphs: dict[nn.Module, Any] = {
            block: in_training(block, torch.compile(block.forward, **options)) for block in (*serves, *heads)
        }
        self.recorder: Recorder | None = None
        """Computes micro-batches as CUDA graphs."""
        self.unrecorded = ""
        """Why it does not, on a GPU and though it was wanted."""

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Compute by the graphs meanwhile, within hooks such as those that gather pieces of a model."""
        options = {"recompile_limit": GRAPHS, "accumulated_recompile_limit": 8 * GRAPHS}
        options["optimize_ddp"] = False  # it would cut graphs where DDP begins to send gradients
        with compiler_settings(options, PARTITIONING):
            for block, graph in self.graphs.items():
                block.forward = graph
            try:
                yield
            finally:
                for block in self.graphs:
                    del block.forward


def layers_of(model: nn.Module) -> list[Any]:
    """List a model's layers, each of which says whether it can be compiled."""
    return [module for module in model.modules() if hasattr(module, "can_be_compiled")]


def in_training(block: nn.Module, graph: Callable[..., Any]) -> Callable[..., Any]:
    """Compute by a graph in training mode: what a model writes by itself runs as it is written."""
    written = block.forward

    def compute(*arguments: Any, **options: Any) -> Any:
        return (graph if block.training else written)(*arguments, **options)

    return compute


def compiled_blocks(
    wanted: bool | Literal["auto"],
    model: nn.Module,
    objective: Objective,
    data: TrainingData,
    accelerator: Accelerator,
    *,
    records: bool = True,
) -> CompiledBlocks | None:
    """Compile a model's blocks, if it is wanted and they agree on a micro-batch of a run's first step.

    Args:
        wanted: What the recipe says.
        model: On the accelerator's device, in copies or in pieces.
        objective: What is learned.
        data: What from; without a layer that can be compiled, it forgoes fixed sizes.
        accelerator: Owns the device.
        records: Whether micro-batches are recorded as CUDA graphs, where that can be.

    Raises:
        ValueError: It is wanted, and no layer can be compiled; or a layer of a model in pieces failed.

    Warns:
        UserWarning: They cannot be compiled, or do not agree: the run goes on without them.
    """
    if not any(layer.can_be_compiled for layer in layers_of(model)):
        data.forgo_fixed_sizes()  # recurrent layers know no filling
    if not wants_graphs(wanted, accelerator.device):
        return None
    model.train()
    step = data.halfway
    has_fixed_sizes = all(part.sizes is not None for part in step.parts)
    graphs, difference, reason = None, np.inf, "another process disagrees"
    limit = TOLERANCES.get(accelerator.mixed_precision, TOLERANCE)
    try:
        graphs = CompiledBlocks(model, has_fixed_sizes=has_fixed_sizes)
        difference = disagreement(graphs, model, objective, step, accelerator)
        if not difference <= limit:
            reason = f"they have another loss, or other gradients (relative difference: {difference:.2g})"
    except Exception as error:  # whatever a compiler raises
        if wanted is True:
            raise
        reason = str(error).partition("\n")[0]
        if graphs is not None and is_sharded(model):  # whose hooks have not put the pieces back
            raise ValueError(
                f"training.compile=auto: a layer of a model in pieces cannot be compiled ({reason}): set "
                "training.compile=false"
            ) from error
    disagrees = not difference <= limit
    if accelerator.num_processes > 1:
        disagrees = add_up([disagrees])[0] > 0
    if graphs is None or disagrees:
        warnings.warn(f"training.compile: the run goes on without compiled layers: {reason}", stacklevel=2)
        return None
    for block in graphs.graphs:
        block.is_compiled = True  # pyright: ignore[reportArgumentType]
    if records and has_fixed_sizes and accelerator.device.type == "cuda":
        graphs.unrecorded = reason_against_recording(model, objective, accelerator)
        graphs.recorder = None if graphs.unrecorded else Recorder(model)
    return graphs


def reason_against_recording(model: nn.Module, objective: Objective, accelerator: Accelerator) -> str:
    """Say why micro-batches cannot be CUDA graphs, if so: they are on one GPU, by its flash kernels.

    Other kernels of attention wait for the GPU, or keep tensors that only the host knows.
    """
    with accelerator.autocast():
        kernels = {str(layer.attention_kernel(is_traced=True)) for layer in layers_of(model)}
    others = sorted(kernel for kernel in kernels if not kernel.startswith("varlen"))
    reasons = {
        "several processes": accelerator.num_processes > 1,
        "float16": accelerator.scaler is not None,
        "a model in pieces": is_sharded(model),
        "gradient checkpointing": any(getattr(each, "gradient_checkpointing", 0) for each in model.modules()),
        "an objective that asks the host": not objective.can_be_recorded,
        f"attention by {', '.join(others)}": bool(others),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def disagreement(
    graphs: CompiledBlocks, model: nn.Module, objective: Objective, step: Step, accelerator: Accelerator
) -> float:
    """Measure how far losses and gradients by graphs are from those without, relative to their length.

    They are those of the first micro-batch of a step, or of the first of each objective, without dropout.
    """
    with undisturbed_randomness(accelerator.device), without_dropout(model):
        differences = [0.0]
        for batch in (next(part.micro_batches(accelerator.device), None) for part in step.parts):
            if batch is not None:
                # Graphs come first: right numbers in freed memory would hide what they forget to write.
                with graphs.in_use():
                    found = loss_and_gradient(model, objective, batch)
                with computing_again(model):  # needs no more memory than graphs, and changes nothing
                    expected = loss_and_gradient(model, objective, batch)
                for factor, left, right in zip((LOSS_COUNTS, 1.0), found, expected, strict=True):
                    length = right.norm().clamp(min=torch.finfo(right.dtype).tiny)
                    differences.append(float(factor * (left - right).norm() / length))
    return float(np.max(differences))  # what is no number differs, and Python's `max` would pass over it


def loss_and_gradient(model: nn.Module, objective: Objective, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the sum of a batch's losses, and this process's gradient in one vector; the model keeps none."""
    try:
        loss = torch.stack([*objective.losses(model, batch).values()]).sum()
        loss.backward()
        grads = [own_part(weight.grad).flatten() for weight in model.parameters() if weight.grad is not None]
        return loss.detach(), torch.cat(grads)
    finally:
        model.zero_grad()


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Let a model drop nothing meanwhile."""
    places = [(module, "p") for module in model.modules() if isinstance(module, nn.Dropout)]
    places += [
        (config, "attention_dropout") for config in configs_in(model) if hasattr(config, "attention_dropout")
    ]
    kept = [getattr(*place) for place in places]
    try:
        for owner, name in places:
            setattr(owner, name, 0.0)
        yield
    finally:
        for (owner, name), probability in zip(places, kept, strict=True):
            setattr(owner, name, probability)
