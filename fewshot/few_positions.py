"""The vocabulary head where an answer is scored, and nowhere else.

Of a prompt of 400 tokens some five are scored. The head is the widest product of a small model, so the states
of all others never reach it: ours are selected before the head, those of stock models by a hook on it.

Shapes: B batch, T positions, N positions of a batch, U different positions that are asked for, K targets, C
model width, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .request import Score

MOST_LOGITS = 2**24
"""Logits that are held at once, at most."""


class Targets:
    """Which token is asked for at which position of a batch.

    Args:
        places: Of each answer, the positions (in the flattened batch) that predict its tokens.
        answers: Of each answer, its tokens.
    """

    def __init__(
        self, places: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], device: Any = "cpu"
    ):
        self.lengths = [len(answer) for answer in answers]
        flat = torch.tensor([place for own in places for place in own], dtype=torch.long, device=device)
        self.places, self.place_of_target = flat.unique(return_inverse=True)  # (U,), (K,)
        self.tokens = torch.tensor([token for own in answers for token in own], device=device)  # (K,)
        assert len(flat) == len(self.tokens)

    def scores(self, logits_of: Callable[[Tensor], Tensor], vocab_size: int) -> list[Score]:
        """Score the answers, given the function from places (n,) to logits (n, V)."""
        found = torch.empty(len(self.tokens), device=self.tokens.device)
        is_likeliest = torch.empty(len(self.tokens), dtype=torch.bool, device=self.tokens.device)
        rows = max(1, MOST_LOGITS // vocab_size)
        for begin in range(0, len(self.places), rows):
            logits = logits_of(self.places[begin : begin + rows]).float()
            own = ((self.place_of_target >= begin) & (self.place_of_target < begin + rows)).nonzero()[:, 0]
            row, token = self.place_of_target[own] - begin, self.tokens[own]
            found[own] = (logits[row, token] - logits.logsumexp(dim=-1)[row]).to(found.dtype)
            is_likeliest[own] = logits.argmax(dim=-1)[row] == token
        parts = zip(found.split(self.lengths), is_likeliest.split(self.lengths), strict=True)
        return [Score(tuple(values.tolist()), bool(hits.all())) for values, hits in parts]


def vocabulary_size(model: PreTrainedModel) -> int:
    """Give the number of logits of a position."""
    head: Any = model.get_output_embeddings()
    return model.config.vocab_size if head is None else head.weight.shape[0]


def scores_of_few(model: PreTrainedModel, targets: Targets, inputs: dict[str, Any]) -> list[Score]:
    """Call any model, whose head sees but the places asked for, and score the answers."""
    with head_only_at(model, targets.places) as is_selected:
        outputs = model(**inputs)
    logits = outputs["logits"] if "logits" in outputs else outputs["prediction_logits"]
    if not is_selected:
        logits = logits.flatten(0, -2)[targets.places]
    number_of = {place: row for row, place in enumerate(targets.places.tolist())}

    def logits_of(places: Tensor) -> Tensor:
        first = number_of[int(places[0])]
        return logits[first : first + len(places)]

    return targets.scores(logits_of, logits.shape[-1])


@contextmanager
def head_only_at(model: PreTrainedModel, places: Tensor) -> Iterator[bool]:
    """Let the head of a model see these places of the flattened batch (B, T, C); tell whether it has one."""
    head: Any = model.get_output_embeddings()
    if head is None:
        yield False
        return

    def select(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0].flatten(0, -2)[places], *inputs[1:])

    hook = head.register_forward_pre_hook(select)
    try:
        yield True
    finally:
        hook.remove()
