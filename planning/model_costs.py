"""What a model costs, whatever the machines: parameters, operations, and what it keeps for the backward pass.

Nothing is trained and no memory held. Parameters and the optimizer's state are counted on a model without
storage, over which the real optimizer takes a step. Operations follow from shapes: a product of matrices
costs two per weight and token forward and four backward (Kaplan et al., 2020, section 2.1), attention the
same per pair of positions (Chowdhery et al., 2022, appendix B). What autograd keeps is what the model's own
forward pass leaves behind when it runs on tensors that have shapes and no storage, instead of a formula that
the next change would make wrong; tests compare it with such a formula (Korthikanti et al., 2022, section 4.1)
and with a model that computes.

Kernels of attention for traces, whose tensors have shapes and no values.

They keep for the backward pass what the kernels of packed sequences keep, which read the lengths of sequences
and are therefore no use there.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.nn import functional as F
from transformers import AttentionInterface, AutoModel, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..modeling import NeuralConfig, NeuralPreTrainedModel, TercetConfig
from ..modeling.attention.dot_product import SHORT, is_sparse, short_attention
from ..modeling.attention.multi_head import Attention, CrossAttention, SelfAttention
from ..modeling.attention.patterns import PATTERNS
from ..modeling.heads.losses import rows_per_chunk
from ..modeling.layers.block import Block
from ..modeling.modeling_tercet_decoder import TercetDecoderModel
from ..modeling.pretrained import TercetLMHeadModel
from ..modeling.stack import TercetStack
from ..objectives.base_recipe import FullSequence, Trainable
from ..pretraining.model import build_config, fit_vocabulary
from ..pretraining.recipe import PretrainingRecipe
from ..pretraining.text import named_tokenizer
from ..text.new_terms import add_terms, read_terms
from ..text.tokenizer import load_tokenizer
from ..training.gradient_checkpointing import enable_gradient_checkpointing
from ..training.optimizers import build_optimizer
from ..training.recipe import TrainingRecipe

SHORT_KERNEL = "tercet_short"
"""Name of short attention among transformers' kernels."""

LONG_KERNEL = "tercet_long"
"""Name of what a CPU computes long sequences with: by blocks, or by the fused kernel."""

MASKLESS_KERNEL = "tercet_maskless"
"""Name of the fused kernel without masks: transformers makes masks for kernels that it knows by name."""


def attend_shortly(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    dropout: float = 0.0,
    **_: object,
) -> tuple[Tensor, None]:
    """Attend by short attention: heads (1, H, T, D) to (1, T, H, D)."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return short_attention(query, key, value, attention_mask, scaling=scaling, dropout=dropout), None


def attend_at_length(
    module: Attention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Keep blocks where they are computed, without computing them; otherwise attend by the fused kernel."""
    pattern, length = module.pattern, key.shape[2]
    with unset_fake_temporarily():
        by_blocks = is_sparse(pattern, length) and not module.config.has_score_bias
    if not by_blocks:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, attention_mask, **options)
    assert pattern.block_size is not None
    return _KeptBlocks.apply(query, key, value, -length % pattern.block_size).transpose(1, 2), None


class _KeptBlocks(torch.autograd.Function):
    """Keeps what block-sparse attention keeps: queries, keys and values, filled up to whole blocks."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, padding: int) -> Tensor:
        ctx.save_for_backward(*(F.pad(x, (0, 0, 0, padding)).clone() for x in (query, key, value)))
        return torch.empty_like(query)


AttentionInterface.register(SHORT_KERNEL, attend_shortly)
AttentionInterface.register(LONG_KERNEL, attend_at_length)
AttentionMaskInterface.register(LONG_KERNEL, sdpa_mask)
AttentionInterface.register(MASKLESS_KERNEL, ALL_ATTENTION_FUNCTIONS["sdpa"])


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Format of the products, by the name of the precision."""

Parts = Sequence[tuple[NeuralPreTrainedModel, FullSequence]]
"""Models that learn together, each with the longest sequence that it reads."""

FORWARD_AND_BACKWARD = 6
"""Operations for each weight and vector that meet in a product: a multiplication and an addition, forward,
and backward for both of its factors."""


@dataclass(frozen=True)
class Kept:
    """Bytes that a forward pass leaves for the backward pass."""

    fixed: int
    """Whatever the batch: casts of weights, above all."""
    per_sequence: int
    """For each full sequence."""

    def __add__(self, other: "Kept") -> "Kept":
        """Join what two models leave."""
        return Kept(self.fixed + other.fixed, self.per_sequence + other.per_sequence)


def build_planned_model(recipe: PretrainingRecipe) -> Trainable:
    """Build what a recipe trains without storage; its vocabulary is the largest that its tokenizer may have.

    Raises:
        ValueError: As in `build_config`, or the named tokenizer cannot be loaded.
    """
    config = build_config(recipe)
    if (path := named_tokenizer(recipe)) is not None:
        tokenizer = load_tokenizer(path)
        if recipe.tokenizer.add is not None:
            add_terms(tokenizer, read_terms(recipe.tokenizer.add))
        fit_vocabulary(config, tokenizer, recipe)
        config.vocab_size += recipe.tokenizer.add_learned
    elif "vocab_size" not in recipe.model.overrides:
        config.vocab_size = recipe.tokenizer.vocab_size
    with torch.device("meta"):
        return recipe.objective.build_model(config)


def count(modules: Iterable[nn.Module]) -> int:
    """Count the parameters of modules; shared ones once."""
    return sum(p.numel() for p in {p for module in modules for p in module.parameters()})


def count_embeddings(model: nn.Module) -> int:
    """Count the parameters of lookup tables: tokens, learned positions, segments."""
    return count(module for module in model.modules() if isinstance(module, nn.Embedding))


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """List the model's layers: what FSDP2 shards and gathers one by one."""
    return [module for module in model.modules() if isinstance(module, Block)]


def optimizer_bytes(model: nn.Module, recipe: TrainingRecipe) -> int:
    """Count what the recipe's optimizer remembers, by letting it take a step.

    Raises:
        ValueError: The recipe names constants that its optimizer does not use.
    """
    optimizer = build_optimizer(model, recipe.optimizer, sets_learning_rate=recipe.schedule.kind == "noam")
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    model.zero_grad()
    states = (value for state in optimizer.state.values() for value in state.values())
    return sum(value.numel() * value.element_size() for value in states if isinstance(value, Tensor))


def average_bytes(model: nn.Module, recipe: TrainingRecipe) -> int:
    """Count the bytes of the moving average that the recipe keeps of the weights, if it keeps one."""
    return 0 if recipe.ema_decay is None else torch.float32.itemsize * count([model])


def count_flops(model: NeuralPreTrainedModel, sequence: FullSequence) -> float:
    """Count the operations of learning from one sequence.

    Those of every product of matrices, forward and backward: of all tokens in the stacks, of targets in the
    vocabulary, and in what stands behind attention in the last layer; see `states_read`. Causal attention
    counts all pairs, since kernels for short sequences compute them. A sliding layer counts those of its
    windows, as kernels that know windows do. Another sparse pattern counts those of its blocks. Kernels that
    know neither compute more.
    """
    stacks = [module for module in model.modules() if isinstance(module, TercetStack)]
    lengths = (sequence.read, sequence.written)[: len(stacks)]
    of_vocabulary = (model.transform, model.lm_head) if isinstance(model, TercetLMHeadModel) else ()
    vocabulary = weights_of(*of_vocabulary)
    judgement = weights_of(model) - weights_of(*stacks) - vocabulary
    source = sequence.read if sequence.source is None else sequence.source
    products = sum(stack_products(*pair, source) for pair in zip(stacks, lengths, strict=True))
    products += sequence.targets * vocabulary + sequence.pairs * judgement
    if (states := states_read(model, sequence)) is not None:
        products -= (sequence.read - states) * weights_behind_attention(blocks_of(model)[-1])
    return FORWARD_AND_BACKWARD * products


def stack_products(stack: TercetStack, length: int, source_length: int) -> float:
    """Count the pairs of a weight, or a key, and a vector that meet in the forward pass of one stack."""
    products = length * weights_of(stack.embeddings)
    for module in stack.modules():
        if isinstance(module, Block):
            products += length * weights_of(module)
        if isinstance(module, SelfAttention):
            products += 2 * pairs_read(module, length) * module.q_proj.out_features
            products += module.score.num_products(length, length)
        if isinstance(module, CrossAttention):
            products += 2 * length * source_length * module.q_proj.out_features
            products += module.score.num_products(length, source_length)
            # These two read the source, and were counted with the block as if they read the target.
            products += (source_length - length) * weights_of(module.k_proj, module.v_proj)
    return products


def pairs_read(attention: SelfAttention, length: int) -> int:
    """Count the pairs of a query and a key that meet at most, in a sequence of `length` tokens."""
    size = None if attention.pattern.depends_on_length else attention.pattern.block_size
    if attention.sliding_window is not None:
        sides = 1 if attention.is_causal else 2
        return length * min(length, sides * (attention.sliding_window - 1) + 1)
    if size is None:
        return length**2
    blocks = attention.pattern.key_blocks(-(-length // size))
    return min(length**2, sum(map(len, blocks)) * size**2)


def weights_of(*modules: nn.Module) -> int:
    """Count the weights of all linear layers within modules."""
    linear = (inner for module in modules for inner in module.modules() if isinstance(inner, nn.Linear))
    return sum(layer.weight.numel() for layer in linear)


def states_read(model: nn.Module, sequence: FullSequence) -> float | None:
    """Count the states that the last layer computes of a sequence; `None`: all.

    A model that predicts tokens by itself computes those that are read: of targets, and of judgements.
    """
    is_alone = isinstance(model, TercetLMHeadModel) and isinstance(model.base_model, TercetStack)
    if not is_alone or sequence.source is not None:
        return None
    return min(sequence.states or sequence.targets + sequence.pairs, sequence.read)


def weights_behind_attention(block: nn.Module) -> int:
    """Count the weights of the part of a block that is computed only where its states are read."""
    assert isinstance(block, Block)
    attention = block.self_attention
    return weights_of(attention.o_proj, attention.gate, block.feed_forward)


def trace_kept(
    config: TercetConfig,
    sequence: FullSequence,
    *,
    precision: str,
    weights: torch.dtype = torch.float32,
    is_cpu: bool = False,
    states: float | None = None,
    computes_again: bool = False,
) -> Kept:
    """Run a model's stacks on one and on two sequences without storage, and count what autograd keeps.

    The operations are a CPU's. They keep more than those of a GPU, which compiles layers and rounds states.
    Attention is the fused kernel's, which keeps no weights of pairs, or on a CPU, up to `SHORT` positions and
    wherever weights are dropped, the short one, which does. Long sequences of sparse patterns keep their
    blocks on a CPU. Windows are known to a GPU's kernel, which needs a mask for other patterns.

    Args:
        config: Of the model.
        sequence: What each example consists of.
        precision: Format of the products, by its name in `DTYPES`.
        weights: Format of the weights: half precision is what sharding engines compute with.
        is_cpu: Whether the planned device is one.
        states: That the last layer computes; see `states_read`.
        computes_again: Whether layers keep their inputs alone, and the layer at work, one on average, all.
    """
    config = deepcopy(config)
    is_short = max(sequence.read, sequence.written) <= SHORT or config.attention_dropout > 0
    if not is_cpu:  # a fused kernel draws its dropout again; a CPU's knows none
        config.attention_dropout = 0.0
    if config.position_embedding_type == "learned":  # a table looks at its indices, which are not there
        config.position_embedding_type = "none"
    needs_mask = any(not PATTERNS[kind].is_window for kind in config.types_of_layers)
    fused = LONG_KERNEL if is_cpu else "sdpa" if needs_mask else MASKLESS_KERNEL
    with FakeTensorMode(), torch.random.fork_rng(devices=[]):
        kernel = SHORT_KERNEL if is_cpu and is_short else fused
        kernel = kernel if config.has_dot_products else "sdpa"  # which alone computes other scores
        model = build_traced(config, sequence, dtype=weights, attn_implementation=kernel).train()
        for layer in model.modules() if not is_cpu else ():
            if isinstance(layer, nn.Linear):  # elsewhere, layers that read the same are not one product
                layer.training = False
        of_sizes = [kept_bytes(model, sequence, size, precision, states) for size in (1, 2)]
        if computes_again:
            enable_gradient_checkpointing(model)
            inputs = [kept_bytes(model, sequence, size, precision, states) for size in (1, 2)]
            layers = len(blocks_of(model))
            of_sizes = [(less + (all_ - less) // layers) for all_, less in zip(of_sizes, inputs, strict=True)]
    one, two = of_sizes
    return Kept(fixed=2 * one - two, per_sequence=two - one)


def build_traced(config: TercetConfig, sequence: FullSequence, **kwargs: Any) -> PreTrainedModel:
    """Build a model without a head: a decoder with cross-attention, if it has a source of its own."""
    if sequence.source is None:
        return AutoModel.from_config(config, **kwargs)
    return TercetDecoderModel._from_config(config, has_cross_attention=True, **kwargs)


def trace_parts(
    parts: Parts,
    *,
    precision: str,
    weights: torch.dtype = torch.float32,
    is_cpu: bool = False,
    computes_again: bool = False,
) -> Kept:
    """Count what autograd keeps of all models that learn together; see `trace_kept`."""
    options: Any = {"precision": precision, "weights": weights, "is_cpu": is_cpu}
    options |= {"computes_again": computes_again}
    traces = (
        trace_kept(cast(TercetConfig, model.config), each, states=states_read(model, each), **options)
        for model, each in parts
    )
    return sum(traces, start=Kept(0, 0))


def kept_bytes(
    model: PreTrainedModel, sequence: FullSequence, size: int, precision: str, states: float | None = None
) -> int:
    """Count the bytes of different storages that a forward pass of `size` sequences saves for the backward.

    Weights are left out. Of each sequence the last layer computes `states`, or all.
    """
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage  # held, so that no other takes its place
        return tensor

    inputs = {"input_ids": torch.zeros(size, sequence.read, dtype=torch.long)}
    if sequence.written:
        inputs["decoder_input_ids"] = torch.zeros(size, sequence.written, dtype=torch.long)
    if sequence.source is not None:
        vectors = torch.zeros(size, sequence.source, model.config.hidden_size)
        inputs["encoder_hidden_states"] = vectors.requires_grad_()
    if states is not None:
        inputs["output_positions"] = torch.zeros(round(size * states), dtype=torch.long)
    dtype = DTYPES[precision]
    autocast = torch.autocast("cpu", dtype, enabled=dtype != torch.float32)
    with autocast, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(**inputs, use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


def loss_bytes(
    config: NeuralConfig,
    sequence: FullSequence,
    products: torch.dtype,
    num_sequences: int,
    *,
    is_cpu: bool = False,
) -> float:
    """Count what the vocabulary's loss holds of a micro-batch at the height of its forward pass.

    A chunk of logits and its gradient, both in the format of the products, and so the head's weights and what
    a chunk adds to their gradient; that gradient, the targets' states and theirs in float32.
    """
    single, size = torch.float32.itemsize, products.itemsize
    targets = num_sequences * sequence.targets
    rows = min(targets, rows_per_chunk(size * config.vocab_size, "cpu" if is_cpu else "cuda"))
    cast = 0 if size == single else size
    of_head = (single + size + cast) * config.vocab_size * config.head_width
    return 2 * size * rows * config.vocab_size + of_head + 2 * single * targets * config.head_width


def parts_loss_bytes(
    parts: Parts, products: torch.dtype, num_sequences: int, *, is_cpu: bool = False
) -> float:
    """Count what the vocabularies' losses of models that learn together hold; see `loss_bytes`."""
    return sum(
        loss_bytes(model.config, sequence, products, num_sequences, is_cpu=is_cpu)
        for model, sequence in parts
        if sequence.targets
    )
