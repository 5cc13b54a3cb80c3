"""Labels, answers and choices are those of `tercet predict`, or of a stock model's head."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

from tercet.data.files.columns import as_rows
from tercet.finetune.prediction import Predictor
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.tools.play.labels import labelled_pieces, span_probabilities
from tercet.tools.play.loaded_model import load_model
from tercet.tools.play.sessions import abilities_of

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = "The cat sat on the roof."


@pytest.fixture(scope="module")
def predicted(folders):
    """Predict a row as `tercet predict` does."""

    def ask(name, **row):
        predictor = Predictor(Checkpoint.open(str(folders / name / "model")))
        return predictor.predict(as_rows({column: [value] for column, value in row.items()}))[0]

    return ask


@pytest.fixture
def stock(load, tmp_path):
    """Save a stock BERT with a head, and load it to play with."""

    def make(kind, **fields):
        tokenizer = load("encoder").tokenizer
        config = BertConfig(vocab_size=len(tokenizer), **SIZES, **fields)
        torch.manual_seed(0)
        kind(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return load_model(str(tmp_path))

    return make


def test_labels_are_ranked_as_predicted(load, predicted):
    (ranking,) = abilities_of(load("classifier"))["classify"].answer([TEXT], {})
    expected = predicted("classifier", text=TEXT)
    assert {entry.text: entry.value for entry in ranking.entries} == expected["scores"]
    assert ranking.entries[0].text == expected["label"]


def test_words_have_the_labels_that_are_predicted(load, predicted):
    (passage,) = abilities_of(load("tagger"))["tag"].answer([TEXT], {})
    words = ["The", "cat", "sat", "on", "the", "roof", "."]
    tags = predicted("tagger", tokens=words)["tags"]
    assert passage.text == TEXT
    expected = [(word, tag) for word, tag in zip(words, tags, strict=True) if tag != "O"]
    assert [(each.text, each.label) for each in passage.pieces if each.role == "labelled"] == expected


def test_the_answer_to_a_question_is_the_predicted_one(load, predicted):
    ranking, passage = abilities_of(load("reader"))["answer"].answer(["Where?", TEXT], {})
    expected = predicted("reader", question="Where?", context=TEXT)
    assert (ranking.entries[0].text, ranking.entries[0].value) == (expected["answer"], expected["score"])
    assert passage.text == TEXT
    assert [piece.text for piece in passage.pieces if piece.role == "new"] == [expected["answer"]]
    assert len(passage.pieces[0].text) == expected["answer_start"]


def test_an_answer_that_occurs_twice_is_marked_where_it_was_found(load):
    ability = abilities_of(load("reader"))["answer"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(ability), "best", lambda *_: (11, 15, 0.9))
        _, passage = ability.answer(["When?", "1990, then 1990."], {})
    assert [(piece.text, piece.role) for piece in passage.pieces] == [
        ("1990, then ", "plain"),
        ("1990", "new"),
        (".", "plain"),
    ]


def test_choices_are_ranked_as_predicted(load, predicted):
    choices = ["the cat sat", "the dog ran", "it sat"]
    ranking, _ = abilities_of(load("chooser"))["choose"].answer(["The cat", "\n".join(choices)], {})
    expected = predicted("chooser", query="The cat", choices=choices)["scores"]
    assert {entry.text: entry.value for entry in ranking.entries} == dict(zip(choices, expected, strict=True))


def test_a_stock_classifier_gives_the_softmax_of_its_head(stock):
    model = stock(BertForSequenceClassification, id2label={0: "bad", 1: "good", 2: "odd"})
    (ranking,) = abilities_of(model)["classify"].answer([TEXT], {})
    with torch.no_grad():
        logits = model.model(**model.tokenizer(TEXT, return_tensors="pt")).logits[0]
    expected = dict(zip(["bad", "good", "odd"], logits.softmax(dim=-1).tolist(), strict=True))
    assert {entry.text: entry.value for entry in ranking.entries} == pytest.approx(expected)


def test_a_stock_classifier_of_several_labels_gives_each_its_own_probability(stock):
    kind = {"problem_type": "multi_label_classification", "id2label": {0: "bad", 1: "good"}}
    model = stock(BertForSequenceClassification, **kind)
    with torch.no_grad():
        logits = model.model(**model.tokenizer(TEXT, return_tensors="pt")).logits[0]
    (ranking,) = abilities_of(model)["classify"].answer([TEXT], {})
    assert sorted(entry.value for entry in ranking.entries) == pytest.approx(
        logits.sigmoid().sort()[0].tolist()
    )


def test_a_stock_regression_gives_a_number(stock):
    model = stock(BertForSequenceClassification, num_labels=1)
    with torch.no_grad():
        expected = model.model(**model.tokenizer(TEXT, return_tensors="pt")).logits.item()
    (ranking,) = abilities_of(model)["classify"].answer([TEXT], {})
    assert ranking.entries[0].value == pytest.approx(expected)
    assert "%" not in ranking.entries[0].shown


def test_a_stock_tagger_labels_a_word_by_its_first_token(stock):
    model = stock(BertForTokenClassification, id2label={0: "O", 1: "B-X", 2: "I-X"})
    words = ["The", "strings", "sat"]
    encoded = model.tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        best = model.model(input_ids=encoded["input_ids"]).logits[0].argmax(dim=-1).tolist()
    owners = encoded.word_ids(0)
    expected = [model.config.id2label[best[owners.index(word)]] for word in range(3)]
    assert abilities_of(model)["tag"].labels(words) == expected


def test_a_stock_reader_gives_the_most_probable_span_of_the_text(stock):
    model = stock(BertForQuestionAnswering)
    ranking, _ = abilities_of(model)["answer"].answer(["Where?", TEXT], {})
    answer, score = ranking.entries[0].text, ranking.entries[0].value
    assert answer
    assert answer in TEXT
    assert 0 < score <= 1


def test_spans_neither_end_before_they_begin_nor_leave_the_text():
    starts, ends = torch.tensor([9.0, 0.0, 3.0, 0.0]), torch.tensor([9.0, 2.0, 0.0, 1.0])
    inside = torch.tensor([False, True, True, True])
    table = span_probabilities(starts, ends, inside)
    assert not table[0].any()
    assert not table[:, 0].any()
    assert table[2, 1] == 0
    first, last = starts[1:].softmax(0), ends[1:].softmax(0)
    assert table[2, 3] == pytest.approx((first[1] * last[2]).item())


def test_a_word_that_occurs_twice_is_labelled_where_it_stands():
    pieces = labelled_pieces("go Go go", ["go", "Go", "go"], ["O", "B-X", "B-Y"])
    expected = [("go ", ""), ("Go", "B-X"), (" ", ""), ("go", "B-Y")]
    assert [(piece.text, piece.label) for piece in pieces] == expected
