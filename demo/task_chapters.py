"""How the report tells what the models learned of their tasks, whatever came out."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..metrics.labels import count_confusions
from ..reporting.blocks import (
    Bar,
    Block,
    Card,
    Cards,
    Example,
    Examples,
    Figure,
    Heading,
    Line,
    Prose,
    Run,
    Table,
    percent,
)
from ..reporting.charts import draw_confusions
from ..training.run_folder import PAGE
from .baselines import BAG_OF_WORDS, FIRST_SENTENCE, TASK_BASELINES
from .finetuning import FINETUNED, FROM_SCRATCH, PRETRAINED, RANDOM_WEIGHTS, ScoredPredictions, TaskResult
from .samples import evenly_spaced
from .tasks import STAND_IN

CONFUSIONS = "confusions.png"
NUM_PARAGRAPHS = 6
NUM_SUMMARIES = 6


def task_chapters(results: Sequence[TaskResult], folder: Path) -> Iterator[Block]:
    """Tell of both tasks; the chart goes into `folder`."""
    labelled = [result for result in results if result.task == "packages"]
    written = [result for result in results if result.task == "summaries"]
    yield Heading("Learning a task")
    yield from comparison(labelled, about_packages(labelled[0]))
    yield Prose(f"What the {labelled[0].member} took for what:")
    yield confusions(labelled[0], folder)
    yield Prose(
        "Test paragraphs, evenly spaced, not selected by outcome; the model's probability is in brackets."
    )
    yield Examples(package_examples(labelled), are_narrow=True)
    yield Heading("Generating a first line")
    yield from comparison(written, about_summaries(written[0]))
    yield Prose("Test docstrings, evenly spaced, not selected by outcome.")
    yield Examples(summary_examples(written[0]))


def about_packages(result: TaskResult) -> str:
    """Say what the first task is."""
    packages = sorted(set(result.rows["label"][:]))
    return (
        f"The encoder and the decoder are fine-tuned to classify paragraphs: which of {len(packages)} "
        f"packages does a paragraph document ({', '.join(packages)})? There are "
        f"{result.num_rows:,} training paragraphs, about as many of each package. Names of packages are "
        f"replaced by the word `{STAND_IN}`. The {len(result.rows):,} test paragraphs are from modules that "
        "no model was trained on."
    )


def about_summaries(result: TaskResult) -> str:
    """Say what the second task is."""
    return (
        "The sequence-to-sequence model learns to write the first line of a docstring from the paragraphs "
        f"below it, from {result.num_rows:,} docstrings. The {len(result.rows):,} test docstrings are from "
        f"modules that it was not trained on. ROUGE-L is the share of words that a generated line and the "
        f"reference have in common, in the same order (Lin, 2004); whoever repeats the text's first "
        f"sentence gets "
        f"what is called {FIRST_SENTENCE} here."
    )


def comparison(results: Sequence[TaskResult], about: str) -> Iterator[Block]:
    """Put the scores of a task beside one another, and say what they show."""
    metric = TASK_BASELINES[results[0].task].metric
    yield Prose(about)
    yield Prose(
        f"{RANDOM_WEIGHTS.capitalize()} is the same architecture without pretraining, fine-tuned on the same "
        "rows by the same recipe."
    )
    yield Cards([glance(result, metric) for result in results])
    names = list(results[0].answers)
    rows = [[name, *(score_and_interval(result.answers[name]) for result in results)] for name in names]
    yield Table([f"{metric} in % (95 % interval)", *(result.member for result in results)], rows, strong=0)
    yield Prose(" ".join(verdict(result) for result in results) + f" {DOUBT}")
    yield Prose(f"What happened on the way: {', '.join(map(links, results))}.")


DOUBT = (
    "Points are percentage points, and ranges are 95 % intervals of the difference on the same test rows. "
    "They cover other rows, but not other seeds: each run is done once."
)


def glance(result: TaskResult, metric: str) -> Card:
    """Show the scores as bars."""
    bars = [
        Bar(name, answers.score, percent(answers.score), name == PRETRAINED)
        for name, answers in result.answers.items()
    ]
    about = f"{metric} on the test rows, after {result.recipe.training.epochs:g} epochs."
    return Card(f"{result.member.capitalize()}, fine-tuned", bars[0].shown, about, bars)


def score_and_interval(answers: ScoredPredictions) -> str:
    """Write a score with its doubt."""
    low, high = answers.interval
    return f"{100 * answers.score:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def verdict(result: TaskResult) -> str:
    """Say what pretraining was good for, and whether a Transformer was."""
    _, control, *others = result.answers
    pretrained, rival = result.answers[PRETRAINED], result.answers[others[0]]
    text = (
        f"The pretrained {result.member} is {difference(pretrained, result.answers[control])} the one with "
        f"{control}, and {difference(pretrained, rival)} {others[0]}."
    )
    if others[0] == BAG_OF_WORDS and pretrained.score < rival.score:
        text += (
            " The words of a paragraph reveal much about its package, and counting them takes no Transformer."
        )
    return text


def difference(one: ScoredPredictions, other: ScoredPredictions) -> str:
    """Say how much better some answers are than others, or worse, or that it cannot be told."""
    low, high = (100 * end for end in one.lead_over(other))
    if low > 0:
        return f"{low:.1f} to {high:.1f} points better than"
    if high < 0:
        return f"{-high:.1f} to {-low:.1f} points worse than"
    return f"not significantly different (from {-low:.1f} points worse to {high:.1f} better) from"


def links(result: TaskResult) -> str:
    """Lead to the runs' own reports, which tell more."""
    runs = {PRETRAINED: result.member, RANDOM_WEIGHTS: f"{result.member}-{FROM_SCRATCH}"}
    return ", ".join(f"[{result.member}, {name}]({FINETUNED}/{run}/{PAGE})" for name, run in runs.items())


def confusions(result: TaskResult, folder: Path) -> Figure:
    """Draw what the pretrained model took for what."""
    names, right = np.unique(result.rows["label"][:], return_inverse=True)
    said = [prediction["label"] for prediction in result.answers[PRETRAINED].predictions]
    counts = count_confusions(np.searchsorted(names, said), right, len(names))
    drawing = draw_confusions(names.tolist(), counts, folder / CONFUSIONS)
    return Figure(CONFUSIONS, drawing, "Confusion matrix of packages")


def package_examples(results: Sequence[TaskResult]) -> list[Example]:
    """Show paragraphs, and what the pretrained models say."""
    rows = results[0].rows

    def shown(number: int) -> Example:
        lines = [
            Line("paragraph", [Run(rows[number]["text"])]),
            Line("right", [Run(rows[number]["label"], "truth")]),
        ]
        for result in results:
            answers = result.answers[PRETRAINED]
            said, role = answers.predictions[number], "right" if answers.scores[number] else "wrong"
            lines.append(Line(result.member, [Run(f"{said['label']} ({percent(said['score'])})", role)]))
        return Example(lines)

    return [shown(number) for number in evenly_spaced(range(len(rows)), NUM_PARAGRAPHS)]


def summary_examples(result: TaskResult) -> list[Example]:
    """Show texts, their first line, and what the models wrote."""

    def shown(number: int) -> Example:
        row = result.rows[number]
        return Example(
            [
                Line("text", [Run(row["document"])]),
                Line("first line", [Run(row["summary"], "truth")]),
                *(
                    Line(name, [Run(result.answers[name].predictions[number]["text"])])
                    for name in (PRETRAINED, RANDOM_WEIGHTS)
                ),
            ]
        )

    return [shown(number) for number in evenly_spaced(range(len(result.rows)), NUM_SUMMARIES)]
