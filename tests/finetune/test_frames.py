"""A frame that a tokenizer is given for a task is there again when it is loaded, whatever its class."""

import json
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2Tokenizer,
    GPTNeoXConfig,
    GPTNeoXTokenizer,
    LlamaConfig,
    LlamaTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    OPTConfig,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2Tokenizer,
)

from tercet.data.tokenizers.special_tokens import target_language
from tercet.data.tokenizers.tokenizer import frame_ids, framing, train_tokenizer
from tercet.finetune.frames import end_pairs, end_texts, separate_pairs
from tercet.modeling import TercetDecoderConfig
from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.pretraining.objectives.translation import TranslationRecipe

TEXT, OTHER = "the cat sat", "a mat"
END = "<|endoftext|>"
CLASSES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "gpt2": (GPT2Tokenizer, {}, GPT2Config),
    "gpt_neox": (GPTNeoXTokenizer, {}, GPTNeoXConfig),
    "qwen2": (Qwen2Tokenizer, {}, Qwen2Config),
    "opt": (GPT2Tokenizer, {"bos_token": END, "add_bos_token": True}, OPTConfig),
    "llama": (LlamaTokenizer, {"add_bos_token": True, "eos_token": END}, LlamaConfig),
}
"""Name -> a class that builds its frame anew when it is loaded, its options, and a stock configuration."""


@pytest.fixture(params=CLASSES)
def name(request) -> str:
    return request.param


@pytest.fixture
def tokenizer(name) -> PreTrainedTokenizerBase:
    kind, options, _ = CLASSES[name]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = [END, "<s>", "<unk>", "<|padding|>", "▁"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([f"{TEXT} {OTHER}"] * 9, trainer)
    told = json.loads(backend.to_str())["model"]
    return kind(vocab=told["vocab"], merges=[tuple(merge) for merge in told["merges"]], **options)


def test_a_frame_is_there_again_after_loading(name, tokenizer, tmp_path):
    padding_side = tokenizer.padding_side
    single, pair = (tokenizer(*texts)["input_ids"] for texts in ((TEXT,), (TEXT, OTHER)))
    first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (TEXT, OTHER))
    end_pairs(tokenizer)
    end_texts(tokenizer)
    end, is_bare = tokenizer.eos_token_id, pair == first + second
    framed = tokenizer(TEXT, OTHER)["input_ids"]
    assert framed == ([*first, end, *second, end] if is_bare else [*pair, end])
    assert tokenizer(TEXT)["input_ids"] == [*single, end]
    tokenizer.save_pretrained(tmp_path)
    for config in (TercetDecoderConfig(), CLASSES[name][2]()):
        config.save_pretrained(tmp_path)
        again = AutoTokenizer.from_pretrained(tmp_path)
        assert dict(again(TEXT, OTHER)) == dict(tokenizer(TEXT, OTHER))
        assert again(TEXT)["input_ids"] == [*single, end]
        assert (again.padding_side, again.special_tokens_map) == (padding_side, tokenizer.special_tokens_map)


def test_texts_alone_stay_as_they_are_where_pairs_are_separated(tokenizer):
    before = tokenizer(TEXT)["input_ids"]
    separate_pairs(tokenizer)
    framed = tokenizer.backend_tokenizer.to_str()
    separate_pairs(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == framed
    assert tokenizer(TEXT)["input_ids"] == before


@pytest.mark.parametrize("kind", ["wordpiece", "characters", "ended", "roberta"])
def test_frames_of_their_own_stay(families, kind):
    before = families[kind].backend_tokenizer.to_str()
    for frame in (separate_pairs, end_pairs, end_texts):
        frame(families[kind])
    assert families[kind].backend_tokenizer.to_str() == before


@pytest.mark.parametrize("kind", [MBartTokenizer, MBart50Tokenizer])
@pytest.mark.parametrize("target", ["ro_RO", "en_XX"])
def test_the_code_of_a_language_is_what_the_decoder_begins_with(kind, target):
    """A decoder of mBART starts with it, one of mBART-50 writes it first; also from a language to itself."""
    words = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0), ("▁", -2.0)]
    tokenizer = kind(vocab=words, src_lang="en_XX", tgt_lang=target)
    before = tokenizer("a")["input_ids"]
    field = "decoder_start_token_id" if kind is MBartTokenizer else "forced_bos_token_id"
    assert target_language(tokenizer) == {field: tokenizer.convert_tokens_to_ids(target)}
    end_texts(tokenizer)
    assert tokenizer("a")["input_ids"] == before
    pairs: Any = ([], [])
    with pytest.raises(
        ValueError, match=rf"marks the language .*{target}.*: use tercet finetune translation"
    ):
        TranslationRecipe("translation").examples(pairs, ObjectiveContext(tokenizer, 9))


def test_a_tokenizer_of_one_language_asks_nothing_of_the_decoder(families):
    for kind in ("ended", "roberta", "wordpiece", "byte_bpe"):
        assert target_language(families[kind]) == {}


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_a_tokenizer_that_only_opens_texts_gets_something_between_two(kind):
    """As those of decoders that begin with [CLS] or <s>: else "the cat" and "sat" are "the" and "cat sat"."""
    tokenizer = train_tokenizer([f"{TEXT} {OTHER}"] * 5, kind, 300)
    opening, closing = frame_ids(tokenizer)
    names = tokenizer.convert_ids_to_tokens(opening)
    tokenizer.backend_tokenizer.post_processor = framing("plain", tokenizer.get_vocab(), names, [])
    first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (TEXT, OTHER))
    assert tokenizer(TEXT, OTHER)["input_ids"] == [*opening, *first, *second]
    for ends in ([], closing):
        (end_pairs if ends else separate_pairs)(tokenizer)
        assert tokenizer(TEXT, OTHER)["input_ids"] == [*opening, *first, *closing, *second, *ends]
        assert tokenizer(TEXT)["input_ids"] == [*opening, *first]
