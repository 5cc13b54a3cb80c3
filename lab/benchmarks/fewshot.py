"""Score choices side by side with lm-evaluation-harness: choices a second, their ratio, and equal picks.

Twelve questions of 60 tokens stand behind 400 common ones, with four choices each of at most 15 tokens. GPT-2
and ours have equal weights.

    harness            lm-evaluation-harness on the stock model, float32: a choice is read with all before it
    harness-bf16       the same in bfloat16, freed memory kept
    prefix-cache       the stock model in float32, as a plain program does it: the beginning is cached once, a
                       question continues a copy, its choices an expanded one; all logits are computed
    prefix-cache-bf16  the same in bfloat16, freed memory kept
    tercet             `fewshot`'s scorer on our model, float32
    tercet-bf16        the same in bfloat16, freed memory kept

All get the same token ids. The harness sorts by length and reads as many texts at once as told.
"""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tercet.fewshot.prompts.request import Request
from tercet.fewshot.scoring.decoder_scoring import TreeScorer
from tercet.training.devices.precision import fastest_float32_products

from ..publishing import Result
from .benchmark import Benchmark, side_by_side
from .cases import SEED, without_text
from .generation import WritingCase, reading

HARNESS_BATCH = 8
TOKENS_AT_ONCE = 4096


@dataclass(frozen=True)
class AskingCase(WritingCase):
    """Questions behind a common beginning, with some choices each."""

    prefix_length: int = 400
    question_length: int = 60
    num_questions: int = 12
    num_choices: int = 4
    longest_choice: int = 15

    def shrunk(self) -> "AskingCase":
        """Return the same on a scale at which it takes no time."""
        small = super().shrunk()
        return replace(small, sequence_length=96, prefix_length=40, question_length=8, num_questions=3)

    def requests(self) -> list[Request]:
        """Draw what is asked; the choices to a question follow each other."""
        rng = np.random.default_rng(SEED)

        def draw(length: int) -> tuple[int, ...]:
            return tuple(int(word) for word in self.words(length, rng))

        prefix, asked = draw(self.prefix_length), []
        for _ in range(self.num_questions):
            question = prefix + draw(self.question_length)
            lengths = rng.integers(2, self.longest_choice + 1, self.num_choices)
            asked += [Request(question, draw(int(length))) for length in lengths]
        return asked


def ask_harness(model: Any, case: AskingCase) -> Callable[[], list[float]]:
    """Build what lets the harness score."""
    from lm_eval.models.huggingface import HFLM

    harness_class: Any = HFLM
    end = f"word{case.vocab_size - 1}"  # the harness wants a tokenizer even for ids
    tokenizer = without_text(case.vocab_size, [], dict.fromkeys(("unk", "bos", "eos", "pad"), end))
    harness = harness_class(model, tokenizer=tokenizer, batch_size=HARNESS_BATCH)
    asked = [(("", ""), list(request.context), list(request.answer)) for request in case.requests()]
    return lambda: [found for found, _ in harness._loglikelihood_tokens(asked, disable_tqdm=True)]


def ask_prefix_cache(model: Any, case: AskingCase) -> Callable[[], list[float]]:
    """Build a plain program that caches what choices have in common, and scores."""
    requests, choices = case.requests(), case.num_choices
    prefix = list(requests[0].context[: case.prefix_length])

    @torch.inference_mode()
    def score() -> list[float]:
        found = []
        beginning = model(torch.tensor([prefix]), use_cache=True).past_key_values
        for first in range(0, len(requests), choices):
            own = requests[first : first + choices]
            question = torch.tensor([own[0].context[case.prefix_length :]])
            outputs = model(question, past_key_values=copy.deepcopy(beginning), use_cache=True)
            past = outputs.past_key_values
            past.batch_repeat_interleave(choices)
            width = max(len(request.answer) for request in own)
            ids = torch.tensor([[*request.answer, *[0] * (width - len(request.answer))] for request in own])
            mask = torch.ones(choices, len(own[0].context) + width, dtype=torch.long)
            behind = model(ids, past_key_values=past, attention_mask=mask, use_cache=True).logits
            logits = torch.cat((outputs.logits[:, -1:].expand(choices, -1, -1), behind), dim=1)
            chosen = logits[:, :-1].float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]
            found += [row[: len(r.answer)].sum().item() for row, r in zip(chosen, own, strict=True)]
        return found

    return score


def ask_tercet(model: Any, case: AskingCase) -> Callable[[], list[float]]:
    """Build what lets our scorer score."""
    scorer, requests = TreeScorer(model, TOKENS_AT_ONCE), case.requests()
    return lambda: [score.total for score in scorer.score_all(requests)]


ASKERS = {
    f"{name}{suffix}": reading(whose, ask, dtype, products)
    for name, whose, ask, products in (
        ("harness", "stock", ask_harness, nullcontext),
        ("prefix-cache", "stock", ask_prefix_cache, nullcontext),
        ("tercet", "tercet", ask_tercet, fastest_float32_products),
    )
    for suffix, dtype in (("", torch.float32), ("-bf16", torch.bfloat16))
}
"""The sides, by name, in the order of a round; float32 products of ours are those of `tercet fewshot`."""

CASE = AskingCase("4x256", 50_257, 512, batch_size=1)
"""What is scored: layers x width."""


def compare_scores(case: AskingCase) -> Result:
    """Compare the scores of all sides with those of the harness in float32, and their picks."""
    found = {name: np.array(side.prepare(case, torch.device("cpu"))()) for name, side in ASKERS.items()}
    picks = {name: own.reshape(-1, case.num_choices).argmax(-1) for name, own in found.items()}
    return {
        "difference": {name: float(np.abs(own - found["harness"]).max()) for name, own in found.items()},
        "same_picks": {name: float((own == picks["harness"]).mean()) for name, own in picks.items()},
    }


BENCHMARK = Benchmark(
    __doc__,
    {CASE.name: CASE},
    side_by_side(
        ASKERS,
        compare_scores,
        lambda case: case.num_questions * case.num_choices,
        {name: (name,) for name in ("harness", "harness-bf16", "prefix-cache")},
        speed="choices_per_second",
        describe=lambda name, side, case, _: {"same_picks": case["parity"]["same_picks"][name]},
    ),
    {
        "side": "{side}",
        "choices/s": "{choices_per_second:,.1f}",
        "slowest to fastest": "{slowest:,.1f} to {fastest:,.1f}",
        "over harness": "{ratio_to_harness:.2f}x",
        "over harness-bf16": "{ratio_to_harness-bf16:.2f}x",
        "over prefix-cache": "{ratio_to_prefix-cache:.2f}x",
        "equal": "{same_picks:.0%}",
    },
    defaults={"threads": 1},
)
