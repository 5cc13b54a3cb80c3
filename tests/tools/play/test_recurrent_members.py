"""What one can try with the members that came before the Transformer."""

import pytest
import torch

from tercet import (
    TercetCharacterConfig,
    TercetCharacterLanguageModel,
    TercetElmoForLanguageModeling,
    TercetElmoForTokenClassification,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetTaggerConfig,
    TercetTaggerForTokenClassification,
)
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling.recurrent.word_embedders import adopt, describe
from tercet.modeling.recurrent.word_tokenizer import word_tokenizer
from tercet.tools.convert.static_vectors import build
from tercet.tools.play.loaded_model import LoadedModel, load_model
from tercet.tools.play.sessions import abilities_of

from ...small_elmo import TEXTS, small_config

TEXT = "the house \u65e5\u672c \U0001f600"


@pytest.fixture
def load(tmp_path):
    """Save a model with its tokenizer, and load it as `tercet play` does."""

    def load(model, tokenizer) -> LoadedModel:
        model.save_pretrained(tmp_path)
        if tokenizer is not None:
            tokenizer.save_pretrained(tmp_path)
        return load_model(str(tmp_path))

    torch.manual_seed(0)
    return load


def characters() -> tuple:
    tokenizer = train_tokenizer(TEXTS * 9, "characters", 40, template="both_ends")
    config = TercetCharacterConfig(
        vocab_size=len(tokenizer), hidden_size=16, initializer_range=0.5, pad_token_id=0
    )
    return TercetCharacterLanguageModel(config), tokenizer


def elmo(task=TercetElmoForLanguageModeling, **fields) -> tuple:
    tokenizer = train_tokenizer(TEXTS, "words", 540)
    model = task(small_config(vocab_size=540, initializer_range=0.5, **fields))
    model.learn_spelling(tokenizer)
    return model, tokenizer


def translator(score: str = "bilinear") -> tuple:
    tokenizer = train_tokenizer(TEXTS * 9, "unigram", 40, template="end")
    config = TercetRecurrentSeq2SeqConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, attention_score=score,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return TercetRecurrentSeq2SeqForConditionalGeneration(config), tokenizer


@pytest.mark.parametrize("build_model", [characters, elmo])
def test_a_model_of_both_directions_continues_by_its_forward_one(build_model, load):
    model, tokenizer = build_model()
    loaded = load(model, tokenizer)
    ability = abilities_of(loaded)["continue"]
    passage, candidates = ability.answer([TEXT], {"temperature": 0, "length": 12, "top": 3})
    given, new = (piece.text for piece in passage.pieces)
    assert (given, len(candidates.entries)) == (TEXT, 3)
    ids = tokenizer(TEXT)["input_ids"][:-1]
    is_text = torch.tensor(
        [idx not in tokenizer.all_special_ids and not name.startswith("##")
         for idx, name in enumerate(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))]
    )  # fmt: skip
    is_text[tokenizer.sep_token_id] = True
    written = []
    while len(written) < 12:
        scores = loaded.model(torch.tensor([ids + written])).forward_logits[0, -1, : len(tokenizer)]
        token = int(scores.where(is_text, -torch.inf).argmax())
        if token == tokenizer.sep_token_id:
            break
        written.append(token)
    assert written
    assert (tokenizer.decode(ids, skip_special_tokens=True) + new) == tokenizer.decode(
        ids + written, skip_special_tokens=True
    )


def test_a_draw_is_repeated_and_another_one_is_another_text(load):
    ability = abilities_of(load(*characters()))["continue"]
    texts = [ability.answer(["the"], {"draw": draw, "length": 30})[0].pieces[1].text for draw in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_a_recurrent_translator_translates(load):
    abilities = abilities_of(load(*translator()))
    assert "translate" in abilities
    assert not {"restore", "write"} & abilities.keys()
    assert abilities["translate"].answer(["the house"], {"length": 5})


def test_elmo_labels_the_words_of_a_sentence(load):
    ability = abilities_of(load(*elmo(TercetElmoForTokenClassification, num_labels=3)))["tag"]
    (passage,) = ability.answer([TEXT], {})
    assert [piece.text for piece in passage.pieces if piece.text.strip()] == TEXT.split()


def test_a_tagger_gives_the_best_sequence(load):
    vectors = build(["the", "bank", "river"], torch.randn(3, 8))
    sizes = {"hidden_size": 16, "num_labels": 4, "initializer_range": 0.5}
    model = TercetTaggerForTokenClassification(
        TercetTaggerConfig(embeddings=[describe(vectors.config, None)], **sizes)
    )
    adopt(model.model.features.parts[0], vectors, None)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    # One path has 0.4, and two that begin with label 1 have 0.3 each.
    model.crf.transitions.data.fill_(-50.0)[[0, 1, 1], [0, 1, 2]] = torch.tensor([0.4, 0.3, 0.3]).log()
    loaded = load(model, word_tokenizer())
    words = ["the", "bank"]
    assert loaded.facts["kind"] == "tagger of words (BiLSTM-CRF)"
    labels = abilities_of(loaded)["tag"].labels(words)
    assert labels == ["LABEL_0", "LABEL_0"]
    inputs = loaded.tokenizer(" ".join(words), return_tensors="pt")
    assert loaded.model(**inputs).logits[0, 0].argmax() == 1


def test_static_vectors_name_what_reads_them(load):
    with pytest.raises(ValueError, match=r"holds static vectors of words.*model.tagger.beside"):
        load(build(["the", "bank"], torch.randn(2, 4)), None)
