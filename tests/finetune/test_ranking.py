"""Ranking learns from the rows of a group whatever the batches are, and scores each distinct query once."""

import json
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor, nn
from torch.nn import functional as F

from tercet import TercetEncoderConfig, TercetEncoderForSentenceEmbedding
from tercet.data.steps.batches import StepDataset
from tercet.data.steps.packing import slice_sequences
from tercet.finetune.encoding import TextEncoder
from tercet.finetune.evaluation import evaluate_rows, prediction_loop
from tercet.finetune.tasks.ranking import Ranking, RankingRecipe, group_edges
from tercet.finetune.tasks.task import build_task
from tercet.reports.finetune.summary import bootstrap
from tercet.training.metrics.bootstrap import mean_interval, percentile_interval
from tercet.training.metrics.ranking import ranking_scores

from ..word_level import word_level
from .conftest import sums_of_step

WORDS = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]


def make_model() -> TercetEncoderForSentenceEmbedding:
    torch.manual_seed(0)
    config = TercetEncoderConfig(
        vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=32, pad_token_id=0, classifier_pooling="mean",
    )  # fmt: skip
    return TercetEncoderForSentenceEmbedding(config).eval()


@pytest.fixture
def model() -> TercetEncoderForSentenceEmbedding:
    return make_model()


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    frame = {"split": WhitespaceSplit(), "template": "[CLS] $A [SEP]"}
    tokenizer = word_level(names, unk_token="[UNK]", pad_token="[PAD]", **frame)
    return TextEncoder(tokenizer, max_length=16, has_token_types=False)


def draw(num_rows: int, seed: int = 0) -> Dataset:
    """Draw queries of 1 to 3 words, and texts of 1 to 6, of which some occur again, also as queries."""
    rng = np.random.default_rng(seed)

    def texts(longest: int) -> list[str]:
        return [" ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(num_rows)]

    rows = {"query": texts(3), "positive": texts(6), "negative": texts(6)}
    rows["query"][3], rows["query"][5] = rows["query"][1], rows["query"][0]
    rows["positive"][5], rows["positive"][2] = rows["positive"][0], rows["positive"][4]
    rows["negative"][1] = rows["positive"][3]
    rows["positive"][7], rows["negative"][6] = rows["query"][6], rows["query"][6]
    return Dataset.from_dict(rows)


def make_task(rows: Dataset, **changes: Any) -> Ranking:
    recipe = RankingRecipe(**({"kind": "ranking", "group_size": 4} | changes))
    task = build_task(recipe, rows)
    assert isinstance(task, Ranking)
    return task


def whole_batch(task: Ranking, rows: Dataset, encoder: TextEncoder) -> dict[str, Any]:
    examples = task.examples(rows, encoder)
    return task.objective().collate(examples.pack(np.arange(len(rows))), 0)


def vector_of(model: nn.Module, encoder: TextEncoder, text: str) -> Tensor:
    ids = torch.tensor(encoder.tokenizer(text)["input_ids"])[None]
    return model(input_ids=ids).sentence_embeddings[0]


def slow_loss(model: nn.Module, encoder: TextEncoder, rows: list[dict], temperature: float) -> Tensor:
    """Sum the loss of a group's queries, one by one, text by text."""
    negatives = [row["negative"] for row in rows if "negative" in row]
    vectors = {text: vector_of(model, encoder, text) for row in rows for text in row.values()}
    total = torch.zeros(())
    for row in rows:
        own = [other["positive"] for other in rows if other["query"] == row["query"]]
        against = [other["positive"] for other in rows] + negatives
        texts = [row["positive"], *(text for text in against if text not in (*own, row["query"]))]
        cosines = torch.stack([vectors[row["query"]] @ vectors[text] for text in texts])
        total = total + torch.logsumexp(cosines / temperature, 0) - cosines[0] / temperature
    return total


@pytest.mark.parametrize("count", [5, 11, 14, 37])
@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_groups_cut_out_of_a_split_are_the_same_groups(count, size):
    edges = group_edges(count, size)
    for first, last in combinations(range(len(edges)), 2):
        own = group_edges(int(edges[last] - edges[first]), size) + edges[first]
        assert own.tolist() == edges[first : last + 1].tolist()


@pytest.mark.parametrize("negative", [None, "negative"])
def test_the_loss_is_that_of_single_texts(model, encoder, negative):
    rows = draw(10)
    task = make_task(rows, negative=negative, temperature=0.1)
    objective, batch = task.objective(), whole_batch(task, rows, encoder)
    assert int(objective.targets(batch)["query"]) == 10
    columns = task.recipe.columns
    single = [{column: row[column] for column in columns} for row in rows]
    groups = pairwise(group_edges(10, 4))
    expected = sum(slow_loss(model, encoder, single[first:last], 0.1) for first, last in groups)
    loss = objective.losses(model, batch)["query"]
    torch.testing.assert_close(loss, expected)
    parameters = list(model.parameters())
    found, wanted = torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_losses_of_micro_batches_add_up(model, encoder):
    rows = draw(10)
    task = make_task(rows, negative="negative", group_size=3)
    objective, batch = task.objective(), whole_batch(task, rows, encoder)
    whole = objective.losses(model, batch)["query"]
    cut = [slice_sequences(batch, group, group + 1) for group in range(3)]
    assert [int(objective.targets(part)["query"]) for part in cut] == [3, 3, 4]
    torch.testing.assert_close(sum(objective.losses(model, part)["query"] for part in cut), whole)


@pytest.mark.parametrize("tokens_per_micro_batch", [60, 100_000])
def test_processes_learn_together_what_one_learns_alone(model, encoder, tokens_per_micro_batch):
    rows = draw(24)
    task = make_task(rows)
    step = model, task.objective(), task.examples(rows, encoder)
    alone = sums_of_step(*step, limit=100_000)[:2]
    for num_processes in (2, 3):
        assert sums_of_step(*step, tokens_per_micro_batch, num_processes)[:2] == pytest.approx(alone)


def test_a_step_of_fewer_groups_than_processes_is_refused(encoder):
    rows = draw(8)
    task = make_task(rows, group_size=8)
    examples = task.examples(rows, encoder)
    steps = StepDataset(
        examples, task.objective(), tokens_per_step=int(examples.lengths.sum()),
        tokens_per_micro_batch=1000, seed=0, num_processes=2,
    )  # fmt: skip
    with pytest.raises(
        ValueError, match=r"8 examples make 1 sequences for 2 processes: raise .* smaller groups"
    ):
        steps[0, 0]


def test_texts_that_belong_to_the_query_are_no_negatives(model, encoder):
    """Query a has nothing to be told from: only b teaches."""
    rows = Dataset.from_dict(
        {"query": ["a", "a", "b"], "positive": ["x", "y", "x"], "negative": ["y", "x", "x"]}
    )
    task = make_task(rows, negative="negative", temperature=1.0)
    batch = whole_batch(task, rows, encoder)
    query, right, wrong = (vector_of(model, encoder, text) for text in "bxy")
    expected = F.cross_entropy(
        torch.stack([query @ right, query @ wrong, query @ wrong])[None], torch.tensor([0])
    )
    torch.testing.assert_close(task.objective().losses(model, batch)["query"], expected)


def test_answers_come_in_the_order_of_the_rows(model, encoder):
    rows = draw(9)
    task = make_task(rows)
    examples = task.examples(rows, encoder)
    answers, loss = prediction_loop(model, task.objective(), examples, tokens_at_once=30)
    assert loss > 0
    for row, answer in zip(rows, answers, strict=True):
        for column, vector in zip(("query", "positive"), answer, strict=True):
            expected = vector_of(model, encoder, row[column]).detach()
            torch.testing.assert_close(torch.from_numpy(vector), expected)


@pytest.mark.parametrize("count", [12, 14])
def test_held_out_queries_have_as_many_negatives_however_long_the_texts_are(model, encoder, count):
    rows = draw(count)
    task = make_task(rows, group_size=4)
    examples = task.examples(rows, encoder)
    losses = [prediction_loop(model, task.objective(), examples, tokens)[1] for tokens in (1, 60, 8192)]
    assert losses[1:] == pytest.approx(losses[:1] * 2)
    assert losses[0] > 1


def test_scores_are_those_of_a_search_among_distinct_texts(model, encoder):
    rows = draw(12)
    task = make_task(rows, negative="negative")
    judged = evaluate_rows(model, task, rows, task.examples(rows, encoder))
    queries = list(dict.fromkeys(rows["query"]))
    documents = list(dict.fromkeys([*rows["positive"], *rows["negative"]]))
    assert len(queries) == 10
    assert len(documents) < 24
    vectors = {text: vector_of(model, encoder, text).detach() for text in [*queries, *documents]}
    similarities = np.array(
        [[float(vectors[query] @ vectors[document]) for document in documents] for query in queries]
    )
    relevant = [
        {documents.index(row["positive"]) for row in rows if row["query"] == query} for query in queries
    ]
    assert {len(each) for each in relevant} == {1, 2}
    similarities[queries.index(rows["query"][6]), documents.index(rows["query"][6])] = -np.inf
    expected = ranking_scores(similarities, relevant)
    assert {name: judged.scores[name] for name in expected} == pytest.approx(expected)
    assert set(judged.scores) == set(task.metrics)
    prediction = json.loads(json.dumps(judged.predictions[3]))
    assert prediction == judged.predictions[1]  # the same query
    order = np.argsort(-similarities[1])[:10]
    assert prediction["ranked"] == [documents[document] for document in order]
    assert prediction["similarities"] == pytest.approx(similarities[1, order].tolist(), abs=1e-5)


def test_a_query_is_not_told_from_itself(model, encoder):
    """In a chain a-b-c, b is a document; and z belongs to z, which its row says."""
    rows = Dataset.from_dict({"query": ["a", "b", "z"], "positive": ["b", "c", "z"]})
    task = make_task(rows, temperature=1.0)
    a, b, c, z = (vector_of(model, encoder, text) for text in "abcz")
    against = [(a, (b, c, z)), (b, (c, z)), (z, (z, b, c))]
    logits = [torch.stack([query @ text for text in texts])[None] for query, texts in against]
    expected = sum(F.cross_entropy(own, torch.tensor([0])) for own in logits)
    torch.testing.assert_close(
        task.objective().losses(model, whole_batch(task, rows, encoder))["query"], expected
    )

    perfect = {"a": [0.6, 0.3, 0.0], "b": [0.5, 0.5, 0.0], "c": [0.0, 0.9, 0.1], "z": [0.0, 0.0, 1.0]}
    pairs = zip(rows["query"], rows["positive"], strict=True)
    found = task.predictions([np.array([perfect[query], perfect[own]]) for query, own in pairs], rows)
    assert [each["ranked"] for each in found] == [["b", "c", "z"], ["c", "z"], ["z", "c", "b"]]
    assert [each["mrr"] for each in found] == [1.0, 1.0, 1.0]
    assert all(len(each["similarities"]) == len(each["ranked"]) for each in found)
    train = Dataset.from_dict({"query": ["x"], "positive": ["b"]})
    assert [each["ranked"] for each in task.guess(train, rows)] == [
        ["b", "c", "z"],
        ["c", "z"],
        ["b", "c", "z"],
    ]


def test_a_query_counts_once_however_many_rows_it_has():
    rows = Dataset.from_dict({"query": ["a", "b", "a", "a"], "positive": ["x", "y", "z", "x"]})
    task = make_task(rows)
    references = task.references(rows)
    assert [reference.is_first_of_query for reference in references] == [True, True, False, False]
    assert [task.format_reference(reference) for reference in references] == ["x | z", "y", "x | z", "x | z"]
    names = [name for name in task.metrics if name != "loss"]
    predictions = [{"ranked": ["y"]} | dict.fromkeys(names, value) for value in (0.5, 1.0, 0.5, 0.5)]
    assert task.score(predictions, references) == dict.fromkeys(names, 0.75)
    assert task.drawn_rows(references) == [0, 1]
    assert task.error(predictions, references).tolist() == [0.5, 0, 0.5, 0.5]
    assert task.format_prediction(predictions[0]) == "y"


def test_the_interval_is_that_of_as_many_different_queries():
    values = np.random.default_rng(0).random(40)
    once = Dataset.from_dict({"query": [str(i) for i in range(40)], "positive": [f"x{i}" for i in range(40)]})
    often = once.select([row for row in range(40) for _ in range(3)])
    intervals = []
    for rows, repeated in ((once, values), (often, values.repeat(3))):
        task = make_task(rows)
        predicted = [{"mrr": value} for value in repeated]
        intervals.append(percentile_interval(bootstrap(task, predicted, task.references(rows))))
    assert intervals[0] == intervals[1] == mean_interval(values)


def test_without_reading_the_most_frequent_text_comes_first():
    rows = Dataset.from_dict({"query": ["a", "b", "c"], "positive": ["x", "y", "z"]})
    train = Dataset.from_dict({"query": ["d", "e", "f"], "positive": ["y", "y", "z"]})
    task = make_task(train)
    guesses = task.guess(train, rows)
    assert [guess["ranked"] for guess in guesses] == [["y", "z", "x"]] * 3
    assert [guess["mrr"] for guess in guesses] == [1 / 3, 1, 1 / 2]
    new = Dataset.from_dict({"query": ["a", "b"], "positive": ["p", "q"]})
    assert [guess["mrr"] for guess in task.guess(train, new)] == [1 / 2, 1 / 2]


def test_nothing_can_be_learned_from_one_text():
    rows = Dataset.from_dict({"query": ["a", "b"], "positive": ["x", "x"]})
    with pytest.raises(ValueError, match=r"all rows have the same text in positive: there is nothing"):
        make_task(rows)


def test_a_row_without_its_negative_is_named(encoder):
    rows = draw(8).to_dict()
    rows["negative"][2] = ""
    with pytest.raises(ValueError, match=r"row 3 has no text in column 'negative'"):
        make_task(Dataset.from_dict(rows), negative="negative")
