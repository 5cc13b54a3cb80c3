"""The report of a pretraining run: what was learned from context, curves, samples, scores and the run.

A model is compared with the best guess that ignores the context: the entropy of the held-out targets, each by
its frequency among them. No model that ignores the context has a lower loss on them, so that whoever is below
has learned from context. The entropy of few targets is too low, which makes the comparison a strict one. One
that predicts next tokens is also compared with a trigram model of the training text (`comparison.py`). Where
scores are known by document (`document_scores.py`), verdicts rest on intervals.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from ... import modeling
from ...configs.messages import counted, quietly
from ...configs.recipe import load_recipe
from ...data.files.atomic_writes import replace_text
from ...data.identities import keep_texts
from ...data.steps.batches import StepDataset, one_pass
from ...data.steps.examples import ExampleSource, LeftOut
from ...data.steps.objective import Objective
from ...data.tokenizers.special_tokens import lost_by_normalizing
from ...data.tokenizers.tokenizer import load_tokenizer
from ...modeling.registry import models_of
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.model_folder import load_config
from ...modeling.stock.architectures import options_of_export
from ...pretraining.objectives.character_language_modeling import CharacterLanguageModeling
from ...pretraining.objectives.masked_pairs import PAIR_LABELS, MaskedLanguageModelingWithPairs
from ...pretraining.recipe import PretrainingRecipe
from ...pretraining.text import TextReader, Texts, identify, open_texts
from ...training.devices.precision import choose_precision, join_processes
from ...training.evaluation import micro_batches
from ...training.recipe import EMA, LAST, MEAN
from ...training.run_folder import CURVES, EVALUATION, MODEL, RECIPE, SCORES, TEXTS
from ...training.token_objective import TokenObjective
from ...training.tracking import LOG, Record, as_json, read_log
from ..blocks import (
    Bullets,
    Card,
    Cards,
    Figure,
    Heading,
    Prose,
    Report,
    Table,
    bars_of,
    first_block,
    format_score,
    number,
)
from ..curves import Panel, draw, panel_of
from ..finished_run import FinishedRun
from ..next_steps import NextStep, after_pretraining, next_steps
from ..next_steps import as_data as steps_as_data
from ..page import save
from ..scores import INTERVAL, METRICS, Score, about_bytes, as_pair, what_is_scored
from ..scores import as_data as scores_as_data
from ..scores import number as in_three_digits
from ..verdicts import (
    FEWEST_ROWS,
    WORDS,
    Interval,
    Outcome,
    Verdict,
    as_data,
    difference_in_words,
    outcome_of_difference,
    shown,
    with_interval,
)
from .changed_scores import change_of_scores, change_of_tokens, losses_before
from .comparison import TokenLosses, answers, steps_in_order, trigram_losses
from .document_scores import DOCUMENT, UnitScores, unit_scores
from .samples import Samples, as_lines, samples

NO_CONTEXT = "no context"
"""Name of the best guess that ignores the context."""

TRIGRAM = "trigram"
"""Name of counting the training text."""

LEAST_GAIN = 0.02
"""Nats of a difference between losses from which it counts where there is no interval of it."""


def losses_without_context(
    objective: Objective, steps: StepDataset | None, device: torch.device
) -> dict[str, float]:
    """Return the entropy of each term's held-out targets, in nats; none of mixtures."""
    known = TokenObjective | MaskedLanguageModelingWithPairs | CharacterLanguageModeling
    if not isinstance(objective, known) or steps is None:
        return {}
    targets = answers(objective, micro_batches(one_pass(steps), device))
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
    if not is_usable(summary["scores"]):
        yield Verdict(
            "The loss on held-out text is not finite, so the model is of no use: lower "
            "training.optimizer.learning_rate, and start over with --overwrite.",
            "worse",
        )
    for term, level in summary["without_context"].items():
        loss = summary["scores"].get(f"{term}/loss")
        if loss is None or not math.isfinite(loss):
            continue
        own = loss_with_interval(term, summary)
        outcome = outcome_of_loss(loss, level, difference_of(term, NO_CONTEXT, summary))
        what = {
            "better": "Learned from context",
            "worse": "Not learned from context",
            "unclear": "Nothing measurable learned from context",
        }[outcome]
        yield Verdict(
            f"{what}: loss {own} nats per target, {what_is_scored(term)}, against {shown(level)} of "
            f"the best guess that ignores the context.",
            outcome,
        )
        if (counted_level := summary["trigram"].get(term)) is not None:
            difference = difference_of(term, TRIGRAM, summary)
            outcome = outcome_of_loss(loss, counted_level, difference)
            told = "" if difference is None else f"; {difference_in_words(difference)}"
            yield Verdict(
                f"{WORDS[outcome].capitalize()} a trigram model that has counted the training text: loss "
                f"{own} against {shown(counted_level)}{told}.",
                outcome,
            )
    yield from about_the_start(summary["scores"], log)
    yield from about_the_end(log, summary.get("weights", LAST))


def loss_with_interval(term: str, summary: Mapping[str, Any]) -> str:
    """Write the loss of a term, with its 95 % interval if it has one."""
    loss, interval = (summary["scores"].get(f"{term}/{name}") for name in ("loss", f"loss/{INTERVAL}"))
    return shown(loss) if interval is None else with_interval(loss, tuple(interval))


def difference_of(term: str, other: str, summary: Mapping[str, Any]) -> Interval | None:
    """Return the 95 % interval of how far the loss of a term is above another model's, if it is known."""
    found = summary.get("differences", {}).get(term, {}).get(other)
    return None if found is None else (found[0], found[1])


def outcome_of_loss(loss: float, level: float, difference: Interval | None = None) -> Outcome:
    """Judge a loss beside a level, by the interval of their difference if there is one."""
    if difference is not None:
        return outcome_of_difference(difference, is_higher_better=False)
    if abs(loss - level) < LEAST_GAIN:
        return "unclear"
    return "better" if loss < level else "worse"


def about_the_start(scores: Mapping[str, Any], log: Sequence[Record]) -> Iterator[Verdict]:
    """Compare the loss of each term with that of the trained model that the run began with."""
    for term, before in losses_before(log).items():
        loss = scores.get(f"{term}/loss")
        if loss is not None and math.isfinite(loss):
            outcome = outcome_of_loss(loss, before)
            yield Verdict(
                f"{WORDS[outcome].capitalize()} the model that the run began with: loss {shown(loss)}, "
                f"{what_is_scored(term)}, against {shown(before)} before the first step.",
                outcome,
            )


def about_the_end(log: Sequence[Record], kind: str = LAST) -> Iterator[Verdict]:
    """Yield a verdict if the held-out loss had risen by the end.

    Args:
        kind: Kind of the finished model's weights. A mean exists at the end alone: what it is of is judged.
    """
    name = f"evaluation/{EMA}/loss" if kind == EMA else "evaluation/loss"
    whose = " of the weights before averaging" if kind == MEAN else ""
    losses = [
        (record[name], record["step"])
        for record in log
        if record.get(name) is not None and record["step"] > 0
    ]
    if losses and losses[-1][0] - min(losses)[0] >= LEAST_GAIN:
        best, step = min(losses)
        yield Verdict(
            f"Overfitting: the held-out loss{whose} was lowest after step {step:,} ({shown(best)}), and is "
            f"{shown(losses[-1][0])} at the end.",
            "worse",
        )


def write_report(run: FinishedRun) -> None:
    """Compute what a finished run has come to, and write that, its report and its curves into its folder."""
    folder = run.folder
    recipe = load_recipe(PretrainingRecipe, str(folder / RECIPE))
    facts = json.loads((folder / EVALUATION).read_text(encoding="utf-8"))
    log, device = read_log(folder / LOG), cast(torch.device, join_processes().device)
    precision = choose_precision(facts["trained_on"]["precision"], device)
    with quietly():
        model = Checkpoint.open(str(run.model)).ours().eval()
        nn.Module.to(model, device)
        tokenizer = load_tokenizer(str(run.model))
    reader = TextReader(recipe.corpus, recipe.objective, tokenizer, recipe.training.seed)
    texts, source = measured_on(reader, folder)
    objective = reader.build_objective(model.config)
    steps = None if source is None else steps_in_order(source, objective, recipe.training)
    scores, trigram = unit_scores(model, steps, device, precision), trigram_losses(reader, texts)
    levels = {term: float(own.no_context.sum() / own.targets.sum()) for term, own in scores.items()}
    if not levels:
        levels = losses_without_context(objective, steps, device)
    shown_texts = samples(model, tokenizer, steps)
    summary = facts | {
        "without_context": levels,
        "trigram": {term: losses.loss for term, losses in trigram.items()},
        "samples": [as_lines(each) for each in shown_texts.examples],
        "lost_by_tokenizer": lost_by_normalizing(tokenizer),
    }
    add_intervals(summary, scores, trigram)
    replace_text(folder / EVALUATION, json.dumps(as_json(summary), indent=2) + "\n")
    found = {
        "scores": scores_as_data(scores_of(summary)),
        "told": [*told(summary)],
        "verdicts": as_data(verdicts(summary, log)),
        "next_steps": steps_as_data(what_comes_next(recipe.folder / MODEL, summary)),
    }
    replace_text(folder / SCORES, json.dumps(as_json(found), indent=2) + "\n")
    summary |= {key: found[key] for key in ("verdicts", "next_steps")}
    save(build_report(recipe, summary, log, folder, shown_texts), folder)


def scores_of(summary: Mapping[str, Any]) -> Iterator[Score]:
    """Yield the scores on held-out text; losses of a term beside those that need no network."""
    scores = summary["scores"]
    for name, value in scores.items():
        term, _, score = name.rpartition("/")
        if score not in ("targets", INTERVAL):  # of each score: how many, how sure
            interval = as_pair(scores.get(f"{name}/{INTERVAL}"))
            levels = levels_of(term, summary) if score == "loss" else {}
            yield Score(name, value, interval, levels, scores.get(f"{term}/targets"), "validation")


def told(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the line about the scores with which the command ends."""
    scores: dict[str, list[str]] = {}
    for each in scores_of(summary):
        term, _, score = each.name.rpartition("/")
        if term and score != "loss":
            scores.setdefault(term, []).append(f"{score} {each}")
    terms = "; ".join(f"{term.replace('_', ' ')}: {', '.join(own)}" for term, own in scores.items())
    yield f"on held-out text: {terms or 'loss ' + in_three_digits(summary['scores'].get('loss'))}"
    yield from about_bytes(summary["scores"], summary["lost_by_tokenizer"])


def measured_on(reader: TextReader, folder: Path) -> tuple[Texts, ExampleSource | None]:
    """Read again what the run in a folder has learned from, and the examples that it was measured on."""
    with warnings.catch_warnings(action="ignore"):  # the run has told
        texts = open_texts(reader.corpus, reader.objective)
        keep_texts(folder / TEXTS, identify(texts), goes_on=True, may_change=False)
        return texts, reader.held_out(texts["validation"]).source


def add_intervals(
    summary: dict[str, Any], scores: Mapping[str, UnitScores], trigram: Mapping[str, TokenLosses]
) -> None:
    """Add the intervals of scores, and of how far losses are above those without a network.

    There are none of fewer than `FEWEST_ROWS` units: those of a single one have no width.
    """
    differences: dict[str, dict[str, Interval]] = {}
    units: dict[str, Any] = {}
    for term, own in scores.items():
        if own.number < FEWEST_ROWS:
            continue
        summary["scores"] |= own.intervals(term)
        differences[term] = {NO_CONTEXT: own.above_no_context()}
        if term in trigram and own.unit == DOCUMENT:
            assert own.bounds is not None
            differences[term][TRIGRAM] = own.above(*trigram[term].between(own.bounds))
        units[term] = {"unit": own.unit, "number": own.number}
    summary |= {"differences": differences, "drawn": units}


def build_report(
    recipe: PretrainingRecipe,
    summary: Mapping[str, Any],
    log: Sequence[Record],
    folder: Path,
    shown_texts: Samples,
) -> Report:
    """Build the report of the run in a folder, which the curves go into."""
    terms = terms_of(summary)
    drawn = [*curves(log, summary, folder / CURVES)]
    loss = format_score(summary["scores"].get("loss"), 3)
    about = (
        f"{recipe.model.origin}, {summary['trained_parameters']:,} parameters, trained for "
        f"{counted(summary['step'], 'step')} on {summary['tokens']:,} tokens."
    )
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in summary["trained_on"].items())
    return Report(
        f"Pretraining of {recipe.folder.name}: loss {loss} on held-out text",
        about,
        [
            *first_block(summary["verdicts"]),
            Cards([glance(term, summary) for term in terms]),
            Prose(about_losses(summary)),
            *([Heading("Loss curves"), *drawn] if drawn else []),
            *shown_texts.blocks,
            Heading("Scores"),
            *score_table(summary["scores"], terms),
            *map(Prose, about_bytes(summary["scores"], summary["lost_by_tokenizer"])),
            *change_of_scores(summary["scores"], log),
            *change_of_tokens(summary["held_out"]),
            *what_is_left_out(summary["left_out"]),
            Heading("Recipe"),
            Bullets(recipe.in_lines()),
            Prose(f"All settings are in [{RECIPE}]({RECIPE}), which `tercet pretrain` takes as it is."),
            Heading("Run"),
            Prose(f"{told}; {summary['seconds']:,.0f} seconds in steps."),
            *next_steps(summary),
        ],
    )


def about_losses(summary: Mapping[str, Any]) -> str:
    """Say what losses, levels and intervals are."""
    parts = [
        "A loss is in nats per target, and a perplexity is its exponential. The best guess that ignores the "
        "context predicts every target by its frequency in the held-out text itself."
    ]
    if drawn := next(iter(summary["drawn"].values()), None):
        parts.append(
            f"Intervals are 95 % bootstrap intervals over {counted(drawn['number'], drawn['unit'])} of the "
            "held-out text. They cover other texts of the same kind, but not other seeds."
        )
    if summary["scores"] and len(summary["drawn"]) < len(terms_of(summary)):
        parts.append(
            f"Losses without an interval are compared as they are: differences below {LEAST_GAIN} nats do "
            "not count."
        )
    if summary["trigram"]:
        parts.append(ABOUT_TRIGRAM)
    return " ".join(parts)


def what_comes_next(model: Path, summary: Mapping[str, Any]) -> Iterator[NextStep]:
    """Yield what may be done with the model in a folder, unless it is of no use."""
    if is_usable(summary["scores"]):
        trained = summary["models"].get(MODEL, "")
        export = options_of_export(load_config(model))
        yield from after_pretraining(str(model), can_classify=can_classify_texts(trained), export=export)


def is_usable(scores: Mapping[str, Any]) -> bool:
    """Return whether the loss on held-out text is finite, if there is one."""
    loss = scores.get("loss", 0.0)
    return loss is not None and math.isfinite(loss)


def can_classify_texts(name: str) -> bool:
    """Return whether a model's member has a head for labels of texts; an unknown one is taken to have.

    Args:
        name: Name of the model's class, perhaps behind what wrappers put before it (`FSDP...`).
    """
    model = getattr(modeling, name[max(name.find("Tercet"), 0) :], None)
    return model is None or bool(models_of(model.config_class, AutoModelForSequenceClassification))


ABOUT_TRIGRAM = (
    "The trigram predicts every token from the two before it, as often as it has followed them in the "
    "training text (interpolated Kneser-Ney); it reads whole documents, the model the run's sequences."
)


def terms_of(summary: Mapping[str, Any]) -> list[str]:
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
    interval = scores.get(f"{term}/{name}/{INTERVAL}")
    sure = "" if interval is None else f", 95 % interval {' to '.join(map(number_of(name), interval))}"
    return Card(
        what_is_scored(term).capitalize(),
        headline,
        f"{name}{sure}; the bars are losses in nats.",
        bars_of(losses, "model", {"model": scores.get(f"{term}/loss/{INTERVAL}")}),
    )


def number_of(name: str) -> Callable[[float], str]:
    return number if name == "perplexity" else lambda value: format_score(value, 3)


def curves(log: Sequence[Record], summary: Mapping[str, Any], file: Path) -> Iterator[Figure]:
    """Draw the loss of every term that the log tells of into a PNG file; none of a term with points alone."""
    panels: list[Panel] = [
        panel_of(log, term, f"{what_is_scored(term)}: loss in nats", levels=levels_of(term, summary))
        for term in terms_of(summary)
    ]
    if drawn := [panel for panel in panels if panel.has_line]:
        yield Figure(file.name, draw(drawn, file), "Loss over the tokens read")


def what_is_left_out(left_out: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Prose]:
    """Yield what of either text is in no example; nothing if everything is."""
    texts = {"train": "The training text", "validation": "The held-out text"}
    for split, entries in left_out.items():
        for entry in entries:
            yield Prose(f"{LeftOut(**entry).describe(texts[split])}.")


def score_table(scores: Mapping[str, Any], terms: Sequence[str]) -> Iterator[Table]:
    """List the scores of every term, with their intervals."""
    names = [name for name in METRICS if any(f"{term}/{name}" in scores for term in terms)]

    def cell(name: str) -> str:
        if name not in scores:
            return ""
        score, interval = format_score(scores[name]), scores.get(f"{name}/{INTERVAL}")
        return score if interval is None else f"{score} [{', '.join(map(format_score, interval))}]"

    rows = [[what_is_scored(term), *(cell(f"{term}/{name}") for name in names)] for term in terms]
    yield Table(["on held-out text", *(METRICS[name] for name in names)], rows)
