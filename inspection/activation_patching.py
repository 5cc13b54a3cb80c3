"""States of a text written into another one's forward pass, and what follows from them; and the logit lens.

A patch is an intervention: the states of some module at some positions are replaced by those of another text,
and whatever the predictions then share with that text has come through them (Vig et al., 2020; Meng et al.,
2022, "causal tracing"; Heimersheim and Nanda, 2024, on how to read it). The baseline is a patch from an
unrelated text of the same length, which also disturbs.

The logit lens (nostalgebraist, 2020) reads each layer's states as if they were the last one's. It is a patch
as well: the states of every layer, written over those of the last block, so that whatever follows it in the
model reads them, be it a final norm, a transformation or a scaled head. Early layers need not write in the
last one's basis (Belrose et al., 2023), and weights at random already agree with themselves from layer to
layer: compare `lens_divergence` with that of `untrained(model)`.

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
def record_states(
    model: PreTrainedModel, inputs: Batch, blocks: Sequence[nn.Module] | None = None
) -> list[Tensor]:
    """Return the residual stream of a text: what the first block reads, then what each block writes.

    The last entry comes before a final norm that is no part of the block; `output_hidden_states` of
    transformers has it normed.

    Args:
        model: The model, which is evaluated.
        inputs: What it reads.
        blocks: By default `find_blocks(model)`.

    Returns:
        L + 1 states (B, T, C), packed sequences as (1, N, C).

    Raises:
        ValueError: A block computed more than once, since layers share it, or not at all.
    """
    blocks = find_blocks(model) if blocks is None else blocks
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
            f"blocks of {type(model).__name__} computed {times} times, and once each is needed: pass as "
            "`blocks` modules that compute once"
        )
    return [read[0], *(states[0] for states in written)]


def stream_of(output: Any) -> Tensor:
    """Return the states that a module has written, the first of what it returns."""
    return output[0] if isinstance(output, tuple) else output


@contextmanager
def patch(module: nn.Module, states: Tensor, positions: Sequence[int] | None = None) -> Iterator[None]:
    """Replace what a module writes, as a context.

    Args:
        module: A block, an attention module, a feed-forward network: whatever writes states (B, T, C), alone
            or first in a tuple.
        states: What stands in their place, (B, T, C).
        positions: Columns where it does, from 0, those of the stream of packed sequences; everywhere, if
            `None`.

    Raises:
        ValueError: The states have another size than what the module writes, or there is no such position.
    """

    def replace(_: nn.Module, _arguments: Any, output: Any) -> Any:
        own = stream_of(output)
        if own.shape != states.shape:
            raise ValueError(
                f"states of size {(*states.shape,)} cannot take the place of {(*own.shape,)}: patch from a "
                "text with as many tokens, laid out in the same way"
            )
        places = list(range(own.shape[1])) if positions is None else [*positions]
        if any(place not in range(own.shape[1]) for place in places):
            raise ValueError(f"positions {places} are to be patched, but there are {own.shape[1]}, from 0")
        patched = own.clone()
        patched[:, places] = states[:, places].to(own)
        return (patched, *output[1:]) if isinstance(output, tuple) else patched

    with hooked(module.register_forward_hook(replace)):
        yield


@torch.no_grad()
def patching_effects(
    model: PreTrainedModel,
    inputs: Batch,
    source: Batch,
    measure: Callable[[Any], Tensor],
    blocks: Sequence[nn.Module] | None = None,
) -> Tensor:
    """Measure how much of the difference between two texts passes through each state.

    The text is read once for each block and position, L x T times, with that one state of the source's in the
    place of its own.

    Args:
        model: The model, which is evaluated.
        inputs: A text of T tokens.
        source: Another text of as many, in which one thing is different.
        measure: A number of the outputs, such as the logit of one answer minus that of another.
        blocks: By default `find_blocks(model)`.

    Returns:
        (L, T): 0 where nothing changes, 1 where the patch alone gives the source's number.

    Raises:
        ValueError: The measure does not tell the two texts apart, or their sizes differ.
    """
    blocks = find_blocks(model) if blocks is None else blocks
    states = record_states(model, source, blocks)[1:]
    with evaluating(model):
        own, other = (float(measure(model(**batch))) for batch in (inputs, source))
        if own == other:
            raise ValueError(f"the measure is {own:g} of both texts: choose one that tells them apart")
        effects = torch.empty(len(blocks), states[0].shape[1])
        for layer, (block, written) in enumerate(zip(blocks, states, strict=True)):
            for position in range(written.shape[1]):
                with patch(block, written, [position]):
                    effects[layer, position] = (float(measure(model(**inputs))) - own) / (other - own)
    return effects


@torch.no_grad()
def logit_lens(
    model: PreTrainedModel, inputs: Batch, blocks: Sequence[nn.Module] | None = None
) -> list[Tensor]:
    """Return the logits that each layer's states give, read as the last layer's are.

    Args:
        model: A model with a head, which is evaluated.
        inputs: What it reads.
        blocks: By default `find_blocks(model)`.

    Returns:
        L + 1 logits (B, T, V): of what the first block reads, then of what each block writes. The last are
        the model's own.

    Raises:
        ValueError: The model gives no logits.
    """
    blocks = find_blocks(model) if blocks is None else blocks
    logits = []
    for states in record_states(model, inputs, blocks):
        with evaluating(model), patch(blocks[-1], states):
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
