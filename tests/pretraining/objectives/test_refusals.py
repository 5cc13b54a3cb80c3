"""What no objective can learn from, and values that no recipe of one can have, are refused in words."""

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from tercet.pretraining.objectives.denoising import Denoising
from tercet.pretraining.objectives.fill_in_the_middle import FIM_TOKENS, FillInTheMiddle
from tercet.pretraining.objectives.masked_language_modeling import (
    MaskedLanguageModeling,
    MaskedLanguageModelingRecipe,
    SpanMaskingRecipe,
)
from tercet.pretraining.objectives.masking import Corruption, DynamicMasking, Words
from tercet.pretraining.objectives.mixture_of_denoisers import MODES, UL2, MixtureOfDenoisers, longest_text
from tercet.pretraining.objectives.prefix_language_modeling import PrefixLanguageModeling
from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.pretraining.objectives.sentence_pairs import SentenceOrderPairs
from tercet.pretraining.objectives.span_corruption import SpanCorruption, uncorrupted_length

from ...corpora import make_corpus
from ...word_level import word_level
from .conftest import read, tokenizer_of

PAD, EOS = 0, 2
"""What decoders read first."""


def build(kind: str, sequence_length: int = 32, **fields):
    return read(kind, **fields).build(ObjectiveContext(tokenizer_of(), sequence_length, decoder_start_id=PAD))


def examples(kind: str, tokenizer: PreTrainedTokenizerFast | None = None, **options):
    context = ObjectiveContext(tokenizer or tokenizer_of(), 32, **options)
    return read(kind).examples(make_corpus([[9]] * 3), context)


MASKED = "masked_language_modeling"
LACKING = [
    (lambda: Denoising(tokenizer_of(mask_token=None), EOS), "denoising needs the tokenizer's mask_token"),
    (lambda: FillInTheMiddle(tokenizer_of(signs=(FIM_TOKENS[0], FIM_TOKENS[2]))),
     "filling in the middle needs .* the tokenizer lacks <fim_middle>"),
    (lambda: FillInTheMiddle(tokenizer_of(eos_token=None)),
     "filling in the middle needs the tokenizer's eos_token"),
    (lambda: Corruption(tokenizer_of(mask_token=None)), "needs the tokenizer's mask_token"),
    (lambda: MixtureOfDenoisers(tokenizer_of(100, signs=(MODES[0], MODES[2])), PAD, 60),
     r"a mixture of denoisers needs .* the tokenizer lacks \[S\]: train"),
    (lambda: MixtureOfDenoisers(tokenizer_of(50), PAD, 510),
     "510 tokens needs 86 sentinels, but the tokenizer has 50"),
    (lambda: SpanCorruption(tokenizer_of(28), PAD, 568),
     "568 tokens needs 29 sentinels, but the tokenizer has 28: add <extra_id_0>"),
    (lambda: build("span_corruption", 340), "needs 20 sentinels, but the tokenizer has 9"),
    (lambda: SpanCorruption(tokenizer_of(30, eos_token=None), PAD, 100), "needs the tokenizer's eos_token"),
    (lambda: PrefixLanguageModeling(tokenizer_of(eos_token=None), PAD),
     "prefix language modeling needs the tokenizer's eos_token"),
    (
        lambda: read("sentence_denoising").build(
            ObjectiveContext(word_level(["[UNK]", "[PAD]"], unk_token="[UNK]"), 32)
        ),
        "needs the tokenizer's cls_token or bos_token, but both are None: add",
    ),
    (lambda: read("span_corruption").build(ObjectiveContext(tokenizer_of(), 32)),
     "span_corruption needs a decoder_start_token_id: set it in the model's config.json"),
]  # fmt: skip
"""What tokenizer or model lack."""

TEXTS = [
    (lambda: examples("fill_in_the_middle", isolate_documents=False),
     "rearranges .*, but corpus.isolate_documents is false: set it to"),
    (
        lambda: MaskedLanguageModeling(DynamicMasking(Corruption(tokenizer_of(), unit=Words()))).collate(
            [{"input_ids": np.array([5, 6]), "index": 0}], 0
        ),
        "needs examples with `word_starts`",
    ),
    (lambda: examples("translation"), "translation does not support this corpus"),
    (lambda: SentenceOrderPairs(make_corpus([[5]] * 3), tokenizer_of(), 64, seed=0),
     r"sentence-order prediction needs at least 1 document\(s\) of two"),
    (lambda: longest_text(3, UL2), "sequence_length is 3, too short"),
    (lambda: uncorrupted_length(1, 0.15, 3.0), "sequence_length is 1, too short"),
]  # fmt: skip
"""Texts, and lengths of sequences, that do not serve."""

VALUES = [
    (lambda: read("denoising", noise_density=-0.1), "noise_density\n.* greater than 0 "),
    (lambda: read("denoising", mean_span_length=0), "mean_span_length\n.* greater than or equal to 0.1"),
    (lambda: read("fill_in_the_middle", fim_rate=2), "fim_rate\n.* less than or equal to 1"),
    (lambda: read(MASKED, mlm_probability=0), "mlm_probability\n.* greater than 0 "),
    (lambda: read(MASKED, mlm_probability=1.5), "mlm_probability\n.* less than 1 "),
    (lambda: read(MASKED, mask_replace_prob=1.5), "mask_replace_prob\n.* less than or equal to 1"),
    (lambda: Corruption(tokenizer_of(), mask_replace_prob=0.8, random_replace_prob=0.3),
     r"mask_replace_prob \+ random_replace_prob is 1.1"),
    (lambda: read(MASKED, span_masking={"max_span_length": 0}),
     "max_span_length\n.* greater than or equal to 1"),
    (lambda: read(MASKED, span_masking={"geometric_p": 1}), "geometric_p\n.* less than 1 "),
    (lambda: MaskedLanguageModelingRecipe(MASKED, whole_word=True, span_masking=SpanMaskingRecipe()),
     "span_masking masks whole words in any case, but whole_word is"),
    (lambda: read("span_corruption", noise_density=1.5), "noise_density\n.* less than 1 "),
    (lambda: read("span_corruption", mean_span_length=0.5),
     "mean_span_length\n.* greater than or equal to 1"),
    (lambda: read("translation", label_smoothing=1.0), "label_smoothing\n.* less than 1 "),
    (lambda: read("translation", z_loss=-1.0), "z_loss\n.* greater than or equal to 0"),
    (lambda: read("masked_language_modelling"),
     "kind is 'masked_language_modelling', but must be one of masked_language_modeling, "),
    (lambda: build(MASKED, masking="static", final_mlm_probability=0.1),
     r"final_mlm_probability = 0\.1, but static masking never changes"),
    (lambda: read("mixture_of_denoisers", denoisers=[{"mode": "Y", "noise_density": 0.1}]),
     "Input should be 'R', 'S' or 'X'"),
]  # fmt: skip
"""Values that none can have."""


@pytest.mark.parametrize(("make", "message"), [*LACKING, *TEXTS, *VALUES])
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
