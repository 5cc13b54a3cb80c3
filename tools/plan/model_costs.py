"""What a model costs, whatever the machines, by formulas: parameters, operations, and bytes of a step.

Parameters and the optimizer's state are counted on a model without storage, operations as a run counts
them. Activations are those of Korthikanti et al., 2022, section 4.1, of the parts that a block has; tests
compare them, and the whole, with what a model that computes keeps and holds.

Legend: C model width, Q and K widths of all query heads and of all key heads, F width inside, H heads, T
positions, S positions that cross-attention reads; b bytes of a number in a product, s of one in the stream.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...data.steps.batches import Part, Step
from ...data.steps.workers import DataCursor
from ...data.tokenizers.new_terms import add_terms, read_terms
from ...data.tokenizers.tokenizer import load_tokenizer
from ...modeling import NeuralPreTrainedModel, TercetConfig
from ...modeling.attention.dot_product import SHORT
from ...modeling.attention.multi_head import Attention
from ...modeling.heads.losses import rows_per_chunk
from ...modeling.layers.block import Block
from ...modeling.layers.position_wise import init_scale
from ...modeling.stack import TercetStack
from ...pretraining.model import first_model
from ...pretraining.objectives.recipes import FullSequence, Trainable
from ...pretraining.recipe import PretrainingRecipe
from ...pretraining.text import tokenizer_of_text
from ...training.devices.utilization import count_flops_per_token
from ...training.optimizers.optimizers import build_optimizer
from ...training.recipe import TrainingRecipe

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Format of the products, by the name of the precision."""

SINGLE = 4
"""Bytes of a float32 number."""

Parts = Sequence[tuple[NeuralPreTrainedModel, FullSequence]]
"""Models that learn together, each with the longest sequence that it reads."""


def build_planned_model(recipe: PretrainingRecipe) -> Trainable:
    """Build what a recipe trains without storage, with the largest vocabulary that its tokenizer may have."""
    model, options = first_model(recipe.model, recipe.objective, recipe.corpus), recipe.tokenizer
    path = tokenizer_of_text(recipe.corpus) if options.path is None else options.path
    if path is not None:
        tokenizer = load_tokenizer(path)
        if options.add is not None:
            add_terms(tokenizer, read_terms(options.add))
        model.fit(tokenizer)
        model.config.vocab_size += options.add_learned
    elif "vocab_size" not in model.overrides:
        model.config.vocab_size = options.vocab_size
    with torch.device("meta"):
        return recipe.objective.build_model(model.config)


def count(modules: Iterable[nn.Module]) -> int:
    """Count the parameters of modules; shared ones once."""
    return sum(p.numel() for p in {p for module in modules for p in module.parameters()})


def count_embeddings(model: nn.Module) -> int:
    """Count the parameters of lookup tables: tokens, learned positions, segments."""
    return count(module for module in model.modules() if isinstance(module, nn.Embedding))


def blocks_of(model: nn.Module) -> list[Block]:
    """List the model's layers: what FSDP2 shards and gathers one by one."""
    return [module for module in model.modules() if isinstance(module, Block)]


def optimizer_bytes(model: nn.Module, training: TrainingRecipe) -> int:
    """Count what the recipe's optimizer and moving average remember, by letting the optimizer take a step."""
    optimizer = build_optimizer(
        model, training.optimizer, sets_learning_rate=training.schedule.kind == "noam"
    )
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    model.zero_grad()
    states = (value for state in optimizer.state.values() for value in state.values())
    average = 0 if training.ema_decay is None else SINGLE * count([model])
    return average + sum(
        value.numel() * value.element_size() for value in states if isinstance(value, Tensor)
    )


def count_flops(parts: Parts) -> float:
    """Count the operations of learning from one sequence, of models that learn together.

    Passes that nothing is learned from are counted, too: one is a third of a pass forward and backward.
    """
    return sum(count_learned(model, each) * (1 + each.passes / 3) for model, each in parts)


def count_learned(model: NeuralPreTrainedModel, sequence: FullSequence) -> float:
    """Count the operations of the pass that is learned from."""
    batch = {"input_ids": torch.empty(1, sequence.read, device="meta")}
    if sequence.written:
        batch["decoder_input_ids"] = torch.empty(1, sequence.written, device="meta")
    batch["labels"] = torch.zeros(round(sequence.targets), dtype=torch.long)
    step = Step(DataCursor(0, 0), (Part(batch, [0, 1]),), {}, 1, sequence.tokens)
    return count_flops_per_token(model, step) * sequence.tokens


@dataclass(frozen=True)
class Kept:
    """Bytes that a forward pass leaves for the backward pass."""

    fixed: float
    """Whatever the batch: weights in the format of the products."""
    per_sequence: float
    """For each full sequence."""


def kept_by(
    parts: Parts, products: torch.dtype, weights: torch.dtype, *, is_cpu: bool, computes_again: bool
) -> Kept:
    """Count what is kept of models that learn together.

    Args:
        weights: Format of the weights: half precision is what sharding engines compute with.
        is_cpu: Whether the planned device is one: it keeps attention's weights of short sequences.
        computes_again: Whether layers keep their inputs alone, and the layer at work, one on average, all.
    """
    fixed = per_sequence = 0.0
    for model, sequence in parts:
        stacks = [module for module in model.modules() if isinstance(module, TercetStack)]
        for stack, length in zip(stacks, (sequence.read, sequence.written)[: len(stacks)], strict=True):
            source = sequence.read if sequence.source is None else sequence.source
            sizes = Sizes(stack.config, products.itemsize, weights.itemsize, is_cpu, length, source)
            of_blocks = [sizes.of_block(block) for block in blocks_of(stack)]
            if len(stacks) == 1 and sequence.source is None:
                states = min(sequence.states or sequence.targets + sequence.pairs, length)
                of_blocks[-1] -= (length - states) * sizes.behind_attention(blocks_of(stack)[-1])
            if computes_again:
                inputs = length * sizes.stream * len(of_blocks)
                per_sequence += inputs + sum(of_blocks) / len(of_blocks)
            else:
                per_sequence += sum(of_blocks)
            per_sequence += length * sizes.outside
            linear = [each for each in stack.modules() if isinstance(each, nn.Linear)]
            if products == weights:  # on a CPU, projections that read the same are one product
                linear = [each for each in linear if is_cpu and init_scale(each) is None]
            fixed += products.itemsize * sum(each.weight.numel() for each in linear)
    return Kept(fixed, per_sequence)


@dataclass(frozen=True)
class Sizes:
    """Bytes that the blocks of a stack keep of one sequence."""

    config: TercetConfig
    """The model's."""
    product: int
    """b."""
    weight: int
    """s."""
    is_cpu: bool
    """Whether a CPU computes."""
    length: int
    """T."""
    source: int
    """S."""

    @property
    def stream(self) -> int:
        """Return the bytes of a state between blocks."""
        return self.weight * self.config.hidden_size

    @property
    def norm(self) -> int:
        """Return what a norm keeps of a state: that, and on a CPU what RMS norm multiplies by its weights."""
        return self.stream * (2 if self.is_cpu and self.config.norm_type == "rms_norm" else 1)

    @property
    def outside(self) -> int:
        """Return what the stack keeps of a position outside of blocks: inputs of norms, what is dropped."""
        config = self.config
        num_norms = config.embedding_norm + (config.norm_placement != "post")
        return num_norms * self.norm + self.dropped(
            config.hidden_size, config.dropout_of("embedding_dropout"), self.weight
        )

    def dropped(self, width: int, probability: float, size: int) -> int:
        """Count what says which of some numbers are dropped: on a CPU, 16 bits for those of 16 bits."""
        return width * (size if self.is_cpu and size == 2 else 1) if probability else 0

    def of_block(self, block: Block) -> float:
        """Count what a block keeps of a sequence."""
        kept = self.length * self.behind_attention(block) + self.of_attention(
            block.self_attention, self.length
        )
        if block.cross_attention is not None:
            kept += self.of_attention(block.cross_attention, self.source)
        return kept

    def of_attention(self, attention: Attention, keys: int) -> float:
        """Count what attention keeps up to its weighted values: states, queries, keys, values, weights."""
        config, b = self.config, self.product
        query, key = attention.q_proj.out_features, attention.k_proj.out_features
        heads = query // attention.head_dim
        kept = self.length * (self.norm + b * config.hidden_size)
        if config.use_qk_norm:
            kept += self.norm / config.hidden_size * (self.length * query + keys * key)
        if self.is_cpu and (max(self.length, keys) <= SHORT or config.attention_dropout):
            of_pairs = heads * keys * b + self.dropped(heads * keys, config.attention_dropout, b)
            return kept + self.length * (b * query + of_pairs) + keys * 2 * b * query
        return kept + self.length * (b * query + SINGLE * heads) + keys * 2 * b * key

    def behind_attention(self, block: Block) -> float:
        """Count what a block keeps of a position behind attention: weighted values, and what follows them."""
        config, b = self.config, self.product
        num_attentions = 1 if block.cross_attention is None else 2
        values = {"none": 1, "headwise": 2, "elementwise": 3}[config.attention_gate]
        kept = b * num_attentions * values * block.self_attention.q_proj.out_features
        inside = config.intermediate_size
        num_inside = 4 if config.feed_forward_type == "gated" else 1 if config.hidden_act == "relu" else 2
        num_inside += config.feed_forward_type == "plain" and config.activation_dropout > 0
        kept += b * (num_inside * inside + config.hidden_size)
        kept += self.norm - (self.stream if config.norm_placement == "parallel" else 0)
        of_attention = config.dropout_of("attention_out_dropout")
        kept += num_attentions * self.dropped(config.hidden_size, of_attention, b)
        kept += self.dropped(config.hidden_size, config.dropout, b)
        return kept + self.dropped(inside, config.activation_dropout, b)


def loss_bytes(parts: Parts, products: torch.dtype, num_sequences: int, *, is_cpu: bool) -> float:
    """Count what the vocabulary's loss holds of a micro-batch at the height of its forward pass.

    A chunk of logits and its gradient, both in the format of the products, and so the head's weights and what
    a chunk adds to their gradient; that gradient, the targets' states and theirs in float32.
    """
    size, held = products.itemsize, 0.0
    for model, sequence in parts:
        config, targets = model.config, num_sequences * sequence.targets
        rows = min(targets, rows_per_chunk(size * config.vocab_size, "cpu" if is_cpu else "cuda"))
        cast_weight = 0 if size == SINGLE else size
        of_head = (SINGLE + size + cast_weight) * config.vocab_size * config.head_width if targets else 0
        held += 2 * size * rows * config.vocab_size + of_head + 2 * SINGLE * targets * config.head_width
    return held
