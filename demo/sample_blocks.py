"""How the report shows what the models did, and says how that was chosen."""

from collections.abc import Iterable, Sequence
from functools import singledispatch

from ..reporting.blocks import Bar, Block, Example, Examples, Line, Prose, Run, percent
from .samples import Continuation, FilledMask, JudgedPair, RestoredSpans, Sample

CHOSEN: dict[type, str] = {
    FilledMask: "Sentences evenly spaced over the held-out documents, not selected by outcome. The masked "
    "word is the one nearest the middle that is a single token of five letters or more; the model also "
    "reads the next sentence.",
    JudgedPair: "Passages from the middle of held-out documents, each followed by its true continuation and "
    "by a passage of another document. The model predicts the probability that the second follows the first.",
    Continuation: "The first words of held-out paragraphs, evenly spaced. Greedy decoding soon repeats "
    "itself, as is usual for small models; sampling is top-p with p = 0.9.",
    RestoredSpans: "Held-out paragraphs, evenly spaced, with spans masked at random as in training. Correct "
    "means equal, letter by letter.",
}
"""How what is shown was chosen."""

WORDS_SHOWN = 22
"""Words of each passage that are shown where two meet."""


def example_blocks(shown: Sequence[Sample]) -> Iterable[Block]:
    """Lay out what a member did, each kind after the rule by which it was chosen."""
    for kind in dict.fromkeys(map(type, shown)):
        yield Prose(CHOSEN[kind])
        examples = [as_example(example) for example in shown if type(example) is kind]
        yield Examples(examples, are_narrow=kind in (FilledMask, JudgedPair))


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
def _(shown: JudgedPair) -> Example:
    first, second = shown.first.split()[-WORDS_SHOWN:], shown.second.split()[:WORDS_SHOWN]
    role = "right" if (shown.probability > 0.5) == shown.follows else "wrong"
    says = f"{percent(shown.probability)} that it follows"
    return Example(
        [
            Line("first", [Run(f"… {' '.join(first)}")]),
            Line("true next" if shown.follows else "elsewhere", [Run(f"{' '.join(second)} …")]),
            Line("model", [Run(says, role)]),
        ]
    )


@as_example.register
def _(shown: Continuation) -> Example:
    return Example(
        [
            Line("prompt", [Run(shown.prompt)]),
            Line("original", [Run(f"… {shown.truth.strip()}")]),
            Line("greedy", [Run(f"… {shown.greedy.strip()}")]),
            Line("sampled", [Run(f"… {shown.sampled.strip()}")]),
        ]
    )


@as_example.register
def _(shown: RestoredSpans) -> Example:
    original, given, restored = [], [], []
    for truth, guess in shown.pieces:
        if guess is None:
            for runs in (original, given, restored):
                runs.append(Run(truth))
        else:
            original.append(Run(truth, "truth"))
            given.append(Run(" ··· ", "blank"))
            restored.append(Run(guess or " ∅ ", "right" if guess.strip() == truth.strip() else "wrong"))
    return Example([Line("original", original), Line("given", given), Line("restored", restored)])
