"""A model's blocks as compiled graphs, in training alone.

All blocks of a kind share one graph, so that compiling takes seconds instead of minutes (regional
compilation, as in accelerate and torchtitan). Micro-batches have one size then (`static_shapes`), and nothing
is compiled again. What lies outside the blocks, and all that is no training step, runs as it is written.

Whether a machine compiles them shows on a micro-batch of the run, before its first step.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from accelerate import Accelerator
from torch import nn

from ...data.steps.batches import Step
from ...data.steps.exchange import add_up
from ...data.steps.objective import Objective
from ...data.steps.static_shapes import wants_graphs
from ...modeling.compatibility import with_compiler_settings
from ..evaluation import undisturbed_randomness
from ..stages import TrainingData
from .recording import Recorder
from .sharding import is_sharded

BACKEND = "inductor"
"""What torch compiles by."""

GRAPHS = 64
"""Graphs that a block may have at most: one for each type of layer, objective, place and size."""

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
        with with_compiler_settings(options, PARTITIONING):
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
    """Compile a model's blocks, if it is wanted and the machine can.

    Args:
        model: On the accelerator's device, in copies or in pieces.
        data: What from; without a layer that can be compiled, it forgoes fixed sizes.
        records: Whether micro-batches are recorded as CUDA graphs, where that can be.

    Warns:
        UserWarning: They cannot be compiled: the run goes on without them.
    """
    if not any(layer.can_be_compiled for layer in layers_of(model)):
        data.forgo_fixed_sizes()  # recurrent layers know no filling
    if not wants_graphs(wanted, accelerator.device):
        return None
    model.train()
    step = data.halfway
    has_fixed_sizes = all(part.sizes is not None for part in step.parts)
    graphs, reason = None, ""
    try:
        graphs = CompiledBlocks(model, has_fixed_sizes=has_fixed_sizes)
        try_out(graphs, model, objective, step, accelerator)
    except Exception as error:  # whatever a compiler raises
        if wanted is True:
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        if graphs is not None and is_sharded(model):  # whose hooks have not put the pieces back
            raise ValueError(
                f"training.compile=auto: a layer of a model in pieces cannot be compiled ({reason}): set "
                "training.compile=false"
            ) from error
    if accelerator.num_processes > 1 and add_up([bool(reason)])[0] > 0:
        reason = reason or "another process cannot compile them"
    if graphs is None or reason:
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
    others = sorted(kernels - {"varlen"})
    reasons = {
        "several processes": accelerator.num_processes > 1,
        "float16": accelerator.scaler is not None,
        "a model in pieces": is_sharded(model),
        "gradient checkpointing": any(getattr(each, "gradient_checkpointing", 0) for each in model.modules()),
        "an objective that asks the host": not objective.can_be_recorded,
        f"attention by {', '.join(others)}": bool(others),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def try_out(
    graphs: CompiledBlocks, model: nn.Module, objective: Objective, step: Step, accelerator: Accelerator
) -> None:
    """Learn by graphs from the first micro-batch of a step, or of each objective; the model keeps nothing."""
    batches = (next(part.micro_batches(accelerator.device), None) for part in step.parts)
    with undisturbed_randomness(accelerator.device), graphs.in_use():
        for batch in (batch for batch in batches if batch is not None):
            try:
                torch.stack([*objective.losses(model, batch).values()]).sum().backward()
            finally:
                model.zero_grad()
