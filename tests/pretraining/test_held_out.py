"""How a run is measured on text that it does not learn from."""

import pytest

from tercet.pretraining.held_out import writes_lowercase
from tercet.text.tokenizer import train_tokenizer

TEXTS = ["Ein Mann mit Hut sieht einen Hund.", "Zwei Hunde sehen einen Mann ohne Hut."] * 20


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram", "characters"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_translations_are_compared_in_the_case_that_they_can_have(kind, lowercase):
    """Written in lower case only, German would otherwise get nearly no BLEU, whatever it says."""
    size = 300 if kind == "byte_bpe" else 80
    tokenizer = train_tokenizer(TEXTS, kind, size, lowercase=lowercase)
    assert writes_lowercase(tokenizer) == lowercase
