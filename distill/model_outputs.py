"""What two models make of the same batch, so that it can be compared; and the student as it is trained.

    batch -> student -> ModelOutputs --+
    batch -> teacher -> ModelOutputs --+--> losses

Vocabulary heads run at the targets alone. Queries, keys and values are noted by a kernel of attention that
passes them on, so that batches stay packed.

Shapes: N tokens of a packed stream, n targets, V vocabulary, C width, H query heads, G key-value heads, D
width of a head, L layers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data.steps.objective import IGNORE, Batch, has_example, keep_or_blank
from ..modeling import TercetPreTrainedModel
from ..modeling.attention.kernels import choose_kernel
from ..modeling.attention.multi_head import SelfAttention
from .layers import stacks_of

READ = {
    *("input_ids", "position_ids", "token_type_ids", "decoder_input_ids", "decoder_position_ids"),
    *(f"{name}_{side}" for name in ("cu_seq_lens", "max_length") for side in "qk"),
}
"""What a model reads of a batch."""


class RequiredOutputs(NamedTuple):
    """What losses want to know of a model."""

    logits: bool = False
    """What it expects at the targets."""
    hidden: bool = False
    """The hidden states of every layer."""
    heads: bool = False
    """Queries, keys and values of every layer."""


class Heads(NamedTuple):
    """What the self-attention of a layer multiplies."""

    query: Tensor
    """(H, N, D), with its rotation."""
    key: Tensor
    """(G, N, D), with its rotation."""
    value: Tensor
    """(G, N, D)."""


class ModelOutputs(NamedTuple):
    """What a model makes of a batch; what nobody needs is missing."""

    logits: Tensor | None
    """At the targets (n, V), or at the teacher's likeliest tokens (n, k)."""
    tokens: Tensor | None
    """Which tokens these are (n, k), if they are not all."""
    states: Tensor
    """Last hidden states of the stream whose tokens are predicted (N, C)."""
    hidden: dict[str, tuple[Tensor, ...]]
    """Stack -> what its first layer reads and what each makes of it, (N, C) each: L + 1 of them."""
    heads: dict[str, tuple[Heads, ...]]
    """Stack -> the heads of each layer."""


def without_filling(outputs: ModelOutputs, batch: Batch, labels: Tensor) -> ModelOutputs:
    """Leave out what a model makes of filling, where nothing is to be compared, or make it a constant.

    Args:
        outputs: Outputs of a model.
        batch: A batch of a fixed size.
        labels: At its positions (n,), `IGNORE` where there is no target.
    """
    is_target, has_states = labels != IGNORE, {}
    for stack, side in (("decoder", "q"), ("encoder", "k")):
        bounds = batch[f"cu_seq_lens_{side}"]
        num_tokens = (bounds.diff() * has_example(batch)).sum()
        name = "decoder_input_ids" if stack == "decoder" and "decoder_input_ids" in batch else "input_ids"
        has_states[stack] = torch.arange(batch[name].shape[1], device=bounds.device) < num_tokens
    return outputs._replace(
        logits=None if outputs.logits is None else keep_or_blank(outputs.logits, is_target),
        tokens=None if outputs.tokens is None else keep_or_blank(outputs.tokens, is_target),
        states=keep_or_blank(outputs.states, has_states["decoder"], 1.0),
        hidden={
            stack: tuple(keep_or_blank(layer, has_states[stack], 1.0) for layer in layers)
            for stack, layers in outputs.hidden.items()
        },
    )


class HeadRecorder:
    """A kernel of attention that records what it is given, and lets the usual one compute."""

    def __init__(self) -> None:
        self.found: dict[nn.Module, Heads] = {}

    def __call__(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **arguments: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention; the batch is one packed stream."""
        if isinstance(module, SelfAttention):
            self.found[module] = Heads(query[0], key[0], value[0])
        return choose_kernel(arguments["situation"])(module, query, key, value, mask, **arguments)


def compute_outputs(
    model: TercetPreTrainedModel, batch: Batch, positions: Tensor, needs: RequiredOutputs
) -> ModelOutputs:
    """Let a model read a packed batch.

    Args:
        model: Any member; with an LM head if logits are needed.
        batch: One packed stream, or an encoder's and a decoder's.
        positions: Where in the stream targets are predicted (n,).
        needs: What is kept.
    """
    inputs: dict[str, Any] = {name: value for name, value in batch.items() if name in READ}
    if getattr(model.config, "type_vocab_size", 0) < 2:
        inputs.pop("token_type_ids", None)
    recorder = HeadRecorder() if needs.heads else None
    layers: dict[nn.Module, list[Tensor]] = {}
    outputs: Any = base_of(model)(
        **inputs,
        use_cache=False,
        layer_states=layers if needs.hidden else None,
        **({} if recorder is None else {"kernel": recorder}),
    )
    states = outputs.last_hidden_state
    logits = None
    if needs.logits:
        logits = model.compute_logits(states[:, positions])[0]  # pyright: ignore[reportCallIssue]
    return ModelOutputs(
        logits,
        None,
        states[0],
        hidden_of(model, layers) if needs.hidden else {},
        {} if recorder is None else heads_of(model, recorder),
    )


def base_of(model: TercetPreTrainedModel) -> nn.Module:
    return model.get_submodule("model") if hasattr(model, "model") else model


def hidden_of(
    model: TercetPreTrainedModel, layers: Mapping[nn.Module, Sequence[Tensor]]
) -> dict[str, tuple[Tensor, ...]]:
    """Return the hidden states of each stack, (N, C) for every layer."""
    return {name: tuple(state[0] for state in layers[stack]) for name, stack in stacks_in(model).items()}


def heads_of(model: TercetPreTrainedModel, recorder: HeadRecorder) -> dict[str, tuple[Heads, ...]]:
    """Return what was noted in each stack, in the order of its layers."""
    return {
        name: tuple(recorder.found[layer.self_attention] for layer in stack.layers)
        for name, stack in stacks_in(model).items()
    }


def stacks_in(model: TercetPreTrainedModel) -> dict[str, Any]:
    base, names = base_of(model), stacks_of(model.config)
    return {name: base.get_submodule(name) if len(names) > 1 else base for name in names}


class Learner(nn.Module):
    """A student as it is trained: with projections to the teacher's width, where it is narrower.

    One matrix for what the layers make and another for what the first one reads (Jiao et al., 2020, section
    3.1). They are part of checkpoints, and of no finished model.

    Args:
        student: Learns.
        needs: What losses want to know of it.
        projected: Names of the matrices that are needed: `layers`, `embeddings`.
        width: The teacher's.
    """

    def __init__(
        self,
        student: TercetPreTrainedModel,
        needs: RequiredOutputs,
        projected: Sequence[str] = (),
        width: int | None = None,
    ):
        super().__init__()
        self.student = student
        self.needs = needs
        own = student.config.hidden_size
        self.projections = nn.ModuleDict(
            {name: nn.Linear(own, width or own, bias=False) for name in projected}
        )
        self._no_split_modules = student._no_split_modules

    def forward(self, batch: Batch, positions: Tensor, needs: RequiredOutputs | None = None) -> ModelOutputs:
        """Read a batch, with hidden states as wide as the teacher's; `needs` may be others than usual."""
        outputs = compute_outputs(self.student, batch, positions, needs or self.needs)
        if not (self.projections and outputs.hidden):
            return outputs
        hidden = {stack: self.project(layers) for stack, layers in outputs.hidden.items()}
        return outputs._replace(hidden=hidden)

    def project(self, layers: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Bring the hidden states of a stack to the teacher's width."""
        first, *others = layers
        if "embeddings" in self.projections:
            first = self.projections["embeddings"](first)
        return first, *map(self.projections["layers"], others)
