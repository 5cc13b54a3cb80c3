"""The stages of a planned run: how many sequences their steps have, and what one sequence costs.

What a recurrent translator costs: the operations of its layers, and what they keep for the backward pass.

Layers read each token once, whatever the length of its sequence; attention meets each pair of a written and
a read token twice, in the score and in the mean. What autograd keeps is counted on a model that computes: the
order in which recurrent layers read depends on lengths, which tensors without storage do not have.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AutoModel

from ..modeling import (
    NeuralConfig,
    NeuralPreTrainedModel,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqModel,
)
from ..modeling.recurrent.layers import RecurrentLayer
from ..objectives.base_recipe import FullSequence, Trainable
from ..pretraining.prepared import require_shorter
from ..pretraining.recipe import PretrainingRecipe
from ..training.gradient_checkpointing import enable_gradient_checkpointing
from ..training.recipe import TrainingRecipe
from ..training.stages import require_time
from .device_layouts import Load
from .machines import PlanRecipe
from .model_costs import (
    DTYPES,
    FORWARD_AND_BACKWARD,
    Kept,
    Parts,
    average_bytes,
    blocks_of,
    count,
    count_flops,
    kept_bytes,
    optimizer_bytes,
    parts_loss_bytes,
    trace_parts,
    weights_of,
)


def is_recurrent(model: nn.Module) -> bool:
    """Return whether a model is a recurrent translator."""
    return isinstance(getattr(model, "config", None), TercetRecurrentSeq2SeqConfig)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """List the recurrent layers of a model."""
    return [module for module in model.modules() if isinstance(module, RecurrentLayer)]


def count_recurrent_flops(model: NeuralPreTrainedModel, sequence: FullSequence) -> float:
    """Count the operations of learning from one sequence; see `count_flops`."""
    translator = model.base_model
    assert isinstance(translator, TercetRecurrentSeq2SeqModel)
    encoder, decoder = translator.encoder, translator.decoder
    products = (sequence.read + sequence.written) * weights_of(encoder.embeddings)
    products += sequence.read * matrices_in(encoder) + sequence.written * matrices_in(decoder)
    if decoder.attention is not None:
        products += sequence.written * weights_of(decoder.attention)
        products += 2 * sequence.written * sequence.read * model.config.hidden_size
        products += decoder.attention.score.num_products(sequence.written, sequence.read)
    of_head = (getattr(model, name) for name in ("transform", "lm_head") if hasattr(model, name))
    return FORWARD_AND_BACKWARD * (products + sequence.targets * weights_of(*of_head))


def matrices_in(stack: nn.Module) -> int:
    """Count the weights of the matrices in all recurrent layers of a stack."""
    parameters = (parameter for layer in layers_of(stack) for parameter in layer.parameters())
    return sum(parameter.numel() for parameter in parameters if parameter.dim() == 2)


def measure_kept(
    config: NeuralConfig,
    sequence: FullSequence,
    *,
    precision: str,
    weights: torch.dtype = torch.float32,
    computes_again: bool = False,
) -> Kept:
    """Let a model without a head read one and two sequences on the CPU, and count what autograd keeps.

    Args:
        config: Of the model.
        sequence: What each example consists of.
        precision: Format of the products, by its name in `DTYPES`.
        weights: Format of the weights.
        computes_again: Whether layers are to be computed again, which a recurrent model refuses.
    """
    with torch.random.fork_rng(devices=[]):
        model = AutoModel.from_config(deepcopy(config), dtype=weights).train()
        if computes_again:
            enable_gradient_checkpointing(model)
        one, two = (kept_bytes(model, sequence, size, precision) for size in (1, 2))
    return Kept(fixed=2 * one - two, per_sequence=two - one)


@dataclass(frozen=True)
class PlannedStage:
    """Steps of a run that are cut alike; a run without stages is one."""

    steps: int
    """How many there are."""
    tokens_limit: int
    """Tokens of a step at most."""
    sequence: FullSequence
    """What every sequence is taken to be."""
    sequences: int
    """Of a step."""
    flops_per_sequence: float
    """Of its forward and backward pass."""
    load: Load
    """What its sequences need."""

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step's sequences."""
        return self.sequences * self.sequence.tokens

    @property
    def tokens(self) -> int:
        """Tokens of all its steps."""
        return self.steps * self.tokens_per_step

    @property
    def flops(self) -> float:
        """Operations of all its steps."""
        return self.steps * self.sequences * self.flops_per_sequence


def plan_stages(
    recipe: PretrainingRecipe, model: Trainable, machines: PlanRecipe, precision: str
) -> tuple[PlannedStage, ...]:
    """Work out what the steps of each stage compute and hold, and those of the recipe's own values.

    Raises:
        ValueError: As in `plan_run`.
    """
    require_time(recipe.training)
    training, longest, blocks = (
        recipe.training,
        recipe.corpus.sequence_length,
        blocks_of(model) or layers_of(model),
    )
    is_cpu = machines.kind.is_cpu
    remembered = optimizer_bytes(model, training) + average_bytes(model, training)

    def planned(steps: int, length: int, limit: int, where: str) -> PlannedStage:
        sequence = recipe.objective.full_sequence(length)
        sequences = sequences_per_step(training, sequence.tokens, limit, machines.devices, where)
        parts = recipe.objective.parts(model, length)
        options = {"is_cpu": is_cpu, "computes_again": training.gradient_checkpointing}
        trace = partial(kept_by, parts, precision=precision, **options)
        load = Load(
            parameters=count([model]),
            block_parameters=count(blocks),
            largest_block=max(count([block]) for block in blocks),
            optimizer_bytes=remembered,
            product_bytes=DTYPES[precision].itemsize,
            kept=trace(),
            kept_of_cast=trace(weights=DTYPES[precision]),
            loss_bytes=partial(parts_loss_bytes, parts, DTYPES[precision], is_cpu=is_cpu),
            offloads=training.cpu_offload,
        )
        return PlannedStage(
            steps=steps,
            tokens_limit=limit,
            sequence=sequence,
            sequences=sequences,
            flops_per_sequence=sum(flops_of(*part) for part in parts),
            load=load,
        )

    stages = []
    for stage in training.stages:
        length, limit = stage.sequence_length or longest, stage.tokens_per_step or training.tokens_per_step
        require_shorter(length, longest)
        stages.append(planned(stage.steps, length, limit, "training.stages: "))
    steps = training.steps - sum(stage.steps for stage in training.stages)
    return (*stages, planned(steps, longest, training.tokens_per_step, "training."))


def flops_of(model: NeuralPreTrainedModel, sequence: FullSequence) -> float:
    """Count the operations of learning from one sequence, of a model of any kind.

    Passes that nothing is learned from are counted, too: one is a third of a pass forward and backward.
    """
    count_learned = count_recurrent_flops if is_recurrent(model) else count_flops
    learned = count_learned(model, sequence)
    if not sequence.passes:
        return learned
    of_pass = replace(sequence, targets=sequence.predictions / sequence.passes)
    return learned + sequence.passes * count_learned(model, of_pass) / 3


def kept_by(
    parts: Parts,
    *,
    precision: str,
    is_cpu: bool,
    weights: torch.dtype = torch.float32,
    computes_again: bool = False,
) -> Kept:
    """Count what autograd keeps of models that learn together, of any kind."""
    recurrent = [part for part in parts if is_recurrent(part[0])]
    others = [part for part in parts if part not in recurrent]
    options: Any = {"precision": precision, "weights": weights, "computes_again": computes_again}
    kept = (measure_kept(part.config, each, **options) for part, each in recurrent)
    return sum(kept, trace_parts(others, is_cpu=is_cpu, **options))


def sequences_per_step(training: TrainingRecipe, tokens: int, limit: int, devices: int, where: str) -> int:
    """Count the full sequences of a step.

    Args:
        training: Limits the micro-batches.
        tokens: Of a sequence.
        limit: Tokens of a step.
        devices: How many share it.
        where: Begins the name of the key that gives the limit.

    Raises:
        ValueError: There are fewer than devices, or one does not fit a micro-batch.
    """
    if training.tokens_per_micro_batch is not None and tokens > training.tokens_per_micro_batch:
        raise ValueError(
            f"training.tokens_per_micro_batch is {training.tokens_per_micro_batch:,}, but a full sequence "
            f"has {tokens:,} tokens: raise it, or shorten corpus.sequence_length"
        )
    sequences = limit // tokens
    if sequences < devices:
        raise ValueError(
            f"{where}tokens_per_step is {limit:,}, which is {sequences:,} full "
            f"sequences of {tokens:,} tokens for {devices:,} devices: raise it to {tokens * devices:,} or "
            "more, or take fewer devices"
        )
    return sequences
