"""All objectives that a recipe may name by `kind`.

kind                                               member      reads
masked_language_modeling                           encoder     running text
masked_language_modeling_with_next_sentence        encoder     pairs of sentence runs (documents with several)
replaced_token_detection                           encoder     running text
masked_language_modeling_with_sentence_order       encoder     pairs of sentence runs (documents with several)
sentence_denoising                                 encoder     sentences
causal_language_modeling                           decoder     running text
bidirectional_language_modeling                    elmo        running text
masked_next_token_prediction                       decoder     running text
hybrid_language_modeling                           decoder     running text
fill_in_the_middle                                 decoder     running text
character_language_modeling                        character   running text
translation                                        seq2seq     pairs of texts
span_corruption                                    seq2seq     running text
prefix_language_modeling                           seq2seq     running text
mixture_of_denoisers                               seq2seq     running text
denoising                                          seq2seq     running text
"""

from typing import Annotated

from pydantic import Field

from .bidirectional_language_modeling import BidirectionalLanguageModelingRecipe
from .causal_language_modeling import CausalLanguageModelingRecipe
from .character_language_modeling import CharacterLanguageModelingRecipe
from .denoising import DenoisingRecipe
from .fill_in_the_middle import FillInTheMiddleRecipe
from .hybrid_language_modeling import HybridLanguageModelingRecipe
from .masked_language_modeling import MaskedLanguageModelingRecipe
from .masked_next_token import MaskedNextTokenRecipe
from .masked_pairs import NextSentenceRecipe, SentenceOrderRecipe
from .mixture_of_denoisers import MixtureOfDenoisersRecipe
from .prefix_language_modeling import PrefixLanguageModelingRecipe
from .replaced_tokens import ReplacedTokenDetectionRecipe
from .sentence_denoising import SentenceDenoisingRecipe
from .span_corruption import SpanCorruptionRecipe
from .translation import TranslationRecipe

SingleObjectiveRecipe = Annotated[
    MaskedLanguageModelingRecipe
    | NextSentenceRecipe
    | ReplacedTokenDetectionRecipe
    | SentenceOrderRecipe
    | SentenceDenoisingRecipe
    | CausalLanguageModelingRecipe
    | BidirectionalLanguageModelingRecipe
    | MaskedNextTokenRecipe
    | HybridLanguageModelingRecipe
    | FillInTheMiddleRecipe
    | CharacterLanguageModelingRecipe
    | TranslationRecipe
    | SpanCorruptionRecipe
    | PrefixLanguageModelingRecipe
    | MixtureOfDenoisersRecipe
    | DenoisingRecipe,
    Field(discriminator="kind"),
]
"""Any of them; `kind` says which. Several of them make a mixture (`mixture.py`)."""
