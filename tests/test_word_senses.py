"""The example that compares the uses of a word, on small models of several kinds."""

import json

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, AutoTokenizer

from tercet import (
    TercetElmoModel,
    TercetEncoderConfig,
    TercetEncoderModel,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqModel,
    TercetSeq2SeqConfig,
    TercetSeq2SeqModel,
    TercetTaggerConfig,
    TercetTaggerForTokenClassification,
)
from tercet.conversion.word_tokenizer import word_tokenizer
from tercet.text.tokenizer import train_tokenizer

from .examples import load_example
from .small_elmo import small_config
from .small_taggers import save_characters, save_static

SIZES = {
    "vocab_size": 600,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.fixture(scope="module")
def example():
    return load_example("word_senses")


@pytest.fixture(scope="module")
def folders(example, tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    texts = [sentence for _, sentence in example.BANK]
    words, pieces = train_tokenizer(texts, "words", 600), train_tokenizer(texts, "byte_bpe", 300)
    elmo = TercetElmoModel(small_config(vocab_size=600))
    elmo.learn_spelling(words)
    encoder = TercetEncoderModel(TercetEncoderConfig(**SIZES))
    seq2seq = TercetSeq2SeqModel(TercetSeq2SeqConfig(**SIZES))
    recurrent = TercetRecurrentSeq2SeqModel(TercetRecurrentSeq2SeqConfig(vocab_size=600, hidden_size=32))
    for name, model, tokenizer in (
        ("elmo", elmo, words),
        ("encoder", encoder, pieces),
        ("both", seq2seq, pieces),
        ("recurrent", recurrent, pieces),
    ):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def test_every_kind_of_model_has_a_table_and_a_picture(example, folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [str(folders / name) for name in ("elmo", "encoder", "both", "recurrent")]
    assert example.main(names) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1:3] for line in lines[2:-1]] == [
        [f" {name} ", f" {layer} "] for name in names for layer in range(3)
    ]
    assert (tmp_path / lines[-1]).exists()


def test_a_layer_without_context_cannot_tell_senses_apart(example, folders):
    same, different = example.compare(str(folders / "elmo"), example.BANK, "bank")
    assert_close(same[0], different[0])
    assert_close(same[0], torch.tensor(1.0))
    assert (same[1:] < 0.9999).all()


def test_states_are_those_of_the_word(example, folders):
    name = str(folders / "elmo")
    model, tokenizer = AutoModel.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)
    sentence = "She put the money into an Unheardof bank ."
    (expected,) = model.embed_words([sentence.split()])
    assert_close(example.states_of(model, tokenizer, sentence, "unheardof"), expected[:, 6])


def test_models_of_words_have_one_layer(example, tmp_path):
    static, characters = save_static(tmp_path / "static"), save_characters(tmp_path / "characters")
    same, different = example.compare(str(static), example.BANK, "bank")
    assert_close(same, torch.ones(1))
    assert_close(different, torch.ones(1))
    same, different = example.compare(str(characters), example.BANK, "bank")
    assert same.shape == different.shape == (1,)
    assert (same < 0.9999).all()
    model, tokenizer = AutoModel.from_pretrained(characters).eval(), AutoTokenizer.from_pretrained(characters)
    (expected,) = model.embed_words(tokenizer, [["The", "bank", ",", "open", "."]])
    assert_close(example.states_of(model, tokenizer, "The bank, open.", "bank"), expected[1:2].detach())


def test_pairs_of_uses_are_averaged_by_sense(example):
    states = [torch.tensor([each]) for each in ([1.0, 0.0], [2.0, 0.0], [0.0, 3.0])]
    same, different = example.cosines_by_sense(states, ["a", "a", "b"])
    assert (same.tolist(), different.tolist()) == ([1.0], [0.0])
    with pytest.raises(ValueError, match=r"the senses are \['a'\]: give two"):
        example.cosines_by_sense(states, ["a", "a", "a"])


def test_sentences_come_from_a_file(example, tmp_path):
    file = tmp_path / "uses.tsv"
    file.write_text("season\tIt was spring.\nwater\tA spring in the hills.\n", encoding="utf-8")
    assert example.read_uses(file) == [("season", "It was spring."), ("water", "A spring in the hills.")]
    file.write_text("season It was spring.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 1 is 'season It was spring.': write the sense, a tab"):
        example.read_uses(file)


def test_tagged_words_are_compared_in_every_layer(example, folders, tmp_path, capsys):
    rows = [
        {"tokens": ["an", "Order", "of", each], "upos": ["DET", "NOUN", "ADP", "NOUN"]} for each in "abc"
    ] + [{"tokens": ["they", "order", each], "upos": ["PRON", "VERB", "NOUN"]} for each in "abc"]
    file, picture = tmp_path / "rows.jsonl", tmp_path / "senses.png"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = [str(folders / "elmo"), "--tagged", str(file), "--picture", str(picture), "--uses"]
    assert example.main([*arguments, "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 words, 3 uses of each as NOUN and as VERB"
    assert [line.split("|")[2] for line in lines[4:-1]] == [" 0 ", " 1 ", " 2 "]
    assert picture.exists()
    with pytest.raises(SystemExit):
        example.main([*arguments, "4"])
    assert "has 4 uses as each of NOUN and VERB: lower --uses" in capsys.readouterr().err


def test_a_sentence_has_to_have_the_word(example, folders):
    with pytest.raises(ValueError, match="does not have the word 'bank': choose"):
        example.compare(str(folders / "elmo"), [("money", "The banker left.")], "bank")


def test_a_word_may_begin_or_end_with_a_mark(example, folders):
    name = str(folders / "encoder")
    model, tokenizer = AutoModel.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)
    for sentence, word in (("She wrote it in C++ at first.", "C++"), ("The new .NET is out.", ".net")):
        assert example.states_of(model, tokenizer, sentence, word).shape == (3, 32)
    with pytest.raises(ValueError, match=r"does not have the word 'C\+\+'"):
        example.states_of(model, tokenizer, "It is called C++x.", "C++")


def test_a_model_without_layers_of_one_width_is_refused(example, tmp_path):
    TercetTaggerForTokenClassification(TercetTaggerConfig(hidden_size=32)).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="a tercet_tagger returns no layers of states of one width: name"):
        example.compare(str(tmp_path), example.BANK, "bank")
