"""What a pretraining run is measured on: text that it does not learn from.

Perplexities of different tokenizers cannot be compared, bits per byte can: where every token of a text is a
target (causal language modeling, translation), the bytes of that text are counted. Translations are also
written out and compared with what people wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..objectives.base_recipe import Corpus
from ..text.chunks import ParallelPairs
from ..text.corpus import TokenizedCorpus
from ..text.documents import Documents
from ..text.unknown_tokens import share_of_unknown
from ..training.evaluation import HeldOut
from ..training.examples import ExampleSource
from .recipe import PretrainingRecipe
from .text import tokenize
from .translation_scores import score_translations, translate

UNKNOWN = "unknown_tokens"
"""Under this name it is told which share of the text's tokens the tokenizer does not know."""


def build_held_out(
    recipe: PretrainingRecipe, documents: Sequence[Documents], tokenizer: PreTrainedTokenizerBase
) -> HeldOut:
    """Tokenize the validation documents of a recipe, and say how models are measured on them.

    Raises:
        ValueError: The text cannot be read or is too short.
    """
    corpus = tokenize(documents, tokenizer, recipe.corpus.cache)
    try:
        source = examples_of(recipe, corpus, tokenizer)
    except ValueError as error:
        raise ValueError(f"corpus.validation: {error}") from error
    sides = [corpus] if isinstance(corpus, TokenizedCorpus) else corpus
    about = {UNKNOWN: share_of_unknown([side.tokens for side in sides], tokenizer)}
    num_bytes = recipe.objective.count_bytes(corpus, source)
    if isinstance(source, ParallelPairs):
        measure = measure_of(source, documents, tokenizer, recipe.corpus.sequence_length)
        return HeldOut(source, num_bytes, measure, about=about)
    return HeldOut(source, num_bytes, about=about)


def examples_of(
    recipe: PretrainingRecipe, corpus: Corpus, tokenizer: PreTrainedTokenizerBase
) -> ExampleSource:
    """Make the examples of a recipe's objective from a tokenized corpus."""
    return recipe.objective.examples(
        corpus,
        tokenizer,
        sequence_length=recipe.corpus.sequence_length,
        seed=recipe.training.seed,
        isolate_documents=recipe.corpus.isolate_documents,
    )


def measure_of(
    pairs: ParallelPairs,
    documents: Sequence[Documents],
    tokenizer: PreTrainedTokenizerBase,
    max_new_tokens: int,
) -> "TranslationMeasure":
    """Read the texts of the pairs, to translate the ones and compare with the others."""
    sources, references = map(list, documents)
    return TranslationMeasure(
        tokenizer,
        [sources[document] for document in pairs.documents],
        [references[document] for document in pairs.documents],
        max_new_tokens,
    )


@dataclass(frozen=True)
class TranslationMeasure:
    """BLEU and chrF of greedy translations, blind to case if the tokenizer writes lower case only."""

    tokenizer: PreTrainedTokenizerBase
    sources: Sequence[str]
    references: Sequence[str]
    max_new_tokens: int

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Translate all sources; the scores go from 0 to 100."""
        scores = score_translations(self.translate(model), self.references, lowercase=self.is_lowercase)
        return {"translation/bleu": scores.bleu, "translation/chrf": scores.chrf}

    def translate(self, model: nn.Module) -> list[str]:
        """Translate all sources."""
        return translate(
            cast(PreTrainedModel, model), self.tokenizer, self.sources, max_new_tokens=self.max_new_tokens
        )

    @property
    def is_lowercase(self) -> bool:
        """Whether translations are compared without regard to case."""
        return writes_lowercase(self.tokenizer)


def writes_lowercase(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Tell whether upper case is lost on the way into a tokenizer."""
    normalizer = cast(PreTrainedTokenizerFast, tokenizer).backend_tokenizer.normalizer
    return normalizer is not None and normalizer.normalize_str("A").islower()
