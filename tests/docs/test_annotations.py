"""Annotations in words."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from docs.site.recipe_pages import describe, is_list, members

Rate = Annotated[float, Field(gt=0, lt=1)]


@dataclass
class Part:
    size: int


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "integer"),
        (Annotated[int, Field(ge=8, le=2**22)], "integer, at least 8, at most 4,194,304"),
        (Rate | None, "number, above 0, below 1 or `null`"),
        (Literal["a", "b", "c"], "`a`, `b` or `c`"),
        (tuple[Annotated[float, Field(ge=0)], ...], "list of numbers (each at least 0)"),
        (tuple[float, float], "list of 2: number, number"),
        (str | list[str], "text or list of texts"),
        (dict[str, object], "keys with values"),
    ],
)
def test_annotations_are_said_in_words(annotation, words):
    assert describe(annotation) == words


def test_annotation_without_words_is_refused():
    with pytest.raises(ValueError, match="no words for the annotation"):
        describe(complex)


@pytest.mark.parametrize(
    "annotation", [Part, Part | None, tuple[Part, ...], Annotated[Part | None, Field(discriminator="kind")]]
)
def test_dataclasses_are_found_wherever_they_are_named(annotation):
    assert members(annotation) == [Part]


def test_only_lists_are_lists():
    assert is_list(tuple[Part, ...] | None)
    assert not is_list(Part | None)
