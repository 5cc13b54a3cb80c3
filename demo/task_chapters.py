"""How the report tells what the models learned of their tasks, whatever came out."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..metrics.labels import count_confusions
from ..reporting.blocks import Block, Example, Examples, Figure, Heading, Line, Prose, Run, Table, percent
from ..reporting.charts import draw_confusions
from ..training.run_folder import PAGE
from . import published
from .continuing import CONTINUING, UNNORMALIZED, Continuations
from .finetuning import FINETUNED, FROM_SCRATCH, MEMBER, PRETRAINED, RANDOM_WEIGHTS, TaskResult
from .gaps import Gaps
from .measured import Measured
from .prompts import PARAGRAPHS
from .sample_blocks import MADE_UP
from .samples import NUM_GUESSES, evenly_spaced
from .tasks import READ_WORDS, STAND_IN
from .telegrams import COUNTING as COUNTING_GAPS
from .telegrams import TRAINED, Telegrams

CONFUSIONS = "confusions.png"
NUM_SHOWN = 6
"""Rows of each task."""

SPACED = "Then held-out rows, evenly spaced, not selected by outcome:"


def scores_table(columns: Mapping[str, Mapping[str, Measured]]) -> Table:
    """Put scores beside one another: a column for each metric, a row for each that answered."""
    names = list(next(iter(columns.values())))
    rows = [[name, *(own[name].in_percent for own in columns.values())] for name in names]
    return Table(["in % (95 % interval)", *columns], rows, strong=0)


def gaps_chapter(gaps: Gaps) -> Iterator[Block]:
    """Yield how often a hidden word was found."""
    yield scores_table({"first guess": gaps.first, f"among {NUM_GUESSES}": gaps.among})
    yield Prose(
        "The words are those nearest the middle of held-out sentences that are one token of five letters "
        "or more, and only such words are guessed. Counting neighbours takes the words that were most "
        "often seen between the same two words."
    )


def packages_chapter(result: TaskResult, folder: Path) -> Iterator[Block]:
    """Yield how well the encoder places paragraphs; the chart goes into `folder`."""
    packages = sorted(set(result.rows["label"][:]))
    yield Heading("Placing a paragraph in its package")
    yield Prose(
        f"The encoder is fine-tuned to classify paragraphs: which of {len(packages)} packages does a "
        f"paragraph document ({', '.join(packages)})? There are {result.num_rows:,} training paragraphs, "
        f"about as many of each package. Names of packages are replaced by the word `{STAND_IN}`. The "
        f"{len(result.rows):,} test paragraphs are from modules that no model was trained on. "
        f"{RANDOM_WEIGHTS.capitalize()} is the same architecture without pretraining, fine-tuned on the "
        "same rows by the same recipe."
    )
    yield scores_table({"accuracy": result.answers})
    low, high = (100 * end for end in published.INTERVAL)
    yield Prose(
        f"For comparison, the published all-MiniLM-L6-v2 ({published.PARAMETERS / 1e6:.0f} million "
        "parameters, trained on more than a billion pairs of sentences), fine-tuned likewise, had "
        f"{100 * published.SCORE:.1f} ({low:.1f} to {high:.1f}) on the rows of the pinned packages: it is "
        "no part of this run, and `docs/results.md` has the command."
    )
    yield Prose(f"What happened on the way: {links()}. What the {MEMBER} took for what:")
    yield confusions(result, folder)
    yield Prose(MADE_UP)
    yield Examples(
        [made_up(*each) for each in zip(PARAGRAPHS, result.prompted, strict=True)], are_narrow=True
    )
    yield Prose(SPACED)
    yield Examples(package_examples(result), are_narrow=True)


def links() -> str:
    """Lead to the runs' own reports, which tell more."""
    runs = {PRETRAINED: MEMBER, RANDOM_WEIGHTS: f"{MEMBER}-{FROM_SCRATCH}"}
    return ", ".join(f"[{MEMBER}, {name}]({FINETUNED}/{run}/{PAGE})" for name, run in runs.items())


def confusions(result: TaskResult, folder: Path) -> Figure:
    """Draw what the pretrained model took for what."""
    names, right = np.unique(result.rows["label"][:], return_inverse=True)
    said = [prediction["label"] for prediction in result.answers[PRETRAINED].predictions]
    counts = count_confusions(np.searchsorted(names, said), right, len(names))
    drawing = draw_confusions(names.tolist(), counts, folder / CONFUSIONS)
    return Figure(CONFUSIONS, drawing, "Confusion matrix of packages")


def made_up(text: str, prediction: Mapping) -> Example:
    """Show a paragraph that has no right answer."""
    answer = f"{prediction['label']} ({percent(prediction['score'])})"
    return Example([Line("paragraph", [Run(text)]), Line(MEMBER, [Run(answer)])])


def package_examples(result: TaskResult) -> list[Example]:
    """Show paragraphs, and what the pretrained model says."""
    answers = result.answers[PRETRAINED]

    def shown(number: int) -> Example:
        row, said = result.rows[number], answers.predictions[number]
        role = "right" if answers.scores[number] else "wrong"
        return Example(
            [
                Line("paragraph", [Run(row["text"])]),
                Line("right", [Run(row["label"], "truth")]),
                Line(MEMBER, [Run(f"{said['label']} ({percent(said['score'])})", role)]),
            ]
        )

    return [shown(number) for number in evenly_spaced(range(len(result.rows)), NUM_SHOWN)]


def continuations_chapter(continued: Continuations) -> Iterator[Block]:
    """Yield how often the decoder found what continues a paragraph."""
    yield Heading("Finding what comes next")
    yield Prose(
        f"{len(continued.rows):,} held-out paragraphs are cut in the middle. Which of four texts goes on "
        f"from the last {READ_WORDS} words before the cut? The other three are from paragraphs of the same "
        "package. The pretrained decoder chooses the text b with the highest log p(b | a) - log p(b), "
        "where a is what stands before the cut: how much likelier a makes b (Brown et al., 2020, section "
        "2.4). It has not been trained for that. The trigram model has read the same text and chooses "
        "likewise; shared words is the share of a text's words that stand before the cut, rare words "
        "counting more."
    )
    yield scores_table({"accuracy": {**continued.answers, UNNORMALIZED: continued.unnormalized}})
    yield Prose(f"More in [its report]({CONTINUING}/{PAGE}).")
    yield Prose("Held-out paragraphs, evenly spaced, not selected by outcome:")
    yield Examples(continuation_examples(continued))


def continuation_examples(continued: Continuations) -> list[Example]:
    """Show first halves, how they go on, and what the decoder chose."""

    def shown(number: int) -> Example:
        row, choice = continued.rows[number], continued.choices[number]
        is_right = choice == row["target"]
        lines = [
            Line("begins", [Run(row["text"])]),
            Line("goes on", [Run(row["choices"][row["target"]], "truth")]),
        ]
        chosen = "the same" if is_right else row["choices"][choice]
        return Example([*lines, Line("decoder", [Run(chosen, "right" if is_right else "wrong")])])

    return [shown(number) for number in evenly_spaced(range(len(continued.rows)), NUM_SHOWN)]


def telegrams_chapter(telegrams: Telegrams) -> Iterator[Block]:
    """Yield how well the sequence-to-sequence model writes telegrams out."""
    yield Prose(
        f"It learns to write out telegrams, from {telegrams.num_rows:,} sentences of the training modules "
        f"without their small words, capitals and punctuation. The {len(telegrams.rows):,} test sentences "
        "are from modules that it has not read. ROUGE-L is the share of words that a written sentence and "
        "the original have in common, in the same order (Lin, 2004). Counting neighbours fills every place "
        "between two words with what most probably stood between them in the training sentences."
    )
    yield scores_table({"restored to the letter": telegrams.exact, "ROUGE-L": telegrams.restored})
    yield Prose(MADE_UP)
    yield Examples(
        [
            Example([Line("telegram", [Run(telegram)]), Line("written", [Run(written)])])
            for telegram, written in telegrams.prompted
        ],
        are_narrow=True,
    )
    yield Prose(SPACED)
    yield Examples(telegram_examples(telegrams))


def telegram_examples(telegrams: Telegrams) -> list[Example]:
    """Show telegrams, their sentences, and what was written."""

    def shown(number: int) -> Example:
        row = telegrams.rows[number]
        said = {name: telegrams.written[name][number] for name in (TRAINED, COUNTING_GAPS)}
        return Example(
            [
                Line("telegram", [Run(row["telegram"])]),
                Line("sentence", [Run(row["sentence"], "truth")]),
                *(
                    Line(name, [Run(text, "right" if text == row["sentence"] else "plain")])
                    for name, text in said.items()
                ),
            ]
        )

    return [shown(number) for number in evenly_spaced(range(len(telegrams.rows)), NUM_SHOWN)]
