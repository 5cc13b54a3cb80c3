"""Text that pair encoding drops, having neither a token for it nor an unknown one, is counted and told of."""

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tercet import TercetEncoderConfig, TercetEncoderForMaskedLM
from tercet.data.tokenizers.special_tokens import counting_of_dropped
from tercet.data.tokenizers.tokenization import text_backend
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.fewshot.prompts.boundary import DecoderPrompts, Prompt, SpecialTokenPolicy
from tercet.finetune.encoding import TextEncoder
from tercet.finetune.tasks.question_answering import encode_pairs
from tercet.pretraining.text import open_text
from tercet.tools.embed.embedding import load_embedder

from ..pretraining_parts import reader_of
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


def vectors_of(texts, folder):
    """Make vectors by a small model whose tokenizer knows few letters."""
    of_pairs().save_pretrained(folder)
    config = TercetEncoderConfig(
        vocab_size=10, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    TercetEncoderForMaskedLM(config).save_pretrained(folder)
    return load_embedder(str(folder)).embed(texts)


def encoder():
    return TextEncoder(of_pairs(), 64, has_token_types=False)


READERS = {
    "fine-tuning and predict": lambda texts, _: encoder().encode(texts),
    "words": lambda texts, _: encoder().encode_words([text.split() for text in texts]),
    "questions": lambda texts, _: encode_pairs(encoder(), texts, ["the cat"] * len(texts)),
    "few-shot, decoder": lambda texts, _: DecoderPrompts(of_pairs(), SpecialTokenPolicy()).encode(
        [Prompt(text, ("cat",)) for text in texts]
    ),
    "embed": vectors_of,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.filterwarnings("ignore:.*has no")
def test_every_reader_of_texts_tells_of_what_is_lost(reader, recwarn, tmp_path):
    """Else all rows may look the same to the model, and "0.00% unknown" is all that is said."""
    READERS[reader](["the cat", "a cat sat"], tmp_path)
    lost = [str(warning.message) for warning in recwarn if "drops" in str(warning.message)]
    assert lost == []
    READERS[reader](["the кот cat", "a cat sat"], tmp_path)
    (told,) = [str(warning.message) for warning in recwarn if "drops" in str(warning.message)]
    assert "(6 of " in told
    assert "1 of " in told


def test_held_out_text_that_loses_some_has_no_bits_per_byte(texts, recipe_of, tmp_path):
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run")
    file = tmp_path / "held.txt"
    recipe = changed(recipe, validation=str(file), cache=str(tmp_path / "cache"))

    def measured(text):
        file.write_text(text, encoding="utf-8")
        documents = open_text(recipe.corpus, recipe.objective, "validation")
        return reader_of(recipe, of_pairs()).held_out(documents).num_bytes

    assert measured("the cat sees the cat") == {"clm": 20}
    for _ in range(2):  # the second from the cache
        with pytest.warns(UserWarning, match=r"held.txt: the tokenizer drops 42.86% .*\(6 of 14 bytes\)"):
            assert measured("the cat кот") == {}
