"""What the demonstration found, as a report: a glance, each member's curves, scores and examples, the tasks.

Legend: a term is one thing that a member learns (`mlm`, `nsp`, ...), as `Objective` names it.
"""

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean

import torch

from ..pretraining.comparison import Scores
from ..pretraining.recipe import PretrainingRecipe
from ..reporting.blocks import (
    Bar,
    Block,
    Card,
    Cards,
    Figure,
    Heading,
    Prose,
    Report,
    Table,
    number,
    percent,
)
from ..reporting.curves import draw, panel_of
from ..training.tracking import Record
from .distilling import DistillationResult, distillation_chapter
from .finetuning import TaskResult
from .prompting import PromptingResult, prompting_chapter
from .sample_blocks import example_blocks
from .samples import Sample
from .task_chapters import task_chapters

NAMES = {"encoder": "Encoder", "decoder": "Decoder", "seq2seq": "Sequence to sequence"}
TERMS = {
    "mlm": "masked token",
    "nsp": "next sentence",
    "clm": "next token",
    "span_corruption": "token of masked spans",
}
TASKS = {
    "encoder": "Its objectives: to predict masked tokens, and whether one passage follows another (masked "
    "language modeling and next-sentence prediction; Devlin et al., 2019). A tenth of the masked tokens are "
    "unchanged in the input, and an untrained model, which repeats its input, predicts these correctly.",
    "decoder": "Its objective: to predict the next token from the preceding ones (causal language modeling; "
    "Radford "
    "et al., 2019).",
    "seq2seq": "Its objective: to generate the spans that were removed from a text (span corruption; Raffel "
    "et al., "
    "2020).",
}
LEAST_GAIN = 0.02
"""Nats below the unigram's loss from which something was learned from context."""


@dataclass(frozen=True)
class Findings:
    """What is known of a member after its training."""

    member: str
    recipe: PretrainingRecipe
    scores: dict[str, Scores]
    """Of `untrained`, `unigram`, perhaps `trigram`, and `trained`."""
    log: Sequence[Record]
    parameters: int
    vocabulary: int
    examples: Sequence[Sample]
    words: int
    """Of the training text."""
    seconds: float
    """From the tokenizer to the last example."""

    @property
    def terms(self) -> list[str]:
        """Name what was learned, the main thing first."""
        return [name.removesuffix("/loss") for name in self.scores["unigram"] if name.endswith("/loss")]

    @property
    def records(self) -> list[Record]:
        """List the records of training steps."""
        return [record for record in self.log if "tokens_per_second" in record]

    @property
    def in_one_line(self) -> str:
        """Say how each term's loss compares."""
        return "; ".join(
            f"{TERMS[term]}: loss "
            + ", ".join(f"{name} {scores[f'{term}/loss']:.2f}" for name, scores in self.scores.items()
                        if f"{term}/loss" in scores)
            for term in self.terms
        )  # fmt: skip


def build_report(
    findings: Sequence[Findings],
    results: Sequence[TaskResult],
    distilled: DistillationResult,
    prompted: PromptingResult,
    folder: Path,
    *,
    seconds: float,
) -> Report:
    """Tell everything in order; curves go into `folder` as PNG files."""
    minutes = max(round(seconds / 60), 1)
    words = findings[0].words
    return Report(
        f"What three small Transformers learned in {minutes} minute{'s' if minutes > 1 else ''}",
        f"Trained from random weights on {words / 1e6:.1f} million words of software documentation that is "
        f"installed on this machine, then fine-tuned on a task each, and evaluated on held-out documents.",
        [
            Cards([glance(found) for found in findings]),
            Prose(
                "Untrained is the same architecture with random weights. Unigram predicts every token by "
                "its frequency, without context. A model that is better than both has learned from context. "
                "A perplexity of 30 means that the model is as uncertain as if 30 tokens were equally likely."
            ),
            *(block for found in findings for block in chapter(found, folder)),
            *task_chapters(results, folder),
            *distillation_chapter(distilled),
            *prompting_chapter(prompted),
            *what_was_run(findings, seconds),
            what_was_learned(results),
            Prose(
                f"Both students of the encoder took {distilled.seconds:,.0f} seconds, prompting all members "
                f"{prompted.seconds:,.0f}."
            ),
        ],
    )


def glance(found: Findings) -> Card:
    """Say in a card how often a member is right, beside what needs no learning."""
    term = found.terms[0]
    trained, unigram = found.scores["trained"], found.scores["unigram"]
    bars = [
        Bar(name, scores[f"{term}/accuracy"], percent(scores[f"{term}/accuracy"]), name == "trained")
        for name, scores in found.scores.items()
        if f"{term}/accuracy" in scores
    ]
    about = (
        f"accuracy for a {TERMS[term]}. Perplexity "
        f"{number(trained[f'{term}/perplexity'])}; unigram baseline: "
        f"{number(unigram[f'{term}/perplexity'])}."
    )
    return Card(NAMES[found.member], percent(trained[f"{term}/accuracy"]), about, bars)


def chapter(found: Findings, folder: Path) -> Iterable[Block]:
    """Tell of one member."""
    yield Heading(NAMES[found.member])
    yield Prose(TASKS[found.member])
    yield curves(found, folder)
    for term in found.terms:
        yield score_table(found, term)
        if found.scores["unigram"][f"{term}/loss"] - found.scores["trained"][f"{term}/loss"] < LEAST_GAIN:
            yield Prose(
                f"It does not predict the {TERMS[term]} better than frequencies do: that needs longer "
                f"training."
            )
    yield from example_blocks(found.examples)


def curves(found: Findings, folder: Path) -> Figure:
    """Draw the loss of every term over the tokens read; held-out curves begin at the untrained model."""
    panels = [
        panel_of(
            found.log,
            term,
            f"{TERMS[term]}: loss in nats",
            untrained=[(0.0, found.scores["untrained"][f"{term}/loss"])],
            levels={
                key: found.scores[key][f"{term}/loss"]
                for key in ("unigram", "trigram")
                if key in found.scores
            },
        )
        for term in found.terms
    ]
    file = f"curves-{found.member}.png"
    return Figure(file, draw(panels, folder / file), f"Loss curves of the {found.member}")


def score_table(found: Findings, term: str) -> Table:
    """Put a term's scores beside those of what needs no learning."""
    columns = {"loss": "loss (nats)", "perplexity": "perplexity", "accuracy": "accuracy"}
    shown = {"loss": "{:.3f}".format, "perplexity": number, "accuracy": percent}
    if term == "nsp":  # of two answers, a perplexity says nothing
        del columns["perplexity"], shown["perplexity"]
    if f"{term}/bits_per_byte" in found.scores["trained"]:
        columns["bits_per_byte"], shown["bits_per_byte"] = "bits per byte", "{:.3f}".format
    rows = [
        [
            name,
            *(
                show(scores[f"{term}/{key}"]) if f"{term}/{key}" in scores else ""
                for key, show in shown.items()
            ),
        ]
        for name, scores in found.scores.items()
    ]
    return Table([TERMS[term], *columns.values()], rows, strong=len(rows) - 1)


def what_was_run(findings: Sequence[Findings], seconds: float) -> Iterable[Block]:
    """Say on what, with what and how fast."""
    yield Heading("Run")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("tercet", "torch", "transformers"))
    device = (
        torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    )
    yield Prose(
        f"{libraries}, Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores; trained on {device}. {seconds / 60:.1f} minutes in total, including "
        f"tokenizers, evaluations and examples. Each model was loaded from its folder with its Auto class "
        f"before the evaluation. The text depends on the installed packages, so figures of different "
        f"machines cannot be compared."
    )
    columns = ["", "parameters", "vocabulary", "steps", "tokens read", "training", "tokens/s", "of peak"]
    rows = []
    for found in findings:
        last, usage = found.log[-1], [record.get("utilization") for record in found.records]
        used = [share for share in usage if share is not None]
        rows.append(
            [
                NAMES[found.member],
                f"{found.parameters:,}",
                f"{found.vocabulary:,}",
                f"{last['step']:,}",
                f"{last['tokens']:,}",
                f"{last['seconds']:,.0f} s",
                f"{last['tokens'] / last['seconds']:,.0f}",
                percent(mean(used)) if used else "",
            ]
        )
    yield Table(columns, rows)


def what_was_learned(results: Sequence[TaskResult]) -> Table:
    """Say how the models were fine-tuned, and how long the two runs of each took."""
    rows = [
        [
            NAMES[result.member],
            f"{result.num_rows:,}",
            f"{result.recipe.training.epochs:g}",
            f"{result.recipe.training.learning_rate:g}",
            f"{result.seconds:,.0f} s",
        ]
        for result in results
    ]
    return Table(["fine-tuned", "rows", "epochs", "learning rate", "both runs"], rows)
