"""Fast scores are the definition's: whatever is shared, cached, padded, packed or hidden."""

import random

import pytest
import torch

from tercet.fewshot.prompts.boundary import Prompt, SpecialTokenPolicy
from tercet.fewshot.scoring import decoder_scoring, few_positions
from tercet.fewshot.scoring.definition import OneByOne, score_of
from tercet.fewshot.scoring.prefix_tree import find_families, grow_trees

from .conftest import WORDS

DECODERS = [
    "decoder",
    "decoder-learned",
    "decoder-biased",
    "decoder-sliding",
    "decoder-eager",
    "decoder-additive",
    "gpt2",
    "llama",
    "roberta",
    "mamba",
    "lfm2",
]
HIDINGS = ["original", "within_word", "whole_answer"]
WAYS = [(name, "original") for name in (*DECODERS, "seq2seq", "bart", "t5")]
WAYS += [(name, hiding) for name in ("encoder", "bert", "decoder-masked") for hiding in HIDINGS]

SHARED = "Question: what is unbelievable? Answer: the newspapers were. " * 2
"""A description that all prompts begin with, longer than the least prefix that is cached."""

CHOICES = (
    (" yes", " no", " unbelievable houses ran"),
    (" a big cat", " a big dog", " no"),
    (" positive", " negative"),
)


def prompts(shared=SHARED):
    """Ask for three kinds of choices behind eight questions, and for whole sentences."""
    draw = random.Random(0)
    questions = [" ".join(draw.choices(WORDS[:13], k=draw.randint(3, 9))) for _ in range(8)]
    asked = [
        Prompt(f"{shared}{text}", CHOICES[number % 3], suffix=" .") for number, text in enumerate(questions)
    ]
    return [*asked, Prompt("", ("the cat sat under the tree .", "the cat sat under tree the ."))]


def requests_of(subject, policy=SpecialTokenPolicy(), shared=SHARED):  # noqa: B008
    return [each for own in subject.prompts(policy).encode(prompts(shared)) for each in own]


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.log_likelihoods == pytest.approx(other.log_likelihoods, abs=1e-5)
        assert one.is_greedy == other.is_greedy


@pytest.mark.parametrize("shared", [SHARED, ""], ids=["shared", "apart"])
@pytest.mark.parametrize(("name", "hiding"), WAYS)
def test_scores_are_those_of_the_definition(name, hiding, shared, subject):
    asked = subject(name)
    requests = requests_of(asked, shared=shared)
    found = asked.scorer(400, hiding).score_all(requests)
    assert_equal(found, asked.scorer(1, hiding, one_by_one=True).score_all(requests))


@pytest.mark.parametrize(
    "name", ["decoder", "decoder-sliding", "gpt2", "seq2seq", "bart", "encoder", "bert", "decoder-masked"]
)
def test_batches_and_their_pads_change_nothing(name, subject):
    asked = subject(name)
    requests = requests_of(asked)
    alone, together = (asked.scorer(budget, "within_word").score_all(requests) for budget in (1, 100_000))
    assert_equal(alone, together)
    backwards = asked.scorer(300, "within_word").score_all(requests[::-1])[::-1]
    assert_equal(backwards, alone)


@pytest.mark.parametrize("name", ["decoder", "gpt2", "llama"])
def test_what_is_shared_is_read_once(name, subject, monkeypatch):
    asked, read = subject(name), 0
    model = asked.model.model if name == "decoder" else asked.model
    forward = model.forward

    def counting(input_ids=None, *args, **kwargs):
        nonlocal read
        read += input_ids.numel()
        return forward(input_ids, *args, **kwargs)

    requests = requests_of(asked)[:-2]
    monkeypatch.setattr(model, "forward", counting)
    asked.scorer(400, "original").score_all(requests)
    assert read < sum(len(request.ids) for request in requests) * (0.3 if name == "decoder" else 0.6)


@pytest.mark.parametrize("name", ["decoder", "gpt2", "seq2seq", "encoder"])
def test_only_answers_reach_the_vocabulary(name, subject):
    asked, rows = subject(name), 0

    def count(module, inputs, output):
        nonlocal rows
        rows += output.numel() // output.shape[-1]

    requests = requests_of(asked)
    head = asked.model.get_output_embeddings()
    hook = head.register_forward_hook(count)
    asked.scorer(400, "original").score_all(requests)
    hook.remove()
    assert rows <= 1 + sum(len(request.answer) for request in requests)


@pytest.mark.parametrize("name", ["decoder", "decoder-learned", "decoder-eager"])
def test_rows_may_read_their_common_beginning_in_several_turns(name, subject, monkeypatch):
    asked = subject(name)
    requests = requests_of(asked)
    together = asked.scorer(100_000, "original").score_all(requests)
    monkeypatch.setattr(decoder_scoring, "MOST_SCORES", {"cpu": 1})
    assert_equal(asked.scorer(100_000, "original").score_all(requests), together)


@pytest.mark.parametrize("name", ["decoder", "gpt2", "seq2seq", "encoder"])
def test_logits_may_come_in_several_parts(name, subject, monkeypatch):
    asked = subject(name)
    requests = requests_of(asked)
    together = asked.scorer(400, "original").score_all(requests)
    monkeypatch.setattr(few_positions, "MOST_LOGITS", 5000)
    monkeypatch.setattr(few_positions, "MOST_IN_CACHE", {"cpu": 1000})
    assert_equal(asked.scorer(400, "original").score_all(requests), together)


def test_of_equal_logits_none_is_the_likeliest():
    logits = torch.tensor([[0.0, 2.0, 2.0], [1.0, 1.0, 3.0]])
    row, token = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 2, 2, 0])
    likeliest = few_positions.are_likeliest(logits, row, token).tolist()
    assert likeliest == [False, False, True, False]
    pairs = zip(row.tolist(), token.tolist(), strict=True)
    assert likeliest == [score_of(logits[[row]], (token,)).is_greedy for row, token in pairs]


def test_clozes_that_hide_the_same_are_read_once(subject, monkeypatch):
    asked, read = subject("encoder"), 0
    forward = asked.model.model.forward

    def counting(input_ids, **arguments):
        nonlocal read
        read += input_ids.numel()
        return forward(input_ids, **arguments)

    monkeypatch.setattr(asked.model.model, "forward", counting)
    requests = asked.prompts(SpecialTokenPolicy()).encode(
        [Prompt("the cat", (" sat", " ran", " saw"), " .")]
    )[0]
    assert [len(request.answer) for request in requests] == [1, 1, 1]
    asked.scorer(400, "original").score_all(requests)
    assert read == len(requests[0].ids)


def test_a_tree_reads_common_tokens_once_and_sees_ancestors_only(subject):
    requests = (
        subject("decoder")
        .prompts(SpecialTokenPolicy())
        .encode([Prompt("the cat", (" sat under", " sat over"))])[0]
    )
    (family,) = find_families(requests)
    (tree,) = grow_trees(requests, family)
    together = len(requests[0].context) + len(requests[0].answer) - 1
    assert len(tree.tokens) < 2 * together
    for node, sees in enumerate(tree.ancestors()):
        path, parent = {node}, tree.parents[node]
        while parent >= 0:
            path.add(parent)
            parent = tree.parents[parent]
        assert set(sees.nonzero()[0]) == path
        assert tree.depths[node] == len(path) - 1


@torch.inference_mode()
def test_pseudo_log_likelihood_hides_one_token_at_a_time(subject):
    asked = subject("encoder")
    (request,) = asked.prompts(SpecialTokenPolicy()).encode([Prompt("the", (" treehouse catfish",), " ran")])[
        0
    ]
    words = request.words
    assert len(set(words)) == 2 < len(words)  # otherwise the two ways to hide would be one
    for hiding in ("original", "within_word"):
        expected = []
        for place, token in enumerate(request.answer):
            ids = torch.tensor([request.ids])
            for other in range(place, len(words)):
                if other == place or (hiding == "within_word" and words[other] == words[place]):
                    ids[0, len(request.context) + other] = asked.tokenizer.mask_token_id
            logits = asked.model(ids).logits[0, len(request.context) + place]
            expected.append(logits.log_softmax(-1)[token].item())
        (score,) = asked.scorer(100, hiding).score_all([request])
        assert score.log_likelihoods == pytest.approx(expected, abs=1e-5)
    one_token = asked.prompts(SpecialTokenPolicy()).encode([Prompt("the", (" cat",), " ran")])[0]
    values = [asked.scorer(100, hiding).score_all(one_token)[0].total for hiding in HIDINGS]
    assert values == pytest.approx([values[0]] * 3, abs=1e-6)


def test_definition_is_what_transformers_calls_the_loss(subject):
    asked = subject("gpt2")
    (request,) = asked.prompts(SpecialTokenPolicy()).encode([Prompt("the cat", (" sat under",))])[0]
    ids = torch.tensor([request.ids])
    labels = ids.clone()
    labels[:, : len(request.context)] = -100
    loss = asked.model(ids, labels=labels).loss.item()
    (score,) = OneByOne(asked.model, "decoder").score_all([request])
    assert -score.total == pytest.approx(loss * len(request.answer), rel=1e-5)
