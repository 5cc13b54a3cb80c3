"""Which ids are text and which are signs."""

import numpy as np
import pytest
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tercet.data.documents import open_documents
from tercet.data.tokenizers.special_tokens import (
    OF_OBJECTIVES,
    control_tokens,
    is_special,
    required_token_id,
    sentinel_ids,
    tell_of_control_tokens,
)
from tercet.data.tokenizers.tokenization import tokenize, tokenized_corpus
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.pretraining.objectives.recipes import OBJECTIVES

from ..word_level import word_level
from . import tokenizer_kinds


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Sentinels with descending ids, as T5 has them, and an id that no token has."""
    vocabulary = {"<pad>": 0, "<unk>": 1, "a": 2, "b": 3, "<extra_id_1>": 5, "<extra_id_0>": 6}
    sentinels = ["<extra_id_0>", "<extra_id_1>"]
    return word_level(vocabulary, pad_token="<pad>", unk_token="<unk>", extra_special_tokens=sentinels)


def test_only_words_are_ordinary(tokenizer):
    assert np.flatnonzero(~is_special(tokenizer)).tolist() == [2, 3]


def test_sentinels_come_in_the_order_of_their_names(tokenizer):
    assert sentinel_ids(tokenizer).tolist() == [6, 5]


def test_a_missing_token_is_named_with_its_remedy(tokenizer):
    assert required_token_id(tokenizer, "pad", "padding") == 0
    with pytest.raises(ValueError, match=r"denoising needs the tokenizer's mask_token, but it is None: add"):
        required_token_id(tokenizer, "mask", "denoising")


@pytest.fixture
def with_control_tokens() -> PreTrainedTokenizerFast:
    vocabulary = {"[UNK]": 0, "[PAD]": 1, "<|end|>": 2, "a": 3, "<|user|>": 4, "<|bot|>": 5, "<fim>": 6}
    names = ["<|user|>", "<|bot|>", "<fim>", "<extra_id_0>"]
    roles = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "<|end|>"}
    return word_level(vocabulary, extra_special_tokens=names, **roles)


def test_control_tokens_have_no_role_and_no_objective(with_control_tokens):
    assert control_tokens(with_control_tokens) == ["<|user|>", "<|bot|>", "<fim>"]
    assert control_tokens(with_control_tokens, "own", ["<fim>"]) == ["<|user|>", "<|bot|>"]
    assert control_tokens(with_control_tokens, ["<|bot|>", "<|end|>"]) == ["<|bot|>", "<|end|>"]
    assert control_tokens(with_control_tokens, []) == []


def test_runs_and_prepared_corpora_read_tokens_of_objectives_alike(with_control_tokens):
    """As text, whoever asks: else no run takes a corpus that a fill-in-the-middle tokenizer prepared."""
    tokenizer = with_control_tokens
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>", *OF_OBJECTIVES]})
    assert not {*control_tokens(tokenizer)} & {*OF_OBJECTIVES}
    kinds = OBJECTIVES.values()
    assert {name for recipe in kinds for name in recipe.special_tokens} == {*OF_OBJECTIVES}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["<|sys|>"], r"no special token '<\|sys\|>'"),
        (["a"], "no special token 'a'"),
        (["[PAD]"], r"'\[PAD\]' is reserved, since objectives insert it"),
        (["<fim>"], "'<fim>' is reserved, since objectives insert it"),
        (["<extra_id_0>"], "'<extra_id_0>' is reserved, since objectives insert it"),
    ],
)
def test_other_names_are_refused(with_control_tokens, names, message):
    with pytest.raises(ValueError, match=message):
        control_tokens(with_control_tokens, names, ["<fim>"])


def test_control_tokens_that_were_found_are_told_once(with_control_tokens, capsys):
    tokens = np.array([3, 5, 3, 5, 6, 3], dtype=np.uint16)
    for _ in range(2):
        tell_of_control_tokens(tokens, with_control_tokens, ["<|user|>", "<|bot|>", "<fim>"], "a text")
    assert capsys.readouterr().err == (
        "a text: control tokens <|bot|> 2, <fim> 1 (corpus.control_tokens=[] reads them as text)\n"
    )
    tell_of_control_tokens(tokens[:1], with_control_tokens, ["<|user|>"], "a text")
    assert capsys.readouterr().err == ""


def of_words():
    roles = {"unk_token": "<unk>", "eos_token": "</s>", "mask_token": "<mask>", "pad_token": "!"}
    return word_level([*roles.values(), "old"], split=pre_tokenizers.WhitespaceSplit(), **roles)


@pytest.mark.parametrize("make", [of_words, tokenizer_kinds.KINDS["metaspace"]])
def test_names_of_special_tokens_are_text_to_models_that_would_take_them_for_tokens(make):
    """As google/sentencepiece#777 has it: `</s>` in a text is four characters, or whatever it is made of."""
    tokenizer = make()
    tokens = tokenize(["The old </s> price <mask> is <s>old</s> <unk> now !"], tokenizer).tokens.tolist()
    assert {tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.mask_token_id}.isdisjoint(tokens)
    assert tokens[-1] == tokenizer.convert_tokens_to_ids("!")
    assert tokenizer.eos_token_id in tokenize(["old </s>"], tokenizer, ["</s>"]).tokens


def test_control_tokens_in_a_text_are_those_of_the_tokenizer():
    text = "<|title|>Tale<|body|>It says [MASK] </s> <mask>.<|body|>"
    tokenizer = train_tokenizer(
        tokenizer_kinds.CORPUS, "byte_bpe", 400, special_tokens=["<|title|>", "<|body|>"]
    )
    title, body = map(tokenizer.convert_tokens_to_ids, ["<|title|>", "<|body|>"])
    found = tokenize([text], tokenizer).document(0).tolist()
    assert [idx for idx in found if idx in tokenizer.all_special_ids] == [title, body, body]
    assert tokenizer.decode(found) == text
    assert title in tokenize([text], tokenizer, ["<|title|>"]).tokens
    assert body not in tokenize([text], tokenizer, ["<|title|>"]).tokens
    as_text = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenize([text], tokenizer, []).document(0).tolist() == as_text


def test_ends_of_texts_that_stand_in_a_text_are_told_of(tmp_path, recwarn):
    file = tmp_path / "texts.txt"
    file.write_text("One text.</s>Two.</s>\n\n<mask> here.")
    tokenizer = train_tokenizer(tokenizer_kinds.CORPUS, "byte_bpe", 400)
    for _ in range(2):
        with pytest.warns(
            UserWarning, match="'</s>', which .* stands in the text 2 times and is read as text"
        ):
            tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache")
    recwarn.clear()
    tokenized_corpus(open_documents(file), tokenizer, tmp_path / "cache", ["</s>"])
    assert not recwarn
