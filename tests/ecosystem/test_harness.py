"""lm-evaluation-harness reads our models: what it measures is what their logits say."""

import json
from typing import Any

import pytest
import torch
import yaml

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

QUESTIONS = [
    {"question": "the quick brown fox jumps over the lazy", "choices": ["dog", "old king"], "answer": 0},
    {"question": "in the cold night the old", "choices": ["queen", "king told", "snow"], "answer": 1},
    {"question": "she saw a white", "choices": ["bird", "boat in the sea"], "answer": 0},
    {"question": "rain and", "choices": ["wind", "light", "fish", "stone"], "answer": 2},
]

generating = pytest.mark.parametrize("member", ["decoder", "seq2seq"])


@pytest.fixture
def harness(build, writer):
    """Give the function that puts a small model into the harness."""

    def harness(member):
        model = build(member)
        return HFLM(
            model, tokenizer=writer, backend="causal" if member == "decoder" else "seq2seq", batch_size=3
        )

    return harness


def log_likelihood(model, tokenizer, context, continuation):
    """Log-probability of a continuation by itself, and whether each of its tokens is the likeliest."""
    before, after = (tokenizer(text, return_tensors="pt")["input_ids"] for text in (context, continuation))
    if model.config.is_encoder_decoder:
        scores = model(input_ids=before, labels=after).logits[0]
    else:
        scores = model(torch.cat((before, after), dim=1)).logits[0, before.shape[1] - 1 : -1]
    chosen = scores.log_softmax(-1).gather(-1, after[0, :, None])
    return chosen.sum().item(), bool((scores.argmax(-1) == after[0]).all())


def ask(kind, *arguments):
    """Make the harness's requests."""
    return [Instance(kind, {}, each, index) for index, each in enumerate(arguments)]


@torch.no_grad()
@pytest.mark.ecosystem("lm-eval", "`HFLM.loglikelihood`")
@generating
def test_likelihoods_are_those_of_the_logits(member, harness, build, writer):
    model = harness(member)
    pairs = [(row["question"], f" {choice}") for row in QUESTIONS for choice in row["choices"]]
    for pair, (found, is_greedy) in zip(
        pairs, model.loglikelihood(ask("loglikelihood", *pairs)), strict=True
    ):
        expected, is_likeliest = log_likelihood(build(member), writer, *pair)
        assert found == pytest.approx(expected, rel=1e-4)
        assert is_greedy == is_likeliest


@torch.no_grad()
@pytest.mark.ecosystem("lm-eval", "`HFLM.loglikelihood_rolling`", member="decoder")
def test_perplexities_are_those_of_the_logits(harness, build, writer, texts):
    found = harness("decoder").loglikelihood_rolling(
        ask("loglikelihood_rolling", *[(text,) for text in texts])
    )
    for text, value in zip(texts, found, strict=True):
        assert value == pytest.approx(log_likelihood(build("decoder"), writer, "[CLS]", text)[0], rel=1e-4)


@pytest.mark.ecosystem("lm-eval", "`HFLM.generate_until`")
@generating
def test_generated_answers_are_greedy(member, harness, build, write, writer, texts):
    requests = ask("generate_until", *[(text, {"until": ["\n\n"], "max_gen_toks": 5}) for text in texts])
    for text, answer in zip(texts, harness(member).generate_until(requests), strict=True):
        prompt = writer(text, return_tensors="pt")["input_ids"]
        # The harness adds the length of the prompt to what it asks for, also beside an encoder.
        written = write(build(member), prompt, 5 if member == "decoder" else 40, ends=[writer.eos_token_id])
        new = written[0, prompt.shape[1] :] if member == "decoder" else written[0]
        whole = writer.decode(new, skip_special_tokens=True).split()
        assert answer.split() == whole[: len(answer.split())]
        assert len(answer.split()) >= min(5, len(whole))


@torch.no_grad()
@pytest.mark.ecosystem(
    "lm-eval",
    'a task of one\'s own, `simple_evaluate(model="hf")`',
)
@generating
def test_accuracies_of_a_task_are_those_of_the_likelihoods(member, build, saved, writer, tmp_path):
    data = tmp_path / "questions.jsonl"
    data.write_text("\n".join(map(json.dumps, QUESTIONS)))
    task = {
        "task": "questions",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path / "cache")},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "questions.yaml").write_text(yaml.safe_dump(task))
    found: Any = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(saved(member)), "device": "cpu"},
        tasks=["questions"],
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        bootstrap_iters=0,
    )
    accuracies = found["results"]["questions"]

    model, hits, normalized = build(member), 0, 0
    for row in QUESTIONS:
        scores = [log_likelihood(model, writer, row["question"], f" {each}")[0] for each in row["choices"]]
        per_letter = [score / len(each) for score, each in zip(scores, row["choices"], strict=True)]
        hits += scores.index(max(scores)) == row["answer"]
        normalized += per_letter.index(max(per_letter)) == row["answer"]
    assert accuracies["acc,none"] == hits / len(QUESTIONS)
    assert accuracies["acc_norm,none"] == normalized / len(QUESTIONS)
