"""What a sequence-to-sequence model writes, and how near it comes to what people wrote.

BLEU (Papineni et al., 2002) and chrF (Popovic, 2015) of the whole corpus, by sacrebleu, with its signatures:
only scores of equal signatures can be compared (Post, 2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..objectives.writing import read_out, write
from ..text.special_tokens import required_token_id
from ..text.tokenization import text_backend


@dataclass(frozen=True)
class TranslationScores:
    """BLEU and chrF, from 0 to 100, and how they were computed."""

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
) -> list[str]:
    """Translate sentences, greedily or by beam search, and return them in their order.

    Sources are cut as in training: without the tokenizer's template, but with the end-of-sequence token.
    Batches hold sentences of like lengths, so that little is padded. The model is left in evaluation mode.
    """
    eos_id = required_token_id(tokenizer, "eos", "translation")
    pad_id = required_token_id(tokenizer, "pad", "translation")
    encoded = text_backend(tokenizer).encode_batch(list(sentences), add_special_tokens=False)
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
