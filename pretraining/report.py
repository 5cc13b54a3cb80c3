"""The report of a pretraining run: what was learned from context, the curves, the scores and the run.

A model is compared with the best guess that ignores the context: the entropy of the held-out targets, each by
its frequency among them. No model that ignores the context has a lower loss on them, so that whoever is below
has learned from context. The entropy of few targets is too low, which makes the comparison a strict one. One
that predicts next tokens is also compared with a trigram model of the training text (`comparison.py`).
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator

from ..objectives.character_language_modeling import CharacterLanguageModeling
from ..objectives.masked_pairs import PAIR_LABELS, MaskedLanguageModelingWithPairs
from ..objectives.token_objective import TokenObjective
from ..reporting.blocks import (
    Card,
    Cards,
    Figure,
    Heading,
    Prose,
    Report,
    Table,
    bars_of,
    counted,
    first_block,
    format_score,
    number,
)
from ..reporting.curves import Panel, draw, panel_of
from ..reporting.page import save
from ..reporting.verdicts import WORDS, Outcome, Verdict, as_data, shown
from ..storage.scores import METRICS, what_is_scored
from ..training.disk import replace_text
from ..training.evaluation import HeldOut
from ..training.examples import LeftOut
from ..training.objective import Objective
from ..training.run_folder import CURVES, EVALUATION
from ..training.tracking import Record
from .comparison import answers, batches_of, trigram_losses
from .recipe import PretrainingRecipe

NO_CONTEXT = "no context"
"""Name of the best guess that ignores the context."""

TRIGRAM = "trigram"
"""Name of counting the training text."""

LEAST_GAIN = 0.02
"""Nats of a difference between losses from which it counts: a run has no interval of its losses."""


def losses_without_context(
    recipe: PretrainingRecipe, objective: Objective, held_out: HeldOut, accelerator: Accelerator
) -> dict[str, float]:
    """Return the entropy of each term's held-out targets, in nats; none of mixtures."""
    known = TokenObjective | MaskedLanguageModelingWithPairs | CharacterLanguageModeling
    if not isinstance(objective, known) or held_out.source is None:
        return {}
    targets = answers(objective, batches_of(held_out.source, objective, recipe, accelerator))
    return {term: entropy(own) for term, own in targets.items() if len(own)}


def entropy(targets: np.ndarray) -> float:
    """Return the entropy of targets by their frequency, in nats.

    >>> round(entropy(np.array([0, 0, 1, 1])), 4)
    0.6931
    """
    shares = np.unique(targets, return_counts=True)[1] / len(targets)
    return float(-(shares * np.log(shares)).sum())


def verdicts(summary: Mapping[str, Any], log: Sequence[Record]) -> Iterator[Verdict]:
    """Compare the loss of each term with what it must beat, and with its own lowest."""
    for term, level in summary["without_context"].items():
        loss = summary["scores"].get(f"{term}/loss")
        if loss is None or not math.isfinite(loss):
            continue
        outcome = outcome_of_loss(loss, level)
        what = {
            "better": "Learned from context",
            "worse": "Not learned from context",
            "unclear": "Nothing measurable learned from context",
        }[outcome]
        yield Verdict(
            f"{what}: loss {shown(loss)} nats per target, {what_is_scored(term)}, against {shown(level)} of "
            f"the best guess that ignores the context.",
            outcome,
        )
        if (counted_level := summary["trigram"].get(term)) is not None:
            outcome = outcome_of_loss(loss, counted_level)
            yield Verdict(
                f"{WORDS[outcome].capitalize()} a trigram model that has counted the training text: loss "
                f"{shown(loss)} against {shown(counted_level)}.",
                outcome,
            )
    yield from about_the_end(log)


def outcome_of_loss(loss: float, level: float) -> Outcome:
    """Judge a loss beside a level."""
    if abs(loss - level) < LEAST_GAIN:
        return "unclear"
    return "better" if loss < level else "worse"


def about_the_end(log: Sequence[Record]) -> Iterator[Verdict]:
    """Yield a verdict if the held-out loss had risen by the end."""
    losses = [
        (record["evaluation/loss"], record["step"])
        for record in log
        if record.get("evaluation/loss") is not None
    ]
    if losses and losses[-1][0] - min(losses)[0] >= LEAST_GAIN:
        best, step = min(losses)
        yield Verdict(
            f"Overfitting: the held-out loss was lowest after step {step:,} ({shown(best)}), and is "
            f"{shown(losses[-1][0])} at the end.",
            "worse",
        )


def write_report(
    recipe: PretrainingRecipe, without_context: Mapping[str, float], log: Sequence[Record], parameters: int
) -> None:
    """Write the report of a finished run, and its curves, into its folder; add the verdicts to its scores.

    Args:
        recipe: As it was carried out.
        without_context: Loss of each term's best guess that ignores the context.
        log: The records of steps and evaluations.
        parameters: Number of the model's parameters.
    """
    file = recipe.folder / EVALUATION
    summary = json.loads(file.read_text(encoding="utf-8"))
    summary |= {"without_context": dict(without_context), "trigram": trigram_losses(recipe)}
    summary["verdicts"] = as_data(verdicts(summary, log))
    replace_text(file, json.dumps(summary, indent=2) + "\n")
    report = build_report(recipe, summary, log, parameters)
    save(report, recipe.folder)


def build_report(
    recipe: PretrainingRecipe, summary: Mapping[str, Any], log: Sequence[Record], parameters: int
) -> Report:
    """Build the report; the curves go into the run's folder."""
    terms = terms_of(summary)
    drawn = [*curves(log, summary, recipe.folder / CURVES)]
    loss = format_score(summary["scores"].get("loss"), 3)
    about = (
        f"{recipe.model.preset or recipe.model.path}, {parameters:,} parameters, trained for "
        f"{counted(summary['step'], 'step')} on {summary['tokens']:,} tokens."
    )
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in summary["trained_on"].items())
    return Report(
        f"Pretraining of {recipe.folder.name}: loss {loss} on held-out text",
        about,
        [
            *first_block(summary["verdicts"]),
            Cards([glance(term, summary) for term in terms]),
            Prose(
                "A loss is in nats per target, and a perplexity is its exponential. The best guess that "
                "ignores the context predicts every target by its frequency in the held-out text itself. "
                f"Losses of one run have no interval: differences below {LEAST_GAIN} nats do not count."
                + (ABOUT_TRIGRAM if summary["trigram"] else "")
            ),
            *([Heading("Loss curves"), *drawn] if drawn else []),
            Heading("Scores"),
            *score_table(summary["scores"], terms),
            *what_is_left_out(summary["left_out"]),
            Heading("Run"),
            Prose(f"{told}; {summary['seconds']:,.0f} seconds in steps."),
        ],
    )


ABOUT_TRIGRAM = (
    " The trigram predicts every token from the two before it, as often as it has followed them in the "
    "training text (interpolated Kneser-Ney); it reads whole documents, the model the run's sequences."
)


def terms_of(summary: Mapping[str, Any]) -> list[str]:
    """Name what was learned."""
    return [name.removesuffix("/loss") for name in summary["scores"] if name.endswith("/loss")]


def levels_of(term: str, summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the losses of a term that are reached without a network, by their names."""
    levels = {NO_CONTEXT: summary["without_context"], TRIGRAM: summary["trigram"]}
    return {name: own[term] for name, own in levels.items() if term in own}


def glance(term: str, summary: Mapping[str, Any]) -> Card:
    """Show a term's loss beside those without a network, below its perplexity, or its accuracy for pairs."""
    scores = summary["scores"]
    losses = {"model": scores[f"{term}/loss"]} | levels_of(term, summary)
    if term in PAIR_LABELS or scores.get(f"{term}/perplexity") is None:
        headline, name = format_score(scores.get(f"{term}/accuracy"), 3), "accuracy"
    else:
        headline, name = number(scores[f"{term}/perplexity"]), "perplexity"
    return Card(
        what_is_scored(term).capitalize(),
        headline,
        f"{name}; the bars are losses in nats.",
        bars_of(losses, "model"),
    )


def curves(log: Sequence[Record], summary: Mapping[str, Any], file: Path) -> Iterator[Figure]:
    """Draw the loss of every term that the log tells of into a PNG file; none if none was ever finite."""
    panels: list[Panel] = [
        panel_of(log, term, f"{what_is_scored(term)}: loss in nats", levels=levels_of(term, summary))
        for term in terms_of(summary)
    ]
    if finite := [panel for panel in panels if panel.training and panel.held_out]:
        yield Figure(file.name, draw(finite, file), "Loss over the tokens read")


def what_is_left_out(left_out: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Prose]:
    """Yield what of either text is in no example; nothing if everything is."""
    texts = {"train": "The training text", "validation": "The held-out text"}
    for split, entries in left_out.items():
        for entry in entries:
            yield Prose(f"{LeftOut(**entry).told(texts[split])}.")


def score_table(scores: Mapping[str, Any], terms: Sequence[str]) -> Iterator[Table]:
    """List the scores of every term."""
    names = [name for name in METRICS if any(f"{term}/{name}" in scores for term in terms)]
    rows = [
        [
            what_is_scored(term),
            *(format_score(scores[f"{term}/{name}"]) if f"{term}/{name}" in scores else "" for name in names),
        ]
        for term in terms
    ]
    yield Table(["on held-out text", *(METRICS[name] for name in names)], rows)
