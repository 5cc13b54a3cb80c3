"""What lm-evaluation-harness measures on the same rows is measured here, too: likelihoods, picks, texts."""

import json
import random
from typing import Any

import pytest
import yaml

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from tercet.configs.recipe import parse_recipe
from tercet.fewshot.prompts.boundary import Prompt, SpecialTokenPolicy
from tercet.fewshot.recipe import FewShotRecipe

from ..reported import fewshot
from .conftest import WORDS, write_rows

MODELS = ["decoder", "decoder-learned", "gpt2", "llama"]
MOST = 1e-4
"""How far log-likelihoods may lie apart."""


def rows_of(count, seed):
    """Make rows that serve all kinds of tasks."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        words = draw.choices(WORDS[:13], k=8)
        rows.append(
            {
                "text": " ".join(words[:6]),
                "choices": [" ".join(words[6:]), words[0], "unbelievable houses"],
                "gold": draw.randint(0, 2),
                "last": words[7],
                "good": " ".join(words),
                "bad": " ".join(words[::-1]),
            }
        )
    return rows


@pytest.fixture
def harness(subject):
    """Give the function that puts a tiny model into the harness."""
    return lambda name: HFLM(subject(name).model, tokenizer=subject(name).tokenizer, batch_size=3)


@pytest.mark.parametrize("name", [*MODELS, "seq2seq", "bart", "t5"])
def test_log_likelihoods_are_equal(name, subject, saved):
    asked = subject(name)
    backend = "seq2seq" if asked.member == "seq2seq" else "causal"
    model = HFLM(asked.model, tokenizer=asked.tokenizer, batch_size=3, backend=backend)
    rows = rows_of(10, 0)
    prompts = [
        Prompt(f"{row['text']}\nAnswer:", tuple(f" {choice}" for choice in row["choices"])) for row in rows
    ]
    if asked.member == "decoder":  # an empty source is the harness's start token, and ours what frames it
        prompts += [Prompt("", (row["good"], row["bad"])) for row in rows]
    pairs = [(prompt.context, answer) for prompt in prompts for answer in prompt.answers]
    asking = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    expected = model.loglikelihood(asking, disable_tqdm=True)
    requests = [each for own in asked.prompts(SpecialTokenPolicy()).encode(prompts) for each in own]
    found = asked.scorer(200, "original").score_all(requests)
    for score, (log_likelihood, is_greedy) in zip(found, expected, strict=True):
        assert score.total == pytest.approx(log_likelihood, abs=MOST)
        assert score.is_greedy == is_greedy


TASKS: dict[str, dict[str, dict[str, Any]]] = {
    "multiple_choice": {
        "theirs": {
            "output_type": "multiple_choice",
            "doc_to_text": "Question: {{text}}\nAnswer:",
            "doc_to_choice": "{{choices}}",
            "doc_to_target": "{{gold}}",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        },
        "ours": {
            "kind": "multiple_choice",
            "context": "Question: {{ text }}\nAnswer:",
            "choices": "choices",
            "target": "gold",
        },
        "scores": {"acc,none": "accuracy_none", "acc_norm,none": "accuracy_char"},
    },
    "last_word": {
        "theirs": {
            "output_type": "loglikelihood",
            "doc_to_text": "{{text}}",
            "doc_to_target": " {{last}}",
            "target_delimiter": "",
            "metric_list": [{"metric": "acc"}, {"metric": "perplexity"}],
        },
        "ours": {"kind": "completion", "context": "{{ text }}", "answer": "{{ last }}"},
        "scores": {"acc,none": "accuracy", "perplexity,none": "perplexity"},
    },
    "blimp": {
        "theirs": {
            "output_type": "multiple_choice",
            "doc_to_text": "",
            "target_delimiter": "",
            "doc_to_choice": "{{[good, bad]}}",
            "doc_to_target": 0,
            "metric_list": [{"metric": "acc"}],
        },
        "ours": {"kind": "minimal_pair", "good": "{{ good }}", "bad": "{{ bad }}"},
        "scores": {"acc,none": "accuracy"},
    },
    "texts": {
        "theirs": {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{good}} {{text * 9}}",
            "metric_list": [{"metric": "bits_per_byte"}, {"metric": "word_perplexity"}],
        },
        "ours": {"kind": "perplexity", "text": "{{ good }} {{ text * 9 }}"},
        "scores": {"bits_per_byte,none": "bits_per_byte", "word_perplexity,none": "perplexity_per_word"},
    },
}


@pytest.mark.parametrize("name", ["decoder", "gpt2"])
@pytest.mark.parametrize("kind", TASKS)
def test_accuracies_and_picks_are_equal(kind, name, harness, saved, tmp_path):
    file = write_rows(tmp_path / "rows.jsonl", rows_of(12, 1))
    task = TASKS[kind]
    theirs = {
        "task": "asked",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}, "cache_dir": str(tmp_path / "cache")},
        "test_split": "test",
        **task["theirs"],
    }
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "asked.yaml").write_text(yaml.safe_dump(theirs))
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    expected: Any = simple_evaluate(
        model=harness(name), tasks=["asked"], task_manager=manager, bootstrap_iters=0, log_samples=True
    )
    data = {"test": str(tmp_path / "rows.jsonl")}
    recipe = {
        "task": task["ours"],
        "data": data,
        "models": [str(saved(name))],
        "output": str(tmp_path / "run"),
    }
    folder = fewshot(parse_recipe(FewShotRecipe, recipe))
    found = json.loads((folder / "scores.json").read_text())["models"][0]["shots"]["0"]["scores"]
    for their_name, our_name in task["scores"].items():
        assert found[our_name] == pytest.approx(expected["results"]["asked"][their_name], rel=1e-4)
    items = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    samples = sorted(expected["samples"]["asked"], key=lambda sample: sample["doc_id"])
    for item, sample in zip(items, samples, strict=True):
        said = [float(response[0] if isinstance(response, list | tuple) else response)
                for response in sample["filtered_resps"]]  # fmt: skip
        own = item["values"]["none"] if "values" in item else [item["log_likelihood"]]
        assert own == pytest.approx(said, abs=MOST * (50 if kind == "texts" else 1))
        if "choices" in item:
            assert item["choices"]["none"] == max(range(len(said)), key=said.__getitem__)


@pytest.mark.parametrize("name", ["decoder", "gpt2"])
def test_written_answers_are_equal(name, harness, saved, tmp_path):
    rows = rows_of(8, 2)
    write_rows(tmp_path / "rows.jsonl", rows)
    asked = [(row["text"], {"until": [" the", "\n"], "max_gen_toks": 12}) for row in rows]
    expected = harness(name).generate_until(
        [Instance("generate_until", {}, each, number) for number, each in enumerate(asked)], disable_tqdm=True
    )
    task = {"kind": "generation", "context": "{{ text }}", "answers": "{{ last }}", "max_new_tokens": 12}
    recipe = {
        "task": task | {"stop": [" the", "\n"]},
        "data": {"test": str(tmp_path / "rows.jsonl")},
        "models": [str(saved(name))],
        "output": str(tmp_path / "run"),
    }
    folder = fewshot(parse_recipe(FewShotRecipe, recipe))
    items = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    assert [item["written"] for item in items] == expected
