"""What the scores of the demonstration show beside what each must beat, a sentence each."""

from collections.abc import Iterator

from ..reporting.verdicts import Verdict, outcome_of_difference
from .baselines import BAG_OF_WORDS
from .continuing import TRIGRAM, Continuations
from .distilling import DistillationResult
from .finetuning import PRETRAINED, RANDOM_WEIGHTS, TaskResult
from .gaps import COUNTING, Gaps
from .measured import Measured
from .telegrams import COUNTING as COUNTING_GAPS
from .telegrams import Telegrams

WORDS = {"better": "better than", "worse": "worse than", "unclear": "not measurably better than"}

TEACHER = {
    "better": "The teacher helped: its student is better than the same student without a teacher",
    "worse": "The teacher did harm: its student is worse than the same student without a teacher",
    "unclear": "The teacher brought nothing measurable over the same student without one",
}
"""What the lead of the student over the one without a teacher means."""


def verdicts(
    gaps: Gaps,
    placed: TaskResult,
    distilled: DistillationResult,
    continued: Continuations,
    telegrams: Telegrams,
) -> Iterator[Verdict]:
    """Compare each model with what stands beside it in the tables."""
    filled, answers, found = gaps.among, placed.answers, continued.answers
    pretrained, decoder = answers[PRETRAINED], next(iter(found.values()))
    encoder = next(iter(filled.values()))
    yield compare("At filling gaps, the encoder is", encoder, filled[COUNTING], COUNTING)
    places = "At placing paragraphs, the pretrained encoder is"
    yield compare(places, pretrained, answers[RANDOM_WEIGHTS], "the same encoder without pretraining")
    yield compare(places, pretrained, answers[BAG_OF_WORDS], "a bag of words")
    yield about_teacher(distilled)
    yield compare("At finding what comes next, the decoder is", decoder, found[TRIGRAM], "a trigram model")
    writer, counting = next(iter(telegrams.exact.values())), telegrams.exact[COUNTING_GAPS]
    subject = "At writing telegrams out to the letter, the sequence-to-sequence model is"
    yield compare(subject, writer, counting, COUNTING_GAPS)


def compare(subject: str, own: Measured, other: Measured, name: str) -> Verdict:
    """Judge the lead of one over another, row by row."""
    lead = own.lead_over(other)
    outcome = outcome_of_difference(lead)
    scores = f"{100 * own.score:.1f} % against {100 * other.score:.1f} %"
    return Verdict(f"{subject} {WORDS[outcome]} {name} ({scores}; {in_points(lead)}).", outcome)


def about_teacher(distilled: DistillationResult) -> Verdict:
    """Judge what the teacher brought over the labels alone."""
    outcome = outcome_of_difference(distilled.gain)
    return Verdict(f"{TEACHER[outcome]} ({in_points(distilled.gain)}).", outcome)


def in_points(lead: tuple[float, float]) -> str:
    """Write the interval of a difference.

    >>> in_points((-0.017, 0.031))
    'difference from -1.7 to +3.1 points'
    """
    low, high = (100 * end for end in lead)
    return f"difference from {low:+.1f} to {high:+.1f} points"
