"""Scores equal those of a loop that reads every text, short ones too; what no example holds is counted."""

import json
import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.nn import functional as F

from tercet.configs.recipe import parse_recipe
from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer
from tercet.pretraining.prepared import find_inputs, prepare
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.training.evaluation import evaluate_held_out

from ..reported import pretrain
from .conftest import recipe_data_of

TEXTS = ["Yes.", "No", "a", "Hi!", "\u00ad", "the cat sat under the tree and ran. " * 4, "ababab", "é"]
WORDS = ["yes.", "no", "the cat sat under the tree", "a big dog ran", "a cat"]


@pytest.fixture
def recipe_on_short_texts(tmp_path):
    """Give the function that makes recipes on texts of a few characters, and one of several sequences."""

    def recipe(kind: str, texts=TEXTS, tokenizer=None, **corpus) -> PretrainingRecipe:
        lines = [json.dumps({"text": text}) for text in [*texts, *texts[::-1]]]
        for name, end in (("train", "\n"), ("validation", "")):  # not the same file twice
            (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + end)
        data = recipe_data_of(kind, tmp_path, tmp_path / "run", tokens_per_step=64)
        files = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "validation")}
        data["corpus"] |= {"sequence_length": 24} | files | corpus
        data["tokenizer"] = tokenizer or data["tokenizer"]
        return parse_recipe(PretrainingRecipe, data)

    return recipe


def prepared(recipe: PretrainingRecipe):
    return prepare(find_inputs(recipe), Accelerator(cpu=True), None)


def scored(recipe: PretrainingRecipe):
    """Score random weights; give them, too, and the tokenizer."""
    run = prepared(recipe)
    torch.manual_seed(1)
    for weights in run.model.parameters():
        weights.data = torch.randn_like(weights) * 0.1
    accelerator = Accelerator(cpu=True)
    scores = evaluate_held_out(
        run.model, run.objective, run.data.held_out, run.data.held_out_steps, accelerator
    )
    return scores, run.model.eval(), run.tokenizer


def test_causal_scores_are_those_of_every_token_and_every_end(recipe_on_short_texts):
    scores, model, tokenizer = scored(recipe_on_short_texts("causal_language_modeling"))
    total, targets = 0.0, 0
    for text in TEXTS:
        ids = [*tokenizer(text.strip(), add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        for start in range(0, len(ids), 23):
            window = ids[start : start + 23]
            with torch.no_grad():
                logits = model(torch.tensor([[tokenizer.bos_token_id, *window]])).logits[0, :-1].double()
            total += F.cross_entropy(logits, torch.tensor(window), reduction="sum").item()
            targets += len(window)
    num_bytes = sum(len(text.strip().encode()) for text in TEXTS)
    assert scores["clm/targets"] == 2 * targets
    assert scores["clm/perplexity"] == pytest.approx(math.exp(total / targets), rel=1e-5)
    assert scores["clm/bits_per_byte"] == pytest.approx(total / math.log(2) / num_bytes, rel=1e-5)
    assert not any(name.startswith("left_out/") for name in scores)


def test_character_scores_are_those_of_every_character_and_every_end(recipe_on_short_texts):
    recipe = recipe_on_short_texts("character_language_modeling", WORDS, sequence_length=60)
    scores, model, tokenizer = scored(recipe)
    sums, targets = np.zeros(2), 0
    for text in WORDS:
        ids = torch.tensor([tokenizer(text).input_ids])
        with torch.no_grad():
            outputs = model(ids)
        logits = outputs.forward_logits[0, :-1], outputs.backward_logits[0, 1:]
        for number, (of_direction, labels) in enumerate(zip(logits, (ids[0, 1:], ids[0, :-1]), strict=True)):
            sums[number] += F.cross_entropy(of_direction.double(), labels, reduction="sum").item()
        targets += ids.shape[1] - 1
    num_bytes = sum(len(text.encode()) for text in WORDS)
    for total, name in zip(sums, ("forward", "backward"), strict=True):
        assert scores[f"{name}/targets"] == 2 * targets
        assert scores[f"{name}/loss"] == pytest.approx(total / targets, rel=1e-5)
        assert scores[f"{name}/bits_per_byte"] == pytest.approx(total / math.log(2) / num_bytes, rel=1e-5)


@pytest.mark.parametrize(
    "kind", ["masked_language_modeling", "denoising", "sentence_denoising", "replaced_token_detection"]
)
def test_texts_of_one_token_are_learned_from(kind, recipe_on_short_texts):
    tokenizer = {"kind": "characters", "vocab_size": 200}
    run = prepared(recipe_on_short_texts(kind, ["a"] * 30, tokenizer))
    assert run.about["text"].startswith("60 examples")
    assert not run.text.left_out
    assert not run.text.held_out.left_out


@pytest.mark.parametrize("kind", ["span_corruption", "prefix_language_modeling", "mixture_of_denoisers"])
def test_texts_that_cannot_be_cut_in_two_are_left_out_and_counted(kind, recipe_on_short_texts):
    tokenizer = {"kind": "characters", "vocab_size": 200}
    run = prepared(recipe_on_short_texts(kind, ["a", "ab", "abc", "b"] * 10, tokenizer))
    assert run.about["text"].startswith("40 examples")
    (left_out,) = run.text.left_out
    assert left_out[:5] == ("sequences", 40, 80, 40, 140)


def test_a_run_tells_of_what_it_leaves_out_and_keeps_the_numbers(recipe_on_short_texts, tmp_path):
    """A decoder without a token before its text predicts nothing of what is left of a text, if one token."""
    tokenizer = train_tokenizer(TEXTS, "characters", 300, template="plain")
    tokenizer.cls_token = tokenizer.bos_token = None
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    assert load_tokenizer(str(tmp_path / "tokenizer")).cls_token is None
    texts = ["a" * 24, "cat"] * 6
    recipe = recipe_on_short_texts("causal_language_modeling", texts, {"path": str(tmp_path / "tokenizer")})
    with pytest.warns(UserWarning, match="nothing to predict") as told:
        pretrain(recipe)
    what = "12 of 36 sequences (12 of 348 tokens) have nothing to predict, since they are too short"
    messages = [str(warning.message) for warning in told]
    for text in ("the training text", "the held-out text"):
        assert any(message.startswith(f"{text}: {what}") for message in messages)
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["scores"]["left_out/pieces"] == evaluation["scores"]["left_out/tokens"] == 12
    for split in ("train", "validation"):
        (entry,) = evaluation["left_out"][split]
        assert list(entry.values())[:5] == ["sequences", 12, 36, 12, 348]
    assert "12 of 36 sequences" in (tmp_path / "run" / "report.md").read_text()
