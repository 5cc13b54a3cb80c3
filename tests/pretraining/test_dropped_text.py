"""Text that pair encoding drops, having neither a token for it nor an unknown one, is counted and told of."""

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tercet.pretraining.text import build_held_out, open_text
from tercet.text.special_tokens import counting_of_dropped
from tercet.text.tokenization import text_backend
from tercet.text.tokenizer import train_tokenizer

from .conftest import changed

BYTES = {f"<0x{byte:02X}>": 100 + byte for byte in range(256)}


def of_pairs(letters="thecas.", others=(), **options):
    """Make a tokenizer whose tokens are letters; it has no others."""
    names = dict.fromkeys(["<s>", "</s>", "<key>", *letters, *others])
    backend = Tokenizer(models.BPE({name: idx for idx, name in enumerate(names)}, [], **options))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    roles = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, additional_special_tokens=["<key>"], **roles)


def of_some_bytes():
    """Make a tokenizer of bytes that lacks the first of `к` (D0) and the second of `т` (82)."""
    tokenizer = of_pairs("thecas.ºÑ")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "dropped"),
    [
        (of_pairs(), 6),
        (of_pairs(others=[f"##{letter}" for letter in "thecas."], continuing_subword_prefix="##"), 6),
        (of_pairs(others=["кот"], ignore_merges=True), 0),
        (of_pairs(others=["<0xD0>", "<0xBA>"], byte_fallback=True), 4),
        (of_some_bytes(), 1 + 2 + 1),
        (of_pairs(unk_token="</s>"), None),
        (of_pairs(others=BYTES, byte_fallback=True), None),
        (train_tokenizer(["the cat"], "byte_bpe", 300), None),
        (train_tokenizer(["the cat"], "wordpiece", 80), None),
    ],
)
def test_bytes_of_text_without_tokens_are_counted(tokenizer, dropped):
    count = counting_of_dropped(text_backend(tokenizer))
    assert (count and count("The<key> cat.\n кот")) == dropped


def test_held_out_text_that_loses_some_has_no_bits_per_byte(texts, recipe_of, tmp_path):
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run")
    file = tmp_path / "held.txt"
    recipe = changed(recipe, validation=str(file), cache=str(tmp_path / "cache"))

    def measured(text):
        file.write_text(text, encoding="utf-8")
        return build_held_out(recipe, open_text(recipe, "validation"), of_pairs()).num_bytes

    assert measured("the cat sees the cat") == {"clm": 20}
    for _ in range(2):  # the second from the cache
        with pytest.warns(UserWarning, match=r"held.txt: the tokenizer drops 42.86% .*\(6 of 14 bytes\)"):
            assert measured("the cat кот") == {}
