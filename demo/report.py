"""A page of the demonstration's reports: a card and the verdicts of every run, what the models do with texts.

Cards, verdicts, tables and curves are those of the runs' own reports, made of what the runs have written.
"""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from ..distill.report import cards as cards_of_distillation
from ..distill.report import kept_of, kept_table, size_table
from ..fewshot.report import glance as glance_at_prompts
from ..finetune.report import glance as glance_at_task
from ..finetune.report import score_table as task_table
from ..ground.messages import counted
from ..pretraining.report import curves, glance, levels_of, score_table, terms_of
from ..reporting.blocks import (
    Bar,
    Block,
    Card,
    Cards,
    Heading,
    Prose,
    Report,
    Table,
    Verdicts,
    format_score,
    percent,
)
from ..reporting.verdicts import Verdict
from ..text.documentation import Document
from ..training.run_folder import MODEL, PAGE
from ..training.tracking import LOG, read_log
from .samples import continuations, filled_gaps, labels, telegrams
from .tasks import CHOICES, READ_WORDS, STAND_IN

MEMBERS = ("encoder", "decoder", "seq2seq")
ROWS = "tasks"
FINETUNED = "finetuned/encoder"
CONTROL = "finetuned/encoder-from-scratch"
DISTILLED = "distilled"
CONTINUING = "continuations"
"""Folders of the members, of the rows, and of the other runs."""

NAMES = {
    "encoder": "Encoder",
    "decoder": "Decoder",
    "seq2seq": "Sequence to sequence",
    FINETUNED: "Placing paragraphs",
    DISTILLED: "Half the layers",
    CONTINUING: "Finding what comes next",
}
"""Folder of a run -> its chapter."""

ABOUT = {
    "encoder": "Its objective: to predict masked tokens from the text on both sides (masked language "
    "modeling; Devlin et al., 2019). A tenth of the masked tokens are unchanged in the input.",
    "decoder": "Its objective: to predict the next token from the preceding ones (causal language modeling; "
    "Radford et al., 2019).",
    "seq2seq": "Its objective: to write one text for another, from random weights (as in translation; "
    "Vaswani et al., 2017). It learns to write out telegrams: sentences of the training modules without "
    "their small words, capitals and punctuation.",
    DISTILLED: "A student with every second layer of the fine-tuned encoder learns the same task, from the "
    "labels and from its teacher's probabilities (Hinton et al., 2015). For comparison, the table has the "
    "same student without a teacher, and the published result of DistilBERT (Sanh et al., 2019).",
    CONTINUING: f"Held-out paragraphs are cut in the middle. Which of {CHOICES} texts goes on from the "
    f"last {READ_WORDS} words before the cut? The others are from paragraphs of the same package. The "
    "pretrained decoder chooses the text b with the highest log p(b | a) - log p(b), where a is what "
    "stands before the cut: how much likelier a makes b (Brown et al., 2020, section 2.4). It has not "
    "been trained for that.",
}

Summaries = Mapping[str, Mapping[str, Any]]
"""Folder of a run -> what it has written as JSON."""


@dataclass(frozen=True)
class Spent:
    """The seconds since some moment."""

    seconds: float
    cpu_seconds: float
    """Of all processors."""

    def __sub__(self, earlier: "Spent") -> "Spent":
        """Return what was spent since then."""
        return Spent(self.seconds - earlier.seconds, self.cpu_seconds - earlier.cpu_seconds)


PUBLISHED = (
    "For comparison, the published all-MiniLM-L6-v2 (23 million parameters, trained on more than a billion "
    "pairs of sentences), fine-tuned likewise, had 0.702 [0.660, 0.738] on the rows of the pinned "
    "packages: it is no part of this run, and `docs/results.md` has the command."
)
"""What a published model has, measured once: the demonstration itself is offline."""


def build_report(
    folder: Path,
    summaries: Summaries,
    verdicts: Sequence[Verdict],
    documents: Mapping[str, Sequence[Document]],
    times: Mapping[str, Spent],
) -> Report:
    """Build the report, its blocks in their order.

    Args:
        folder: Of the demonstration, for the charts.
        summaries: What the runs have written as JSON, by their folders.
        verdicts: Of all runs.
        documents: The modules that were learned from (`train`), and others (`validation`).
        times: What each run took, and `all`.
    """
    minutes = max(round(times["all"].seconds / 60), 1)
    docstrings = [each for _, own in documents["train"] for each in own]
    words = sum(len(text.split()) for each in docstrings for text in each.paragraphs)
    held_out, rows = documents["validation"], folder / ROWS
    return Report(
        f"What three small Transformers learned in {counted(minutes, 'minute')}",
        f"Trained from random weights on {words / 1e6:.1f} million words of software documentation that is "
        "installed on this machine, and evaluated on documentation that none of them has read.",
        [
            Cards([*cards(summaries)]),
            Verdicts(verdicts),
            Prose(
                "The first bar of each card is the model, the others are what it must beat. Intervals are "
                "95 % bootstrap intervals over the test rows or the held-out documents, those of differences "
                "on the same ones. They cover other rows, but not other seeds: each run is done once."
            ),
            *pretraining_chapter("encoder", summaries, folder),
            *filled_gaps(folder / "encoder" / MODEL, held_out),
            *packages_chapter(summaries),
            *labels(folder / FINETUNED / MODEL, rows / "packages-test.jsonl"),
            *distillation_chapter(summaries[DISTILLED]),
            *pretraining_chapter("decoder", summaries, folder),
            *continuations(folder / "decoder" / MODEL, held_out),
            *prompting_chapter(summaries[CONTINUING]),
            *pretraining_chapter("seq2seq", summaries, folder),
            *telegrams(folder / "seq2seq" / MODEL, rows / "telegrams-test.jsonl"),
            *what_was_run(folder, summaries, times),
        ],
    )


def cards(summaries: Summaries) -> Iterator[Card]:
    """Yield one card of each member: of the encoder, what it is fine-tuned to do."""
    yield placing_card(summaries)
    for member in MEMBERS[1:]:
        card = glance(terms_of(summaries[member])[0], summaries[member])
        yield replace(card, title=f"{NAMES[member]}: {card.title.lower()}")


def placing_card(summaries: Summaries) -> Card:
    """Show the fine-tuned encoder beside the same one without pretraining, and beside counting words."""
    task, control = (scored(summaries[run]) for run in (FINETUNED, CONTROL))
    card = glance_at_task(*task)
    random = Bar("without pretraining", control[1]["accuracy"], format_score(control[1]["accuracy"], 3))
    return replace(card, title="Encoder, fine-tuned: accuracy", bars=[card.bars[0], random, *card.bars[1:]])


def scored(summary: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, float]]:
    """Return what fine-tuning has come to, and the scores of its best seed on the test rows."""
    return summary, summary["seeds"][str(summary["best_seed"])][summary["split"]]


def chapter(run: str) -> Iterator[Block]:
    """Yield what a run is about, and where its report is."""
    yield Heading(NAMES[run])
    yield Prose(ABOUT[run])
    yield Prose(f"More in [its report]({run}/{PAGE}).")


def pretraining_chapter(member: str, summaries: Summaries, folder: Path) -> Iterator[Block]:
    """Yield how a member learned."""
    summary = summaries[member]
    yield from chapter(member)
    yield from curves(read_log(folder / member / LOG), summary, folder / curves_of(member))
    yield from score_table(summary["scores"], terms_of(summary))


def curves_of(member: str) -> str:
    """Name the chart of a member."""
    return f"curves-{member}.png"


def packages_chapter(summaries: Summaries) -> Iterator[Block]:
    """Yield how well the encoder places paragraphs, beside the same encoder without pretraining."""
    summary, best = scored(summaries[FINETUNED])
    yield Heading(NAMES[FINETUNED])
    yield Prose(
        "The encoder is fine-tuned to tell which package a paragraph documents, from "
        f"{counted(summary['rows']['train'], 'paragraph')}. Names of packages are replaced by the word "
        f"`{STAND_IN}`. The {counted(summary['rows']['test'], 'test paragraph')} are from modules that no "
        "model was trained on. Without pretraining, the same architecture learns from the same rows by "
        f"the same recipe. More in the reports of [the encoder]({FINETUNED}/{PAGE}) and of [the one "
        f"without pretraining]({CONTROL}/{PAGE})."
    )
    yield task_table(summary, best)
    yield Prose(PUBLISHED)


def distillation_chapter(summary: Mapping[str, Any]) -> Iterator[Block]:
    """Yield what the student keeps, what its teacher brought, and what is saved."""
    yield from chapter(DISTILLED)
    first, *_ = cards_of_distillation(summary)
    yield Cards([replace(first, title="Student: kept of its teacher's score")])
    yield kept_table(summary)
    yield size_table(summary)


def prompting_chapter(summary: Mapping[str, Any]) -> Iterator[Block]:
    """Yield how well the decoder finds what comes next."""
    yield from chapter(CONTINUING)
    card = glance_at_prompts(summary["models"][0], summary, is_higher_better=True)
    yield Cards([replace(card, title="Decoder, prompted: what comes next")])


def what_was_run(folder: Path, summaries: Summaries, times: Mapping[str, Spent]) -> Iterator[Block]:
    """Yield what was run: libraries, device, times."""
    yield Heading("Run")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("tercet", "torch", "transformers"))
    device = (
        torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    )
    yield Prose(
        f"{libraries}, Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores; trained on {device}. {times['all'].seconds / 60:.1f} minutes in "
        f"total, and {times['all'].cpu_seconds / 60:.1f} minutes of processor time. The text depends on "
        "the installed packages, so figures of different machines cannot be compared."
    )
    rows = []
    for member in MEMBERS:
        log, summary = read_log(folder / member / LOG), summaries[member]
        used = [record["utilization"] for record in log if record.get("utilization") is not None]
        rows.append(
            [
                NAMES[member],
                f"{summary['step']:,}",
                f"{summary['tokens']:,}",
                f"{summary['seconds']:,.0f} s",
                f"{summary['tokens'] / summary['seconds']:,.0f}",
                percent(mean(used)) if used else "",
            ]
        )
    yield Table(["", "steps", "tokens read", "time in steps", "tokens/s", "of peak"], rows)
    whole = [
        [name, f"{own.seconds:,.0f} s", f"{own.cpu_seconds:,.0f} s"]
        for name, own in times.items()
        if name != "all"
    ]
    yield Table(["folder of the run", "time", "processor time"], whole)


def scores_of(summaries: Summaries) -> dict[str, dict[str, Any]]:
    """Return every score by its task and by who has it: losses where text was learned, else accuracies."""
    scores: dict[str, dict[str, Any]] = {}
    for member in MEMBERS:
        term, summary = terms_of(summaries[member])[0], summaries[member]
        losses = {"model": summary["scores"][f"{term}/loss"]} | levels_of(term, summary)
        scores[member] = {name: {"score": loss} for name, loss in losses.items()}
    scores["packages"] = {}
    for name, run in (("pretrained", FINETUNED), ("random weights", CONTROL)):
        summary, best = scored(summaries[run])
        scores["packages"][name] = score_of(best[summary["criterion"]], summary["interval"])
    baselines = summaries[FINETUNED]["baselines"]
    scores["packages"] |= {name: {"score": each["accuracy"]} for name, each in baselines.items()}
    kept = kept_of(summaries[DISTILLED])
    scores["distillation"] = {name: {"score": each["score"]} for name, each in kept.items()}
    prompted = summaries[CONTINUING]
    own = prompted["models"][0]["shots"]["0"]
    scores["continuations"] = {"this decoder": score_of(own["mean"], own["interval"])}
    scores["continuations"] |= {name: {"score": score} for name, score in prompted["baselines"].items()}
    return scores


def score_of(score: float, interval: Sequence[float] | None) -> dict[str, Any]:
    """Put a score beside its interval, if it has one."""
    return {"score": score} if interval is None else {"score": score, "interval": interval}
