"""What a score is, by definition: one request at a time, nothing shared, nothing cached, all logits.

It is the reference that every faster way is tested against, and what `prompting.one_by_one` runs.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..prompts.request import Hiding, Request, Score, Scorer
from .encoder_scoring import clozes_of


class OneByOne(Scorer):
    """Any member.

    Args:
        model: In evaluation mode.
        member: encoder, decoder or seq2seq.
        hiding: Which tokens of an answer an encoder does not see together.
        mask_id: What stands for a hidden one.
    """

    def __init__(self, model: PreTrainedModel, member: str, hiding: Hiding = "original", mask_id: int = -1):
        self.model, self.member, self.mask_id = model, member, mask_id
        self.hiding: Hiding = hiding

    @torch.inference_mode()
    def score(self, requests: Sequence[Request]) -> Iterator[tuple[int, Score]]:
        for number, request in enumerate(requests):
            yield number, score_of(self.logits(request), request.answer)

    def logits(self, request: Request) -> Tensor:
        """Logits of the answer's tokens, (T, V)."""
        length = len(request.answer)
        if self.member == "decoder":
            return self.read(input_ids=request.context + request.answer[:-1])[-length:]
        if self.member == "seq2seq":
            target = request.lead + request.answer[:-1]
            return self.read(input_ids=request.context, decoder_input_ids=target)[-length:]
        rows = [
            self.read(input_ids=cloze.ids)[list(cloze.targets)]
            for cloze in clozes_of(0, request, self.hiding, self.mask_id)
        ]
        return torch.cat(rows)

    def read(self, **ids: tuple[int, ...]) -> Tensor:
        """All logits of a text, (T, V)."""
        outputs = self.model(
            **{name: torch.tensor([own], device=self.model.device) for name, own in ids.items()}
        )
        return (outputs["logits"] if "logits" in outputs else outputs["prediction_logits"])[0]


def score_of(logits: Tensor, answer: tuple[int, ...]) -> Score:
    """Score an answer of T tokens by their logits (T, V)."""
    tokens = torch.tensor(answer, device=logits.device)
    chosen = logits.float().log_softmax(dim=-1).gather(-1, tokens[:, None])[:, 0]
    best = logits.topk(2, dim=-1).values
    is_greedy = (logits.gather(-1, tokens[:, None])[:, 0] == best[:, 0]) & (best[:, 0] > best[:, 1])
    return Score(tuple(chosen.tolist()), bool(is_greedy.all()))
