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

from ..training.evaluation import HeldOut
from ..training.examples import ExampleSource
from .chunks import FullSequences, ParallelPairs
from .corpus import TokenizedCorpus
from .objective_recipes import Corpus, build_examples
from .recipe import PretrainingRecipe
from .text import open_text, tokenize_text
from .translation_scores import score_translations, translate
from .unknown_tokens import share_of_unknown

UNKNOWN = "unknown_tokens"
"""Under this name it is told which share of the text's tokens the tokenizer does not know."""


def build_held_out(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> HeldOut:
    """Tokenize a recipe's validation text and say how it is measured.

    Raises:
        ValueError: The text cannot be read or is too short.
    """
    corpus = tokenize_text(recipe, "validation", tokenizer)
    try:
        source = examples_of(recipe, corpus, tokenizer)
    except ValueError as error:
        raise ValueError(f"corpus.validation: {error}") from error
    sides = [corpus] if isinstance(corpus, TokenizedCorpus) else corpus
    about = {UNKNOWN: share_of_unknown([side.tokens for side in sides], tokenizer)}
    if isinstance(source, ParallelPairs):
        num_bytes = {"translation": bytes_of_targets(source)}
        return HeldOut(source, num_bytes, measure_of(recipe, source, tokenizer), about=about)
    if recipe.objective.kind == "causal_language_modeling":
        assert isinstance(corpus, TokenizedCorpus)
        assert isinstance(source, FullSequences)
        return HeldOut(source, {"clm": bytes_of_sequences(corpus, source)}, about=about)
    return HeldOut(source, about=about)


def examples_of(
    recipe: PretrainingRecipe, corpus: Corpus, tokenizer: PreTrainedTokenizerBase
) -> ExampleSource:
    """Make the examples of a recipe's objective from a tokenized corpus."""
    return build_examples(
        recipe.objective,
        corpus,
        tokenizer,
        sequence_length=recipe.corpus.sequence_length,
        seed=recipe.training.seed,
        isolate_documents=recipe.corpus.isolate_documents,
    )


def bytes_of_targets(pairs: ParallelPairs) -> int:
    """Count the bytes of the texts to be written."""
    return int(pairs.target.document_bytes[pairs.documents].sum())


def bytes_of_sequences(corpus: TokenizedCorpus, sequences: FullSequences) -> int:
    """Count the bytes that the targets of sequences stand for: the text's, in proportion to its tokens.

    The first token of a sequence is no target, and tails too short for a sequence are left out. What ends a
    document is a target that stands for no byte.
    """
    targets = int(sequences.lengths.sum()) - len(sequences)
    possible = corpus.num_tokens + corpus.num_documents * len(sequences.document_end)
    return round(int(corpus.document_bytes.sum()) * targets / possible)


def measure_of(
    recipe: PretrainingRecipe, pairs: ParallelPairs, tokenizer: PreTrainedTokenizerBase
) -> "TranslationMeasure":
    """Read the texts of the pairs, to translate the ones and compare with the others."""
    sources, references = (list(documents) for documents in open_text(recipe, "validation"))
    return TranslationMeasure(
        tokenizer,
        [sources[document] for document in pairs.documents],
        [references[document] for document in pairs.documents],
        recipe.corpus.sequence_length,
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
