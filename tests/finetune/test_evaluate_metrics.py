"""Modules of `evaluate` give the scores of this folder, offline and without leaving files."""

import socket
import tempfile

import evaluate
import evaluate.config
import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from tercet.finetune.evaluate_metrics import METRICS, Bleu, load_metric
from tercet.metrics.answers import answer_scores
from tercet.metrics.labels import label_scores, set_scores
from tercet.metrics.numbers import number_scores
from tercet.metrics.ranking import ranking_scores
from tercet.metrics.spans import span_scores
from tercet.metrics.texts import bleu, text_scores
from tercet.modeling import TercetEncoderConfig, TercetEncoderForSequenceClassification

RNG = np.random.default_rng(0)
LABELS, RIGHT_LABELS = RNG.integers(2, size=(2, 20))
SETS, RIGHT_SETS = RNG.integers(2, size=(2, 20, 3))
PROBABILITIES = RNG.dirichlet([1, 1], size=20)
NUMBERS, RIGHT_NUMBERS = RNG.normal(size=(2, 20))
TAGS, RIGHT_TAGS = [["B-A", "I-A", "O"], ["I-B"]], [["B-A", "I-A", "O"], ["O"]]
ANSWERS, RIGHT_ANSWERS = ["the cat", "", "dog"], [["cat", "cats"], [], ["a big dog"]]
TEXTS, RIGHT_TEXTS = ["a cat sat here", "我爱北京", "x"], ["a cat sat there", "我在北京", "x"]
SIMILARITIES, RELEVANT = np.round(RNG.normal(size=(3, 15)), 1), [{0}, {3, 4}, {14, 2}]
SCORES_OF_LABELS = label_scores(np.eye(2)[LABELS], RIGHT_LABELS)
CASES = {
    "accuracy": (LABELS, RIGHT_LABELS, SCORES_OF_LABELS),
    "f1": (LABELS, RIGHT_LABELS, SCORES_OF_LABELS),
    "f1_macro": (LABELS, RIGHT_LABELS, SCORES_OF_LABELS),
    "f1_micro": (LABELS, RIGHT_LABELS, {"f1_micro": SCORES_OF_LABELS["accuracy"]}),
    "matthews_correlation": (LABELS, RIGHT_LABELS, SCORES_OF_LABELS),
    "calibration_error": (PROBABILITIES, RIGHT_LABELS, label_scores(PROBABILITIES, RIGHT_LABELS)),
    "label_sets": (SETS, RIGHT_SETS, set_scores(SETS, RIGHT_SETS)),
    "pearson": (NUMBERS, RIGHT_NUMBERS, number_scores(NUMBERS, RIGHT_NUMBERS)),
    "spearman": (NUMBERS, RIGHT_NUMBERS, number_scores(NUMBERS, RIGHT_NUMBERS)),
    "mean_squared_error": (NUMBERS, RIGHT_NUMBERS, number_scores(NUMBERS, RIGHT_NUMBERS)),
    "span_f1": (TAGS, RIGHT_TAGS, span_scores(TAGS, RIGHT_TAGS)),
    "squad": (ANSWERS, RIGHT_ANSWERS, answer_scores(ANSWERS, RIGHT_ANSWERS)),
    "bleu": (TEXTS, RIGHT_TEXTS, text_scores(TEXTS, RIGHT_TEXTS)),
    "chrf": (TEXTS, RIGHT_TEXTS, text_scores(TEXTS, RIGHT_TEXTS)),
    "rouge": (TEXTS, RIGHT_TEXTS, text_scores(TEXTS, RIGHT_TEXTS)),
    "exact_match": (TEXTS, RIGHT_TEXTS, text_scores(TEXTS, RIGHT_TEXTS)),
    "mrr": (SIMILARITIES, list(map(list, RELEVANT)), ranking_scores(SIMILARITIES, RELEVANT)),
    "ndcg@10": (SIMILARITIES, list(map(list, RELEVANT)), ranking_scores(SIMILARITIES, RELEVANT)),
}


@pytest.fixture(autouse=True)
def no_network_and_no_files(monkeypatch, tmp_path):
    """Let every connection fail, and find nothing afterwards where a metric could have written."""

    def refuse(*_):
        raise AssertionError("a metric wants to connect")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(evaluate.config, "HF_METRICS_CACHE", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.rglob("*")) == []


def test_every_metric_has_a_case():
    assert set(CASES) == set(METRICS)


@pytest.mark.parametrize("name", METRICS)
def test_metrics_give_the_scores_of_the_functions(name):
    predictions, references, expected = CASES[name]
    metric = load_metric(name)
    scores = metric.compute(predictions=predictions, references=references)
    assert scores
    assert scores == pytest.approx({score: expected[score] for score in scores})
    assert metric.description


@pytest.mark.parametrize("name", METRICS)
def test_batches_and_single_examples_give_the_scores_of_all(name):
    predictions, references, _ = CASES[name]
    metric = load_metric(name)
    expected = metric.compute(predictions=predictions, references=references)
    metric.add_batch(predictions=predictions[:1], references=references[:1])
    for prediction, reference in zip(predictions[1:], references[1:], strict=True):
        metric.add(prediction=prediction, reference=reference)
    assert metric.compute() == expected


def test_combined_metrics_give_all_scores():
    names = ("accuracy", "f1", "f1_macro", "matthews_correlation")
    metric = evaluate.combine([load_metric(name) for name in names])
    scores = metric.compute(predictions=LABELS, references=RIGHT_LABELS)
    assert scores == pytest.approx({name: SCORES_OF_LABELS[name] for name in names})


def test_options_are_chosen_when_a_metric_is_built():
    scores = Bleu("zh").compute(predictions=TEXTS, references=RIGHT_TEXTS)
    assert scores == {"bleu": bleu(TEXTS, RIGHT_TEXTS, "zh")}
    with pytest.raises(TypeError, match="average"):
        load_metric("f1").compute(predictions=[0, 1], references=[0, 1], average="macro")


def test_unknown_metric_is_refused():
    with pytest.raises(ValueError, match=r"no metric 'acuracy': choose one of accuracy, f1, "):
        load_metric("acuracy")


def test_evaluator_measures_a_model():
    """It takes a model and a tokenizer; with a pipeline, evaluate 0.4.6 asks for what transformers 4 had."""
    words = ["<pad>", "<unk>", *"abcdefgh"]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", model_max_length=16
    )
    torch.manual_seed(0)
    model = TercetEncoderForSequenceClassification(
        TercetEncoderConfig(
            vocab_size=len(words), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=32, initializer_range=0.3, pad_token_id=0,
            id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1},
        )
    ).eval()  # fmt: skip
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words[2:], size=rng.integers(1, 9))) for _ in range(20)]
    labels = rng.integers(2, size=20)
    with torch.no_grad():
        logits = [model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts]
    expected = label_scores(np.stack(logits), labels)

    scores = evaluate.evaluator("text-classification").compute(
        model,
        Dataset.from_dict({"text": texts, "label": labels.tolist()}),
        metric=evaluate.combine([load_metric("accuracy"), load_metric("f1_macro")]),
        tokenizer=tokenizer,
        label_mapping=model.config.label2id,
        device=-1,
    )
    assert scores["accuracy"] == pytest.approx(expected["accuracy"])
    assert scores["f1_macro"] == pytest.approx(expected["f1_macro"])
    assert 0 < scores["accuracy"] < 1
