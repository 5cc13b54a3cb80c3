"""The LM head where an answer is scored, and nowhere else.

Of a prompt of 400 tokens some five are scored. The head is the widest product of a small model, so the states
of all others never reach it: ours are selected before the head, those of stock models by a hook on it.

Shapes: B batch, T positions, N positions of a batch, U different output positions, K targets, C
model width, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ...modeling.generation.prepacked_weights import prepacked_weights
from ...modeling.pretrained import TercetLMHeadModel
from ..prompts.request import Score

MOST_LOGITS = 2**24
"""Logits that are held at once, at most."""

MOST_IN_CACHE = {"cpu": 2**19}
"""Logits that are normalized at once, by the type of the device: as many as a processor's cache holds."""


class Targets:
    """Which token is a target at which position of a batch.

    Args:
        positions: The positions (in the flattened batch) that predict the tokens of each answer.
        answers: The tokens of each answer.
    """

    def __init__(
        self, positions: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], device: Any = "cpu"
    ):
        self.lengths = [len(answer) for answer in answers]
        flat = torch.tensor(
            [position for own in positions for position in own], dtype=torch.long, device=device
        )
        self.positions, self.position_of_target = flat.unique(return_inverse=True)  # (U,), (K,)
        self.tokens = torch.tensor([token for own in answers for token in own], device=device)  # (K,)
        assert len(flat) == len(self.tokens)

    def scores(self, states: Tensor, head: Callable[[Tensor], Tensor], vocab_size: int) -> list[Score]:
        """Score the answers, given states of the positions (U, C), and what makes logits (n, V) of them."""
        found = torch.empty(len(self.tokens), device=self.tokens.device)
        is_likeliest = torch.empty(len(self.tokens), dtype=torch.bool, device=self.tokens.device)
        begin = 0
        for logits in some_at_a_time(states, head, vocab_size):
            end = begin + len(logits)
            own = ((self.position_of_target >= begin) & (self.position_of_target < end)).nonzero()[:, 0]
            row, token = self.position_of_target[own] - begin, self.tokens[own]
            found[own] = logits.log_softmax(dim=-1, dtype=torch.float32)[row, token]
            is_likeliest[own] = are_likeliest(logits, row, token)
            begin = end
        values, hits = found.tolist(), is_likeliest.tolist()
        edges = pairwise(accumulate(self.lengths, initial=0))
        return [Score(tuple(values[begin:end]), all(hits[begin:end])) for begin, end in edges]


def some_at_a_time(states: Tensor, head: Callable[[Tensor], Tensor], vocab_size: int) -> Iterator[Tensor]:
    """Yield the logits (n, V) of states (U, C): many from one product, and few at a time."""
    many = max(1, MOST_LOGITS // vocab_size)
    few = max(1, MOST_IN_CACHE.get(states.device.type, MOST_LOGITS) // vocab_size)
    for part in states.split(many):
        yield from head(part).split(few)


def are_likeliest(logits: Tensor, row: Tensor, token: Tensor) -> Tensor:
    """Return which tokens (k,) are likelier than all others in their rows of logits (n, V); of equals, none.

    A maximum is found much faster than how often it occurs, which is counted where it may matter only.
    """
    most = logits.amax(dim=-1)
    is_highest = logits[row, token] == most[row]
    highest = is_highest.nonzero()[:, 0]
    rows = row[highest]
    is_highest[highest] = (logits[rows] == most[rows, None]).sum(dim=-1) == 1
    return is_highest


def vocabulary_size(model: PreTrainedModel) -> int:
    head: Any = model.get_output_embeddings()
    return model.config.vocab_size if head is None else head.weight.shape[0]


def scores_of_few(model: PreTrainedModel, targets: Targets, inputs: dict[str, Any]) -> list[Score]:
    """Call any model, whose head computes the output positions alone, and score the answers."""
    if isinstance(model, TercetLMHeadModel):
        return scores_of_ours(model, targets, inputs)
    with head_only_at(model, targets.positions) as is_selected:
        outputs = model(**inputs)
    logits = outputs["logits"] if "logits" in outputs else outputs["prediction_logits"]
    if not is_selected:
        logits = logits.flatten(0, -2)[targets.positions]
    return targets.scores(logits, lambda logits: logits, logits.shape[-1])


def scores_of_ours(model: TercetLMHeadModel, targets: Targets, inputs: dict[str, Any]) -> list[Score]:
    """Let a model of ours compute the states (U, C) of these positions alone, and score the answers."""
    with fast_products(model):
        if model.config.is_encoder_decoder:
            states = model.base_model(**inputs).last_hidden_state.flatten(0, 1)[targets.positions]
        else:
            positions = model.state_positions(targets.positions)
            states = model.base_model(**inputs, output_positions=positions).last_hidden_state[0]
        return targets.scores(states, model.compute_logits, vocabulary_size(model))


def fast_products(model: PreTrainedModel) -> AbstractContextManager[None]:
    """Let linear layers of ours multiply by blocks on a CPU."""
    return prepacked_weights(model) if model.device.type == "cpu" else nullcontext()


@contextmanager
def head_only_at(model: PreTrainedModel, positions: Tensor) -> Iterator[bool]:
    """Let the head of a model see only these positions of the flat batch (B, T, C); tell if it has one."""
    head: Any = model.get_output_embeddings()
    if head is None:
        yield False
        return

    def select(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0].flatten(0, -2)[positions], *inputs[1:])

    hook = head.register_forward_pre_hook(select)
    try:
        yield True
    finally:
        hook.remove()
