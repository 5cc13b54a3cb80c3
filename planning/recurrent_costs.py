"""What a recurrent translator costs: the operations of its layers, and what they keep for the backward pass.

Layers read each token once, whatever the length of its sequence; attention meets each pair of a written and
a read token twice, in the score and in the mean. What autograd keeps is counted on a model that computes: the
order in which recurrent layers read depends on lengths, which tensors without storage do not have.
"""

from copy import deepcopy

import torch
from torch import nn
from transformers import AutoModel

from ..modeling import (
    NeuralConfig,
    NeuralPreTrainedModel,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqModel,
)
from ..modeling.recurrent_layers import RecurrentLayer
from ..objectives.base_recipe import FullSequence
from .model_costs import FORWARD_AND_BACKWARD, Kept, kept_bytes, weights_of


def is_recurrent(model: nn.Module) -> bool:
    """Tell whether a model is a recurrent translator."""
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
) -> Kept:
    """Let a model without a head read one and two sequences on the CPU, and count what autograd keeps.

    Args:
        config: Of the model.
        sequence: What each example consists of.
        precision: Format of the products, by its name in `DTYPES`.
        weights: Format of the weights.
    """
    with torch.random.fork_rng(devices=[]):
        model = AutoModel.from_config(deepcopy(config), dtype=weights).train()
        one, two = (kept_bytes(model, sequence, size, precision) for size in (1, 2))
    return Kept(fixed=2 * one - two, per_sequence=two - one)
