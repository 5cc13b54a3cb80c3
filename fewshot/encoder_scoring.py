"""Pseudo-log-likelihoods of answers by encoders: each token is hidden, and asked for in its context.

    original        one token is hidden at a time (Salazar et al., 2020, section 2)
    within_word     and those to its right in the same word, so that the rest of a long word does not give it
                    away (Kauf and Ivanova, 2023, PLL-word-l2r)
    whole_answer    all tokens of the answer at once, each asked for by itself: the cloze of Schick and
    Schuetze
                    (2021, PET), where verbalizers may be longer than one token

For an answer of one token the three are the same number.

Shapes: B texts with hidden tokens, T positions, N tokens of a packed stream.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..modeling import TercetPreTrainedModel
from .decoder_scoring import padded
from .few_positions import Targets, scores_of_few
from .prefix_tree import by_size
from .request import Request, Score, Scorer

Hiding = Literal["original", "within_word", "whole_answer"]


@dataclass(frozen=True)
class Cloze:
    """A text with hidden tokens, of which some are asked for."""

    request: int
    """The request it belongs to."""
    ids: tuple[int, ...]
    asked: tuple[int, ...]
    """Positions in the text."""
    answer: tuple[int, ...]
    """What stands there."""


def clozes_of(number: int, request: Request, hiding: Hiding, mask_id: int) -> Iterator[Cloze]:
    """Hide the tokens of an answer, one cloze for each, or one for all."""
    begin = len(request.context)
    everything = range(len(request.answer))
    if hiding == "whole_answer":
        ids = with_masks(request.ids, [begin + place for place in everything], mask_id)
        yield Cloze(number, ids, tuple(begin + place for place in everything), request.answer)
        return
    for place in everything:
        hidden = [place]
        if hiding == "within_word":
            hidden = [later for later in everything[place:] if request.words[later] == request.words[place]]
        ids = with_masks(request.ids, [begin + each for each in hidden], mask_id)
        yield Cloze(number, ids, (begin + place,), (request.answer[place],))


def with_masks(ids: tuple[int, ...], places: Sequence[int], mask_id: int) -> tuple[int, ...]:
    """Put masks into a text."""
    hidden = list(ids)
    for place in places:
        hidden[place] = mask_id
    return tuple(hidden)


class EncoderScorer(Scorer):
    """An encoder, ours or a stock one.

    Args:
        model: In evaluation mode.
        tokens_at_once: Tokens of a batch, pads included.
        hiding: Which tokens are hidden together.
        mask_id: What stands for a hidden one.
    """

    def __init__(self, model: PreTrainedModel, tokens_at_once: int, hiding: Hiding, mask_id: int):
        self.model, self.tokens_at_once = model, tokens_at_once
        self.hiding: Hiding = hiding
        self.mask_id = mask_id

    @torch.inference_mode()
    def score(self, requests: Sequence[Request]) -> Iterator[tuple[int, Score]]:
        """Yield a score as soon as all its tokens are known; texts of like length are read together."""
        clozes = [
            cloze
            for number, request in enumerate(requests)
            for cloze in clozes_of(number, request, self.hiding, self.mask_id)
        ]
        missing = Counter(cloze.request for cloze in clozes)
        parts: list[dict[int, Score]] = [{} for _ in requests]
        for batch in by_size([len(cloze.ids) for cloze in clozes], self.tokens_at_once):
            own = [clozes[place] for place in batch]
            for cloze, score in zip(own, self.score_clozes(own), strict=True):
                parts[cloze.request][cloze.asked[0]] = score
                missing[cloze.request] -= 1
                if not missing[cloze.request]:
                    yield cloze.request, joined(parts[cloze.request])
                    parts[cloze.request] = {}

    def score_clozes(self, clozes: list[Cloze]) -> list[Score]:
        """Score the hidden tokens of some texts in one pass."""
        is_ours = isinstance(self.model, TercetPreTrainedModel)
        begins, inputs = (packed if is_ours else in_rows)([cloze.ids for cloze in clozes], self.model.device)
        places = [[begin + place for place in c.asked] for begin, c in zip(begins, clozes, strict=True)]
        targets = Targets(places, [cloze.answer for cloze in clozes], self.model.device)
        return scores_of_few(self.model, targets, inputs)


def joined(parts: dict[int, Score]) -> Score:
    """Put the scores of an answer's tokens in their order."""
    in_order = [parts[place] for place in sorted(parts)]
    values = tuple(value for part in in_order for value in part.log_likelihoods)
    return Score(values, all(part.is_greedy for part in in_order))


def packed(texts: Sequence[tuple[int, ...]], device: torch.device) -> tuple[list[int], dict[str, Any]]:
    """Lay texts end to end, (1, N), with positions that restart; say where each begins."""
    positions = [place for text in texts for place in range(len(text))]
    begins = [number for number, place in enumerate(positions) if place == 0]
    bounds = torch.tensor([*begins, len(positions)], dtype=torch.int32, device=device)
    inputs: dict[str, Any] = {
        "input_ids": torch.tensor([[token for text in texts for token in text]], device=device),
        "position_ids": torch.tensor([positions], device=device),
        "cu_seq_lens_q": bounds,
        "max_length_q": max(map(len, texts)),
    }
    return begins, inputs


def in_rows(texts: Sequence[tuple[int, ...]], device: torch.device) -> tuple[list[int], dict[str, Tensor]]:
    """Put each text into a row, (B, T); say where each begins in the flattened batch."""
    ids, mask = padded(texts, device)
    return [row * ids.shape[1] for row in range(len(texts))], {"input_ids": ids, "attention_mask": mask}
