"""Translating in batches, and scoring what comes out."""

import pytest
import torch
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

from tercet.data.tokenizers.special_tokens import (
    lost_by_normalizing,
    tell_of_unwritable,
    writes_lowercase,
)
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.pretraining.translation_scores import (
    TranslationMeasure,
    score_translations,
    translate,
)

from ..word_level import word_level

TEXTS = ["Ein Mann mit Hut sieht einen Hund.", "Zwei Hunde sehen einen Mann ohne Hut."] * 20


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = word_level([*roles.values(), *"abcdefghij"], **roles)
    tokenizer.backend_tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


@pytest.fixture
def model() -> BartForConditionalGeneration:
    torch.manual_seed(0)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=13, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
            pad_token_id=0, eos_token_id=1, bos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=1,
            init_std=1.0,
        )
    )  # fmt: skip


@pytest.mark.parametrize("num_beams", [1, 3])
def test_batches_translate_as_single_sentences(tokenizer, model, num_beams):
    sentences = ["a b c", "d", "e f g h i j", "a a", "b"]
    together = translate(model, tokenizer, sentences, num_beams=num_beams, batch_size=2, max_new_tokens=8)
    alone = [translate(model, tokenizer, [s], num_beams=num_beams, max_new_tokens=8)[0] for s in sentences]
    assert together == alone
    assert len(set(together)) > 1


def test_nothing_to_translate_is_nothing(tokenizer, model):
    assert translate(model, tokenizer, []) == []


def test_equal_texts_score_full_marks_and_signatures_tell_how():
    texts = ["Ein Hund läuft über die Wiese .", "Zwei Kinder spielen im Schnee ."]
    scores = score_translations(texts, texts)
    assert scores.bleu == pytest.approx(100)
    assert scores.chrf == pytest.approx(100)
    assert "tok:13a" in scores.bleu_signature
    assert "case:mixed" in scores.bleu_signature
    shouted = [text.upper() for text in texts]
    assert score_translations(shouted, texts).bleu < 50
    folded = score_translations(shouted, texts, lowercase=True, tokenize="none")
    assert folded.bleu == pytest.approx(100)
    assert "case:lc" in folded.bleu_signature
    assert "tok:none" in folded.bleu_signature


def test_hand_worked_bleu():
    """Precisions 5/6, 3/5, 1/4 and, smoothed, (1/2)/3; as long as the reference, so no brevity penalty."""
    scores = score_translations(["a b c x e f"], ["a b c d e f"])
    expected = 100 * (5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25
    assert scores.bleu == pytest.approx(expected)


def test_every_translation_needs_a_reference():
    with pytest.raises(ValueError, match=r"2 translations but 1 references"):
        score_translations(["a", "b"], ["a"])


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram", "characters"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_translations_are_compared_in_the_case_that_they_can_have(kind, lowercase):
    """Written in lower case only, German would otherwise get nearly no BLEU, whatever it says."""
    size = 300 if kind == "byte_bpe" else 80
    tokenizer = train_tokenizer(TEXTS, kind, size, lowercase=lowercase)
    assert writes_lowercase(tokenizer) == lowercase
    lost = ["case", "accents"] if kind == "wordpiece" else ["case"]
    assert lost_by_normalizing(tokenizer) == (lost if lowercase else [])


def test_chinese_is_compared_by_characters():
    chinese = ["一只狗在草地上跑。", "两个孩子在雪地里玩。"]
    measure = TranslationMeasure(train_tokenizer(TEXTS, "characters", 80), chinese, chinese, 9)
    assert measure.compared == {"lowercase": False, "tokenize": "zh"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationMeasure, "translate", lambda *_: ["一只狗在草地上走。", chinese[1]])
        assert measure(nn.Identity())["translation/bleu"] > 50


@pytest.mark.parametrize(
    ("kind", "text", "lost"),
    [
        ("unigram", "你好\uff0c世界\uff01", "\uff0c \uff01"),  # its normalizer makes them narrow
        ("wordpiece", "Ein schöner Hund.", "ö"),
        ("byte_bpe", "Ein schöner Hund\uff0c", None),
    ],
)
def test_it_is_said_what_a_tokenizer_cannot_write(kind, text, lost, capsys):
    texts = [*TEXTS, "你好,世界!", "ein schoner hund"] * 3
    tokenizer = train_tokenizer(texts, kind, 400, lowercase=kind == "wordpiece")
    tell_of_unwritable([text, "Ein Mann mit Hut."], tokenizer, "the rows")
    told = f"the rows: 50.0% of the references have characters that the tokenizer loses ({lost}): "
    assert capsys.readouterr().err == (f"{told}they count as errors of the model\n" if lost else "")


def test_it_is_said_which_bleu_the_references_themselves_have(capsys):
    references = ["ein mann, mit hut.", "ein hund; und zwei."]
    for kind, said in (
        ("wordpiece", "encoded and decoded by the tokenizer, have a BLEU of "),
        ("byte_bpe", ""),
    ):
        tokenizer = train_tokenizer([*TEXTS, *references] * 3, kind, 400)
        TranslationMeasure(tokenizer, references, references, 9).tell()
        told = capsys.readouterr().err
        assert said in told
        assert bool(told) == bool(said)
