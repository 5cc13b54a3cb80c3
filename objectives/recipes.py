"""All objectives that a recipe may name by `kind`.

kind                                               member      reads
masked_language_modeling                           encoder     running text
masked_language_modeling_with_next_sentence        encoder     pairs of sentence runs (documents with several)
causal_language_modeling                           decoder     running text
translation                                        seq2seq     pairs of texts
span_corruption                                    seq2seq     running text
denoising                                          seq2seq     running text
"""

from typing import Annotated

from pydantic import Field

from .causal_language_modeling import CausalLanguageModelingRecipe
from .denoising import DenoisingRecipe
from .masked_language_modeling import MaskedLanguageModelingRecipe
from .next_sentence import NextSentenceRecipe
from .span_corruption import SpanCorruptionRecipe
from .translation import TranslationRecipe

ObjectiveRecipe = Annotated[
    MaskedLanguageModelingRecipe
    | NextSentenceRecipe
    | CausalLanguageModelingRecipe
    | TranslationRecipe
    | SpanCorruptionRecipe
    | DenoisingRecipe,
    Field(discriminator="kind"),
]
"""Any of them; `kind` says which."""
