"""Three cards that say at a glance what the models can do, each beside what it must beat."""

from collections.abc import Mapping

from ..reporting.blocks import Bar, Card, percent
from . import published
from .continuing import Continuations
from .finetuning import PRETRAINED, TaskResult
from .gaps import Gaps
from .measured import Measured
from .samples import NUM_GUESSES
from .tasks import CHOICES


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
