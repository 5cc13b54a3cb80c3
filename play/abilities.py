"""All abilities, in the order in which they are offered, and those of a model."""

from .ability import Ability
from .continuation import Continue, ContinueForwards
from .inspection import ShowAttention, ShowTokens
from .labels import Answer, Choose, Classify, Tag
from .language import FillGaps
from .loaded_model import LoadedModel
from .rewriting import Restore, Translate, Write
from .similarity import FindSimilar

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
    ShowAttention,
)
"""What a model is for comes first, how it reads a text last."""


def abilities_of(model: LoadedModel) -> dict[str, Ability]:
    """Give a model's abilities by their names.

    >>> [ability.name for ability in ABILITIES][:3]
    ['classify', 'tag', 'answer']
    """
    return {ability.name: ability(model) for ability in ABILITIES if ability.applies(model)}
