"""What the demonstration found, as a report: a glance, each member's curves, scores and examples, the tasks.

Legend: a term is one thing that a member learns (`mlm`, `nsp`, ...), as `Objective` names it.
"""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
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
    Verdicts,
    number,
    percent,
)
from ..reporting.curves import draw, panel_of
from ..reporting.verdicts import Verdict
from ..training.tracking import Record
from . import published
from .continuing import Continuations
from .distilling import DistillationResult, distillation_chapter
from .finetuning import PRETRAINED, TaskResult
from .gaps import Gaps
from .measured import Measured
from .sample_blocks import example_blocks
from .samples import NUM_GUESSES, Sample
from .task_chapters import continuations_chapter, gaps_chapter, packages_chapter, telegrams_chapter
from .tasks import CHOICES
from .telegrams import Telegrams


def cards(gaps: Gaps, placed: TaskResult, continued: Continuations) -> list[Card]:
    """Make the cards: of the encoder, of the fine-tuned encoder, of the decoder."""
    among, (trained, *_) = gaps.among, gaps.among.values()
    first = next(iter(gaps.first.values()))
    places = {
        {PRETRAINED: "this encoder", "random weights": "without pretraining"}.get(name, name): answers
        for name, answers in placed.answers.items()
    }
    encoder = placed.answers[PRETRAINED]
    decoder = next(iter(continued.answers.values()))
    rows = placed.rows
    return [
        Card(
            "Fills a gap",
            percent(trained.score),
            f"of {len(trained.scores):,} words that are hidden in unread text are among its {NUM_GUESSES} "
            f"guesses ({interval(trained)}); its first guess is right for {percent(first.score)} "
            f"({interval(first)}).",
            bars(among),
        ),
        Card(
            "Knows where a paragraph is from",
            percent(encoder.score),
            f"of {len(rows):,} unread paragraphs are placed in the right one of "
            f"{len(set(rows['label'][:]))} packages ({interval(encoder)}), after {placed.num_rows:,} "
            "examples. Names of packages are hidden.",
            [*bars(places), Bar(published.NAME, published.SCORE, percent(published.SCORE))],
        ),
        Card(
            "Knows what comes next",
            percent(decoder.score),
            f"of {len(decoder.scores):,} unread paragraphs are matched with how they go on, among {CHOICES} "
            f"texts of the same package ({interval(decoder)}). It was not trained for that.",
            bars(continued.answers),
        ),
    ]


def bars(answers: Mapping[str, Measured]) -> list[Bar]:
    """Draw scores, the first of which is to be looked at."""
    return [
        Bar(name, own.score, percent(own.score), number == 0)
        for number, (name, own) in enumerate(answers.items())
    ]


def interval(own: Measured) -> str:
    """Write a 95 % interval."""
    low, high = own.interval
    return f"95 % interval {100 * low:.0f} to {100 * high:.0f}"


NAMES = {"encoder": "Encoder", "decoder": "Decoder", "seq2seq": "Sequence to sequence"}
TERMS = {
    "mlm": "masked token",
    "clm": "next token",
    "translation": "next token of the sentence",
}
TASKS = {
    "encoder": "Its objective: to predict masked tokens from the text on both sides (masked language "
    "modeling; Devlin et al., 2019). A tenth of the masked tokens are unchanged in the input, and an "
    "untrained model, which repeats its input, predicts these correctly.",
    "decoder": "Its objective: to predict the next token from the preceding ones (causal language modeling; "
    "Radford et al., 2019).",
    "seq2seq": "Its objective: to write one text for another, from random weights (as in translation; "
    "Vaswani et al., 2017).",
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
    prompted: Sequence[Sample]
    """What it did with the texts of `prompts.py`."""
    examples: Sequence[Sample]
    """What it did with held-out texts."""
    words: int
    """Of the training text."""
    measured: Gaps | Telegrams | None
    """What was measured besides its objective."""

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
        """Describe how each term's loss compares."""
        return "; ".join(
            f"{TERMS[term]}: loss "
            + ", ".join(f"{name} {scores[f'{term}/loss']:.2f}" for name, scores in self.scores.items()
                        if f"{term}/loss" in scores)
            for term in self.terms
        )  # fmt: skip


def build_report(
    findings: Sequence[Findings],
    placed: TaskResult,
    distilled: DistillationResult,
    continued: Continuations,
    verdicts: Sequence[Verdict],
    folder: Path,
    *,
    seconds: float,
    cpu_seconds: float,
) -> Report:
    """Tell everything in order; charts go into `folder` as PNG files."""
    minutes = max(round(seconds / 60), 1)
    encoder, decoder, seq2seq = findings
    gaps, telegrams = measured_of(findings)
    return Report(
        f"What three small Transformers learned in {minutes} minute{'s' if minutes > 1 else ''}",
        f"Trained from random weights on {encoder.words / 1e6:.1f} million words of software documentation "
        "that is installed on this machine, and evaluated on documentation that none of them has read.",
        [
            Cards(cards(gaps, placed, continued)),
            Verdicts(verdicts),
            Prose(
                "The first bar of each card is the model, the others are what it must beat. Intervals are "
                "95 % bootstrap intervals over the test rows, those of differences on the same rows. They "
                "cover other rows, but not other seeds: each run is done once. The bag of words learns "
                "from the same examples as the encoder; the published model is cited, not run."
            ),
            *chapter(encoder, folder),
            *gaps_chapter(gaps),
            *examples_of(encoder),
            *packages_chapter(placed, folder),
            *distillation_chapter(distilled),
            *chapter(decoder, folder),
            *examples_of(decoder),
            *continuations_chapter(continued),
            *chapter(seq2seq, folder),
            *telegrams_chapter(telegrams),
            *what_was_run(findings, seconds, cpu_seconds),
            what_was_learned(placed),
            Prose(
                f"Both students of the encoder took {distilled.seconds:,.0f} seconds, the continuations "
                f"{continued.seconds:,.0f}."
            ),
        ],
    )


def measured_of(findings: Sequence[Findings]) -> tuple[Gaps, Telegrams]:
    """Return what was measured of the encoder and of the sequence-to-sequence model."""
    encoder, _, seq2seq = findings
    assert isinstance(encoder.measured, Gaps)
    assert isinstance(seq2seq.measured, Telegrams)
    return encoder.measured, seq2seq.measured


def chapter(found: Findings, folder: Path) -> Iterable[Block]:
    """Yield how a member learned."""
    yield Heading(NAMES[found.member])
    yield Prose(TASKS[found.member])
    yield curves(found, folder)
    for term in found.terms:
        yield score_table(found, term)
        if found.scores["unigram"][f"{term}/loss"] - found.scores["trained"][f"{term}/loss"] < LEAST_GAIN:
            yield Prose(
                f"It does not predict the {TERMS[term]} better than frequencies do: that needs longer "
                "training."
            )
    yield Prose(
        "Untrained is the same architecture with random weights. Unigram predicts every token by its "
        "frequency, without context. A perplexity of 30 means that the model is as uncertain as if 30 "
        "tokens were equally likely."
    )


def examples_of(found: Findings) -> Iterable[Block]:
    """Show what a member does."""
    yield from example_blocks(found.prompted, found.examples)


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
    shown = {"loss": "{:.3f}".format, "perplexity": number, "accuracy": "{:.1%}".format}
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


def what_was_run(findings: Sequence[Findings], seconds: float, cpu_seconds: float) -> Iterable[Block]:
    """Say on what, with what and how fast."""
    yield Heading("Run")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("tercet", "torch", "transformers"))
    device = (
        torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    )
    yield Prose(
        f"{libraries}, Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores; trained on {device}. {seconds / 60:.1f} minutes in total, including "
        f"tokenizers, evaluations and examples, and {cpu_seconds / 60:.1f} minutes of processor time. Each "
        "model was loaded from its folder with its Auto class before the evaluation. The text depends on "
        "the installed packages, so figures of different machines cannot be compared."
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


def what_was_learned(result: TaskResult) -> Table:
    """Say how the encoder was fine-tuned, and how long both runs took."""
    row = [
        NAMES["encoder"],
        f"{result.num_rows:,}",
        f"{result.recipe.training.epochs:g}",
        f"{result.recipe.training.learning_rate:g}",
        f"{result.seconds:,.0f} s",
    ]
    return Table(["fine-tuned", "rows", "epochs", "learning rate", "both runs"], [row])
