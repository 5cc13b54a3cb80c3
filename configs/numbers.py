"""The bounds of numbers in recipes, of every kind of run."""

from typing import Annotated

from pydantic import Field

Positive = Annotated[int, Field(gt=0)]
"""An integer of at least 1."""

Fraction = Annotated[float, Field(ge=0, le=1)]
"""A number between 0 and 1."""

NonNegative = Annotated[float, Field(ge=0)]
"""A number of at least 0."""
