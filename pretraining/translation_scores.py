"""What a sequence-to-sequence model writes, and how near it comes to what people wrote.

BLEU (Papineni et al., 2002) and chrF (Popovic, 2015) of the whole corpus, by sacrebleu, with its signatures:
only scores of equal signatures can be compared (Post, 2018).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.chunks import ParallelPairs
from ..data.documents import Documents
from ..data.tokenizers.special_tokens import required_token_id, tell_of_unwritable, writes_lowercase
from ..data.tokenizers.tokenization import text_backend
from ..modeling.generation.writing import read_out, rewritten, write
from ..training.metrics.texts import matches, tokenization_for


@dataclass(frozen=True)
class TranslationScores:
    """BLEU and chrF, from 0 to 100, and how they were computed.

    `bleu` and `chrf` are the scores, `bleu_signature` and `chrf_signature` sacrebleu's settings.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


def score_translations(
    translations: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
) -> TranslationScores:
    """Compare translations with one reference each.

    `lowercase` and `tokenize` are sacrebleu's: `13a` cuts text as the WMT campaigns did; `none` takes text
    that is already cut into tokens, `zh`, `ja-mecab` and `char` are for text without spaces.
    """
    if len(translations) != len(references):
        raise ValueError(
            f"there are {len(translations)} translations but {len(references)} references: give one for each"
        )
    bleu, chrf = BLEU(lowercase=lowercase, tokenize=tokenize), CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(translations, [references]).score
    chrf_score = chrf.corpus_score(translations, [references]).score
    return TranslationScores(bleu_score, str(bleu.get_signature()), chrf_score, str(chrf.get_signature()))


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    num_beams: int = 1,
    batch_size: int = 32,
    max_new_tokens: int = 128,
    control_tokens: Sequence[str] | None = None,
) -> list[str]:
    """Translate sentences, greedily or by beam search, and return them in their order.

    Sources are cut as in training: without the tokenizer's template, but with the end-of-sequence token.
    Batches hold sentences of like lengths, so that little is padded. The model is left in evaluation mode.
    """
    eos_id = required_token_id(tokenizer, "eos", "translation")
    pad_id = required_token_id(tokenizer, "pad", "translation")
    backend = text_backend(tokenizer, control_tokens)
    encoded = backend.encode_batch(list(sentences), add_special_tokens=False)
    sources = [np.array([*encoding.ids, eos_id]) for encoding in encoded]
    written = write(
        model.eval(),
        sources,
        pad_id,
        num_beams=num_beams,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
    )
    return read_out(tokenizer, written)


@dataclass(frozen=True)
class TranslationMeasure:
    """BLEU and chrF of greedy translations.

    They are blind to case if the tokenizer writes lower case only, and cut text into words or characters as
    its language needs it.
    """

    tokenizer: PreTrainedTokenizerBase
    sources: Sequence[str]
    """Texts to be translated."""
    references: Sequence[str]
    """Their translations."""
    max_new_tokens: int
    """Longest translation."""
    control_tokens: Sequence[str] | None = None
    """Control tokens of the source, as in `corpus.control_tokens`."""

    @classmethod
    def of(
        cls,
        pairs: ParallelPairs,
        documents: Sequence[Documents],
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        control_tokens: Sequence[str] | None = None,
    ) -> "TranslationMeasure":
        """Read the texts of the pairs, to translate the ones and compare with the others."""
        sources, references = map(list, documents)
        numbers = pairs.documents
        return cls(
            tokenizer,
            [sources[each] for each in numbers],
            [references[each] for each in numbers],
            max_new_tokens,
            control_tokens,
        )

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Translate all sources; the scores go from 0 to 100."""
        scores = score_translations(self.translate(model), self.references, **self.compared)
        return {"translation/bleu": scores.bleu, "translation/chrf": scores.chrf}

    def tell(self) -> None:
        """Print what of the references the tokenizer cannot write, and their BLEU as it writes them."""
        tell_of_unwritable(self.references, self.tokenizer, "the held-out text")
        texts = rewritten(self.tokenizer, self.references)
        if not matches(texts, self.references, lowercase=self.compared["lowercase"]).all():
            most = score_translations(texts, self.references, **self.compared).bleu
            print(
                f"the held-out references, encoded and decoded by the tokenizer, have a BLEU of {most:.1f}",
                file=sys.stderr,
                flush=True,
            )

    def translate(self, model: nn.Module) -> list[str]:
        """Translate all sources."""
        return translate(
            cast(PreTrainedModel, model),
            self.tokenizer,
            self.sources,
            max_new_tokens=self.max_new_tokens,
            control_tokens=self.control_tokens,
        )

    @cached_property
    def compared(self) -> dict[str, Any]:
        """How translations are compared with the references: `lowercase` and `tokenize`."""
        tokenize = tokenization_for(self.references)
        return {"lowercase": writes_lowercase(self.tokenizer), "tokenize": tokenize}
