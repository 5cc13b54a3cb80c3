"""The logit lens: what each layer would predict, if its states were the last one's (nostalgebraist, 2020).

The states of every layer are written over those of the last block, so that whatever follows it in the model
reads them, be it a final norm, a transformation or a scaled head. Early layers need not write in the last
one's basis (Belrose et al., 2023), and weights at random already agree with themselves from layer to layer:
compare `lens_divergence` with that of `untrained(model)`.

Shapes: B batch, T positions, L blocks, C model width, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from .head_ablation import real_tokens
from .inspected_model import Batch, evaluating, find_blocks, hooked


@torch.no_grad()
def record_states(model: PreTrainedModel, inputs: Batch) -> list[Tensor]:
    """Return the residual stream of a text: what the first block reads, then what each block writes.

    The last entry comes before a final norm that is no part of the block; `output_hidden_states` of
    transformers has it normed. Returns L + 1 states (B, T, C), packed sequences as (1, N, C).
    """
    blocks = find_blocks(model)
    read: list[Tensor] = []
    written: list[list[Tensor]] = [[] for _ in blocks]

    def read_first(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        read.append((arguments[0] if arguments else keywords["hidden_states"]).detach().clone())

    def note(place: int) -> Callable[..., None]:
        return lambda _module, _arguments, output: written[place].append(stream_of(output).detach().clone())

    handles = [block.register_forward_hook(note(place)) for place, block in enumerate(blocks)]
    first = blocks[0].register_forward_pre_hook(read_first, with_kwargs=True)
    with evaluating(model), hooked(first, *handles):
        model(**inputs)
    if any(len(states) != 1 for states in written):
        times = ", ".join(str(len(states)) for states in written)
        raise ValueError(
            f"blocks of {type(model).__name__} computed {times} times, and once each is needed: choose "
            "a model that does not share its layers"
        )
    return [read[0], *(states[0] for states in written)]


def stream_of(output: Any) -> Tensor:
    """Return the states that a module has written, the first of what it returns."""
    return output[0] if isinstance(output, tuple) else output


@contextmanager
def writing(module: nn.Module, states: Tensor) -> Iterator[None]:
    """Let a block write some states (B, T, C) in the place of its own, as a context."""

    def replace(_: nn.Module, _arguments: Any, output: Any) -> Any:
        return (states, *output[1:]) if isinstance(output, tuple) else states

    with hooked(module.register_forward_hook(replace)):
        yield


@torch.no_grad()
def logit_lens(model: PreTrainedModel, inputs: Batch) -> list[Tensor]:
    """Return the logits that each layer's states give, read as the last layer's are.

    Returns L + 1 logits (B, T, V): of what the first block reads, then of what each block writes. The last
    are the model's own.
    """
    last, logits = find_blocks(model)[-1], []
    for states in record_states(model, inputs):
        with evaluating(model), writing(last, states):
            outputs = model(**inputs)
        if getattr(outputs, "logits", None) is None:
            raise ValueError(
                f"{type(model).__name__} gives no logits, which the lens reads: load the model with the head "
                "that predicts tokens or labels"
            )
        logits.append(outputs.logits)
    return logits


def lens_divergence(logits: Sequence[Tensor], inputs: Batch) -> list[float]:
    """Return how far each layer's predictions are from the model's: the mean of KL(model || layer), in nats.

    `logits` are those of `logit_lens`; pads do not count.
    """
    final = logits[-1].float().log_softmax(dim=-1)
    apart = [(final.exp() * (final - layer.float().log_softmax(dim=-1))).sum(dim=-1) for layer in logits]
    real = real_tokens(inputs, apart[0].shape).to(final.device)
    return [float(each[real].mean()) for each in apart]
