"""The scores of a demonstration as data: `scores.json` beside its report."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..distill.report import kept_of
from ..reporting.verdicts import Verdict, as_data
from .continuing import Continuations
from .distilling import DistillationResult
from .finetuning import TaskResult
from .gaps import Gaps
from .measured import Measured
from .telegrams import Telegrams

Answers = Mapping[str, Measured]


def scores_as_json(
    gaps: Gaps,
    placed: TaskResult,
    distilled: DistillationResult,
    continued: Continuations,
    telegrams: Telegrams,
    verdicts: Sequence[Verdict],
) -> str:
    """Write the score and the 95 % interval of everything that was measured, by task and by who answered."""
    measured: dict[str, Answers] = {
        "gaps": gaps.among,
        "gaps_first_guess": gaps.first,
        "packages": placed.answers,
        "continuations": continued.answers,
        "telegrams": telegrams.exact,
        "telegrams_rouge_l": telegrams.restored,
    }
    scores: dict[str, Any] = {
        task: {name: {"score": own.score, "interval": own.interval} for name, own in answers.items()}
        for task, answers in measured.items()
    }
    kept = kept_of(distilled.summary)
    scores["distillation"] = {name: {"score": own["score"]} for name, own in kept.items()}
    return json.dumps({"scores": scores, "verdicts": as_data(verdicts)}, indent=2)
