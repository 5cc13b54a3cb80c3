"""Pseudo-log-likelihoods of answers by encoders: each token is masked, and predicted in its context.

    original        one token is hidden at a time (Salazar et al., 2020, section 2)
    within_word     and those to its right in the same word, so that the rest of a long word does not give it
                    away (Kauf and Ivanova, 2023, PLL-word-l2r)
    whole_answer    all tokens of the answer at once, and all are predicted in that text: with verbalizers of
                    one token the cloze of Schick and Schuetze (2021, PET)

For an answer of one token the three are the same number.

Shapes: B texts with hidden tokens, T positions, N tokens of a packed stream.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import torch
from transformers import PreTrainedModel

from ...modeling import TercetPreTrainedModel
from ..prompts.request import Hiding, Request, Score, Scorer
from .few_positions import Targets, scores_of_few
from .layout import in_rows, packed


@dataclass(frozen=True)
class Cloze:
    """A text with masked tokens, of which some are predicted."""

    request: int
    """The request it belongs to."""
    ids: tuple[int, ...]
    """The text's tokens, masks among them."""
    targets: tuple[int, ...]
    """Positions in the text."""
    answer: tuple[int, ...]
    """What stands there."""


def clozes_of(number: int, request: Request, hiding: Hiding, mask_id: int) -> Iterator[Cloze]:
    """Hide the tokens of an answer, one cloze for each, or one for all."""
    begin = len(request.context)
    everything = range(len(request.answer))
    if hiding == "whole_answer":
        ids = with_masks(request.ids, [begin + position for position in everything], mask_id)
        yield Cloze(number, ids, tuple(begin + position for position in everything), request.answer)
        return
    for position in everything:
        hidden = [position]
        if hiding == "within_word":
            hidden = [
                later for later in everything[position:] if request.words[later] == request.words[position]
            ]
        ids = with_masks(request.ids, [begin + each for each in hidden], mask_id)
        yield Cloze(number, ids, (begin + position,), (request.answer[position],))


def with_masks(ids: tuple[int, ...], positions: Sequence[int], mask_id: int) -> tuple[int, ...]:
    """Put masks into a text."""
    hidden = list(ids)
    for position in positions:
        hidden[position] = mask_id
    return tuple(hidden)


class EncoderScorer(Scorer):
    """An encoder, ours or a stock one."""

    def __init__(self, model: PreTrainedModel, tokens_at_once: int, hiding: Hiding, mask_id: int):
        self.model, self.tokens_at_once = model, tokens_at_once
        self.hiding: Hiding = hiding
        self.mask_id = mask_id

    @torch.inference_mode()
    def score(self, requests: Sequence[Request]) -> Iterator[tuple[int, Score]]:
        # texts of like length are read together, and a score is given as soon as all its tokens are known
        found = (
            (cloze.request, score)
            for batch in self.batches(requests)
            for cloze, score in zip(batch, self.score_clozes(batch), strict=True)
        )
        for number, parts in groupby(found, key=itemgetter(0)):
            yield number, joined([score for _, score in parts])

    def batches(self, requests: Sequence[Request]) -> Iterator[list[Cloze]]:
        """Yield clozes as they are needed, the longest texts first, those of a request after each other."""
        batch: list[Cloze] = []
        for number in sorted(range(len(requests)), key=lambda number: -len(requests[number].ids)):
            for cloze in clozes_of(number, requests[number], self.hiding, self.mask_id):
                if batch and len(batch[0].ids) * (len(batch) + 1) > self.tokens_at_once:
                    yield batch
                    batch = []
                batch.append(cloze)
        if batch:
            yield batch

    def score_clozes(self, clozes: list[Cloze]) -> list[Score]:
        """Score the hidden tokens of some texts in one pass; texts that hide the same are one."""
        texts = list(dict.fromkeys(cloze.ids for cloze in clozes))
        is_ours = isinstance(self.model, TercetPreTrainedModel)
        begins, inputs = (packed if is_ours else in_rows)(texts, self.model.device)
        begin_of = dict(zip(texts, begins, strict=True))
        positions = [[begin_of[cloze.ids] + position for position in cloze.targets] for cloze in clozes]
        targets = Targets(positions, [cloze.answer for cloze in clozes], self.model.device)
        return scores_of_few(self.model, targets, inputs)


def joined(parts: Sequence[Score]) -> Score:
    values = tuple(value for part in parts for value in part.log_likelihoods)
    return Score(values, all(part.is_greedy for part in parts))
