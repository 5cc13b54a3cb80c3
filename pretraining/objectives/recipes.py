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

from ...configs.by_kind import ByKind
from .base_recipe import BaseObjectiveRecipe

OBJECTIVES = ByKind(
    __name__,
    {
        "masked_language_modeling": "masked_language_modeling.MaskedLanguageModelingRecipe",
        "masked_language_modeling_with_next_sentence": "masked_pairs.NextSentenceRecipe",
        "replaced_token_detection": "replaced_tokens.ReplacedTokenDetectionRecipe",
        "masked_language_modeling_with_sentence_order": "masked_pairs.SentenceOrderRecipe",
        "sentence_denoising": "sentence_denoising.SentenceDenoisingRecipe",
        "causal_language_modeling": "causal_language_modeling.CausalLanguageModelingRecipe",
        "bidirectional_language_modeling": (
            "bidirectional_language_modeling.BidirectionalLanguageModelingRecipe"
        ),
        "masked_next_token_prediction": "masked_next_token.MaskedNextTokenRecipe",
        "hybrid_language_modeling": "hybrid_language_modeling.HybridLanguageModelingRecipe",
        "fill_in_the_middle": "fill_in_the_middle.FillInTheMiddleRecipe",
        "character_language_modeling": "character_language_modeling.CharacterLanguageModelingRecipe",
        "translation": "translation.TranslationRecipe",
        "span_corruption": "span_corruption.SpanCorruptionRecipe",
        "prefix_language_modeling": "prefix_language_modeling.PrefixLanguageModelingRecipe",
        "mixture_of_denoisers": "mixture_of_denoisers.MixtureOfDenoisersRecipe",
        "denoising": "denoising.DenoisingRecipe",
    },
)
"""The `kind` of a recipe -> its dataclass."""

SingleObjectiveRecipe = Annotated[BaseObjectiveRecipe, OBJECTIVES]
"""Any of them; `kind` says which. Several of them make a mixture (`mixture.py`)."""

ObjectiveRecipe = Annotated[
    BaseObjectiveRecipe, ByKind(__name__, OBJECTIVES.names | {"mixture": "mixture.MixtureRecipe"})
]
"""What a pretraining recipe may name by `kind`: one objective, or a mixture."""
