"""What a study is: a claim of the literature, what it predicts, how it is measured, and who said so.

A study's words and bounds stand in a YAML file of its subject, and its method is the function of the same
name in the module beside it: `scaled-scores` of `attention.yaml` is measured by `attention.scaled_scores`.
The bounds were written before the first run and stay: what did not come out as predicted is shown with its
numbers.

A claim says that each measured value lies between two bounds. The verdict follows from the interval of a
value over seeds (`verdicts.py`). A switch breaks what the claim is about, so that the verdict must change:
the claim's, or a value's where another value refutes the claim anyway.
"""

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.resources import files

import yaml

SUBJECTS = ("attention", "positions", "blocks", "masks", "training", "networks", "sizes", "interpretation")
"""Modules with studies, in the order of the book."""

Axes = tuple[str, str]
"""What a panel of a picture shows, and the label of its x axis."""

Curve = Sequence[tuple[float, float]]
"""Pairs of x and y."""


@dataclass(frozen=True)
class Measured:
    """What one run of a method finds.

    Args:
        values: By the names in the study's `expected`; what else is measured is shown, and judged by nothing.
        curves: The picture's panels, and in each the curves by their names.
    """

    values: Mapping[str, float]
    curves: Mapping[Axes, Mapping[str, Curve]] = field(default_factory=dict)


Method = Callable[..., Measured]
"""Measures with a seed, and maybe with what breaks the claim: `method(seed, broken="")`."""


@dataclass(frozen=True)
class Bounds:
    """Where a value lies if the claim is right: from `low` to `high`; an end may be open."""

    low: float
    high: float

    def __str__(self) -> str:
        """Write the bounds.

        >>> str(Bounds(0.5, math.inf)), str(Bounds(-math.inf, 2)), str(Bounds(0, 1)), str(Bounds(4, 4))
        ('at least 0.5', 'at most 2', '0 to 1', '4')
        >>> str(Bounds(2.0999999, 2.1000001))
        '2.0999999 to 2.1000001'
        """
        if self.low == self.high:
            return f"{self.low:g}"
        if self.high == math.inf:
            return f"at least {self.low:g}"
        if self.low == -math.inf:
            return f"at most {self.high:g}"
        digits = 6 if f"{self.low:g}" != f"{self.high:g}" else 12
        return f"{self.low:.{digits}g} to {self.high:.{digits}g}"


@dataclass(frozen=True)
class Study:
    """A claim and its test."""

    name: str
    """Of its function and its page."""
    subject: str
    """One of `SUBJECTS`, in whose module the method is."""
    title: str
    """Of the page."""
    items: Sequence[str]
    """Numbers of the claims in the register, docs/studies/register.md."""
    claim: str
    """As the literature has it, right or wrong."""
    source: str
    """Who made the claim, and where."""
    predicted: str
    """The verdict that was expected before the first run."""
    because: str
    """Why."""
    expected: Mapping[str, Bounds]
    """Name of a value -> where it lies if the claim is right."""
    lesson: str
    """What the numbers teach, in words that hold whatever the verdict is."""
    switches: Mapping[str, str]
    """Name of what breaks the claim -> what it does."""
    picture: str
    """What the picture shows, for those who do not see it."""
    seeds: int = 3
    """How many runs each value is the mean of."""
    minutes: int = 1
    """Of two cores, at most."""

    @property
    def method(self) -> Method:
        """The function that measures."""
        module = import_module(f".{self.subject}", __package__)
        return getattr(module, self.name.replace("-", "_"))

    @property
    def about_method(self) -> str:
        """What the function does, from its docstring, in one line; the module is read, and not imported."""
        module = ast.parse(files(str(__package__)).joinpath(f"{self.subject}.py").read_text(encoding="utf-8"))
        named = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
        return " ".join((ast.get_docstring(named[self.name.replace("-", "_")]) or "").split())


@cache
def studies_of(subject: str) -> tuple[Study, ...]:
    """Read the studies of a subject."""
    text = files(str(__package__)).joinpath(f"{subject}.yaml").read_text(encoding="utf-8")
    return tuple(study_from(subject, name, entry) for name, entry in yaml.safe_load(text).items())


def study_from(subject: str, name: str, entry: Mapping) -> Study:
    """Make a study of its entry in a file."""
    expected = {
        value: Bounds(
            *(end if each is None else each for each, end in zip(pair, (-math.inf, math.inf), strict=True))
        )
        for value, pair in entry["expected"].items()
    }
    return Study(name=name, subject=subject, **{**entry, "expected": expected})


def all_studies() -> dict[str, Study]:
    """Read all studies, by their names."""
    return {study.name: study for subject in SUBJECTS for study in studies_of(subject)}


def find_study(name: str) -> Study:
    """Find a study.

    Raises:
        ValueError: There is none of this name.
    """
    known = all_studies()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}?" if near else "`tercet study` lists them"
        raise ValueError(f"unknown study {name!r}; {meant}")
    return known[name]


def require_switch(study: Study, broken: str) -> None:
    """Raise a `ValueError` unless a study can be broken in this way, or is not to be broken."""
    if broken and broken not in study.switches:
        raise ValueError(f"{study.name} has no switch {broken!r}; choose one of: {', '.join(study.switches)}")
