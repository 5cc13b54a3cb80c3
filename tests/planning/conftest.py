"""Plans are made of recipes for pretraining."""

from ..pretraining.conftest import recipe_of  # noqa: F401
