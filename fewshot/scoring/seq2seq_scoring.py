"""Log-likelihoods of answers by sequence-to-sequence models: the source is encoded once for all its answers.

Shapes: B sources, R answers of a batch, S source positions, T target positions, C model width.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from ..prompts.request import Request, Score, Scorer
from .few_positions import Targets, fast_products, scores_of_few
from .layout import padded
from .prefix_tree import by_size


class Seq2SeqScorer(Scorer):
    """A sequence-to-sequence model, ours or a stock one."""

    def __init__(self, model: PreTrainedModel, tokens_at_once: int):
        self.model, self.tokens_at_once = model, tokens_at_once

    @torch.inference_mode()
    def score(self, requests: Sequence[Request]) -> Iterator[tuple[int, Score]]:
        # sources of like length together
        answers: dict[tuple[int, ...], list[int]] = {}
        for number, request in enumerate(requests):
            answers.setdefault(request.context, []).append(number)
        sources = list(answers)
        sizes = [len(source) * len(answers[source]) for source in sources]
        for batch in by_size(sizes, self.tokens_at_once):
            yield from self.score_sources({sources[n]: answers[sources[n]] for n in batch}, requests)

    def score_sources(
        self, answers: dict[tuple[int, ...], list[int]], requests: Sequence[Request]
    ) -> Iterator[tuple[int, Score]]:
        """Encode some sources once, and score all their answers, those of like length together."""
        device = self.model.device
        ids, mask = padded(list(answers), device)
        encoder: Any = self.model.get_encoder()
        with fast_products(self.model):
            states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, S, C)
        rows = [(row, number) for row, own in enumerate(answers.values()) for number in own]
        sizes = [ids.shape[1] + len(requests[number].lead + requests[number].answer) for _, number in rows]
        for batch in by_size(sizes, self.tokens_at_once):
            part = [rows[place] for place in batch]
            source = torch.tensor([row for row, _ in part], device=device)
            part_requests = [requests[number] for _, number in part]
            scores = self.score_answers(part_requests, states[source], mask[source])
            yield from zip((number for _, number in part), scores, strict=True)

    def score_answers(self, requests: list[Request], states: torch.Tensor, mask: torch.Tensor) -> list[Score]:
        """Score answers (R) whose sources are encoded, (R, S, C), in one pass of the decoder."""
        targets_read = [request.lead + request.answer[:-1] for request in requests]
        ids, _ = padded(targets_read, states.device)
        firsts = [row * ids.shape[1] + len(request.lead) - 1 for row, request in enumerate(requests)]
        positions = [range(first, first + len(r.answer)) for first, r in zip(firsts, requests, strict=True)]
        inputs: dict[str, Any] = {
            "encoder_outputs": BaseModelOutput(last_hidden_state=states),  # pyright: ignore[reportArgumentType]
            "attention_mask": mask,
            "decoder_input_ids": ids,
            "use_cache": False,
        }
        return scores_of_few(self.model, Targets(positions, [r.answer for r in requests], ids.device), inputs)
