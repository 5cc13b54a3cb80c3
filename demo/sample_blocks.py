"""How the report shows what the models did, and says how that was chosen."""

from collections.abc import Iterable, Sequence
from functools import singledispatch

from ..reporting.blocks import Bar, Block, Example, Examples, Line, Prose, Run, percent
from .samples import Continuation, FilledMask, Sample

CHOSEN: dict[type, str] = {
    FilledMask: "Sentences evenly spaced over the held-out documents, not selected by outcome. The masked "
    "word is the one nearest the middle that is a single token of five letters or more; the model also "
    "reads the next sentence.",
    Continuation: "The first words of held-out paragraphs, evenly spaced, not selected by outcome. Greedy "
    "decoding soon repeats itself, as is usual for small models; sampling is top-p with p = 0.9.",
}
"""How what is shown was chosen."""

MADE_UP = "First some texts that are the same in every demo, written before any model saw them:"


def example_blocks(prompted: Sequence[Sample], shown: Sequence[Sample]) -> Iterable[Block]:
    """Lay out what a member did: with made-up texts first, then with held-out ones after their rule."""
    for rule, samples in ((MADE_UP, prompted), (CHOSEN[type(shown[0])], shown)):
        yield Prose(rule)
        yield Examples([as_example(each) for each in samples], are_narrow=type(samples[0]) is FilledMask)


@singledispatch
def as_example(shown: Sample) -> Example:
    """Lay out what a model did."""
    raise AssertionError(shown)


@as_example.register
def _(shown: FilledMask) -> Example:
    runs = [Run(shown.before), Run(shown.truth, "truth"), Run(shown.after)]
    bars = [
        Bar(word, probability, percent(probability), word == shown.truth_as_token)
        for word, probability in shown.guesses
    ]
    return Example([Line("sentence", runs)], bars)


@as_example.register
def _(shown: Continuation) -> Example:
    lines = [Line("prompt", [Run(shown.prompt)])]
    if shown.truth:
        lines.append(Line("original", [Run(f"… {shown.truth.strip()}")]))
    lines.append(Line("greedy", [Run(f"… {shown.greedy.strip()}")]))
    lines.append(Line("sampled", [Run(f"… {shown.sampled.strip()}")]))
    return Example(lines)
