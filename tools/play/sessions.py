"""Models side by side: all abilities, those that they have in common, and all answers to a question."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...configs.messages import first_line
from ...reports.blocks import Result
from .ability import Ability, Field, TextField
from .continuation import Continue, ContinueForwards
from .labels import Answer, Choose, Classify, Tag
from .language import FillGaps
from .loaded_model import LoadedModel, load_model
from .rewriting import Restore, Translate, Write
from .similarity import FindSimilar
from .tokens import ShowTokens

ABILITIES: tuple[type[Ability], ...] = (
    Classify,
    Tag,
    Answer,
    Choose,
    FillGaps,
    Continue,
    ContinueForwards,
    Translate,
    Restore,
    Write,
    FindSimilar,
    ShowTokens,
)
"""What a model is for comes first, how it reads a text last."""


def abilities_of(model: LoadedModel) -> dict[str, Ability]:
    """Return a model's abilities by their names.

    >>> [ability.name for ability in ABILITIES][:3]
    ['classify', 'tag', 'answer']
    """
    return {ability.name: ability(model) for ability in ABILITIES if ability.applies(model)}


class Session:
    """One model or several, and what they can do.

    Args:
        models: In the order in which they are shown.
    """

    def __init__(self, models: Sequence[LoadedModel]):
        assert models
        self.models = models
        self._of_model = [abilities_of(model) for model in models]

    @property
    def abilities(self) -> dict[str, Ability]:
        """Return each ability by name, as the first model has it that has it at all."""
        names = [kind.name for kind in ABILITIES]
        found: dict[str, Ability] = {}
        for own in reversed(self._of_model):
            found |= own
        return {name: found[name] for name in names if name in found}

    def fields(self, name: str) -> list[Field]:
        """List the fields of an ability; a model that reads another number of texts says so in its answer."""
        return [*self.abilities[name].fields]

    def able(self, name: str) -> list[LoadedModel]:
        return [model for model, own in zip(self.models, self._of_model, strict=True) if name in own]

    def answers(
        self, name: str, texts: Sequence[str], numbers: Mapping[str, Any]
    ) -> Iterator[tuple[LoadedModel, list[Result] | str]]:
        """Let each model that has an ability answer; a question that it cannot answer gives a message."""
        for model, own in zip(self.models, self._of_model, strict=True):
            if name in own and self._fits(own[name]):
                yield model, answer_or_message(own[name], texts, numbers)
            elif name in own:
                labels = [field.label for field in own[name].fields if isinstance(field, TextField)]
                yield model, f"{model.title} reads {' and '.join(labels)}: play with it by itself."

    def _fits(self, ability: Ability) -> bool:
        return len(ability.fields) == len(self.abilities[ability.name].fields)


def answer_or_message(
    ability: Ability, texts: Sequence[str], numbers: Mapping[str, Any]
) -> list[Result] | str:
    """Answer, or say in one sentence why that is impossible."""
    try:
        return ability.answer(texts, numbers)
    except ValueError as error:
        message = " ".join(str(error).split())
        return message[:1].upper() + message[1:]
    except Exception as error:  # whatever a foreign model raises
        return f"{ability.model.title} failed ({type(error).__name__}: {first_line(error)})."


def open_session(names: Sequence[str]) -> Session:
    """Load models and find out what they can do."""
    if len(set(names)) < len(names):
        raise ValueError(f"{' '.join(names)} names a model twice: name different ones to compare them")
    models = [load_model(name) for name in names]
    if len({model.title for model in models}) < len(models):
        for model in models:
            model.title = model.name
    return Session(models)
