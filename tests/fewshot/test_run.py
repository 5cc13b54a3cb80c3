"""Evaluations from recipe to report: all kinds of tasks, all members, and what the report says of them."""

import math
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tercet.__main__ import main
from tercet.configs.recipe import parse_recipe
from tercet.fewshot.explanation import explain
from tercet.fewshot.recipe import FewShotRecipe
from tercet.modeling.saved.checkpoint import Checkpoint

from ..reported import fewshot
from .conftest import TASKS, WITHOUT_SHOTS, read, rows_of


@pytest.mark.parametrize("kind", TASKS)
def test_every_kind_of_task_is_asked_of_every_member_that_can(kind, recipe_of, saved):
    members = ["decoder", "gpt2", "seq2seq"] + ([] if kind == "generation" else ["encoder"])
    recipe = recipe_of(kind, map(saved, members), prompting={"seeds": [0, 1]})
    results, items = read(fewshot(recipe))
    shots = ["0"] if kind in WITHOUT_SHOTS else ["0", "2"]
    for model in results["models"]:
        assert list(model["shots"]) == shots
        assert model["weights_unchanged"]
        for count, own in model["shots"].items():
            assert len(own["conditions"]) == (1 if count == "0" else 2)
            low, high = own["interval"]
            assert low <= own["mean"] + 1e-9
            assert high >= own["mean"] - 1e-9
            assert (own["standard_error"] is None) == (count == "0")
    assert len(items) == len(members) * 12 * (1 if kind in WITHOUT_SHOTS else 3)
    page, text = ((recipe.folder / name).read_text() for name in ("report.html", "report.md"))
    assert page.count("<svg") == text.count("![")
    assert (recipe.folder / "shots.png").exists() == (kind not in WITHOUT_SHOTS)
    assert (recipe.folder / "reliability.png").exists() == (
        kind not in ("completion", "generation", "perplexity")
    )


def test_a_model_is_opened_once(recipe_of, saved, hub):
    fetched = hub({"somebody/model": saved("decoder")})
    fewshot(recipe_of("perplexity", ["somebody/model"]))
    assert fetched == {"somebody/model": 1}


def test_accuracies_are_those_of_the_logged_scores(recipe_of, saved):
    results, items = read(fewshot(recipe_of("classification", [saved("decoder")])))
    for count in (0, 2):
        own = [item for item in items if item["shots"] == count]
        hits = []
        for item in own:
            totals = [sum(answer["log_likelihoods"]) for answer in item["answers"]]
            assert item["values"]["none"] == pytest.approx(totals)
            hits.append(totals.index(max(totals)) == item["right"])
        scores = results["models"][0]["shots"][str(count)]["scores"]
        assert scores["accuracy"] == scores["accuracy_none"] == pytest.approx(sum(hits) / len(hits))
        assert set(scores) == {"accuracy", "calibration_error"} | {
            f"accuracy_{name}" for name in ("none", "token", "char", "pmi", "calibrated")
        }
    assert results["baselines"]["random"] == 0.5
    right = [row["label"] for row in rows_of()]
    assert results["baselines"]["majority"] == max(map(right.count, right)) / len(right)


def test_nothing_is_calibrated_without_texts(recipe_of, saved):
    task = {"content_free": [], "normalization": "char"}
    recipe = recipe_of("classification", [saved("decoder")], task=task)
    results, items = read(fewshot(recipe))
    assert "accuracy_calibrated" not in results["models"][0]["shots"]["0"]["scores"]
    report = (recipe.folder / "report.md").read_text()
    assert all(f"{value:.2f}" in report for item in items[:6] for value in item["values"]["char"])


def test_sentences_that_a_model_cannot_tell_apart_are_not_right(recipe_of, saved):
    recipe = recipe_of("minimal_pair", [saved("encoder")], task={"bad": "{{ text | replace(' ', '  ') }}"})
    results, items = read(fewshot(recipe))
    own = results["models"][0]["shots"]["0"]
    assert own["mean"] == own["interval"][1] == 0
    assert own["ties"] == len(items) == 12
    assert "which count as wrong: 12 (encoder)" in (recipe.folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("classification", {"choices": ["cat", "dog"]}),
        ("cloze", {"choices": ["cat", "dog"], "target": "0 if label == 'yes' else 1"}),
        ("partial_evaluation", {}),
        ("minimal_pair", {"good": "{{ text }} cat", "bad": "{{ text }} dog"}),
        ("completion", {"answer": "{{ 'cat' if text }}"}),
    ],
)
def test_what_tells_nothing_apart_is_never_right(kind, task, recipe_of, saved, tmp_path):
    """A model whose logits are all equal; no normalization makes ties right."""
    model = Checkpoint.open(str(saved("decoder"))).ours()
    for parameter in model.parameters():
        parameter.data.zero_()
    model.save_pretrained(tmp_path / "blank")
    AutoTokenizer.from_pretrained(saved("decoder")).save_pretrained(tmp_path / "blank")
    results, items = read(fewshot(recipe_of(kind, [tmp_path / "blank"], task=task)))
    for own in results["models"][0]["shots"].values():
        accuracies = [value for name, value in own["scores"].items() if name.startswith("accuracy")]
        assert accuracies == [0] * len(accuracies)
        assert accuracies
        assert kind == "completion" or own["ties"] == 12
    assert kind == "completion" or all(item["is_tied"] for item in items)


def test_report_and_results_have_the_recipe(recipe_of, saved):
    models = [saved("decoder"), saved("encoder"), saved("seq2seq")]
    prompting = {"seeds": [0, 3], "opening": "bos", "num_fewshot": [0, 8]}
    results, _ = read(fewshot(recipe := recipe_of("classification", models, prompting=prompting)))
    assert parse_recipe(FewShotRecipe, results["recipe"]) == recipe
    assert [model["max_length"] for model in results["models"]][-1] == 192
    report = (recipe.folder / "report.md").read_text()
    assert "## Recipe" in report
    assert "an answer that ties with a wrong one is wrong" in report
    assert '"opening": "bos"' in report


def test_perplexity_per_word_is_a_sum_over_sub_words_of_a_plain_text(recipe_of, saved, tmp_path):
    (tmp_path / "data").mkdir()
    texts = ["the unbelievable cat sat\nunder the tree", "= a dog ="]
    (tmp_path / "data" / "rows.txt").write_text("\n\n".join(texts) + "\n")
    recipe = recipe_of(
        "perplexity",
        [saved("decoder"), saved("seq2seq")],
        task={"text": "{{ text }}", "metric": "perplexity_per_word"},
        data={"test": str(tmp_path / "data" / "rows.txt")},
    )
    results, items = read(fewshot(recipe))
    assert results["criterion"] == "perplexity_per_word"
    assert "baseline" not in (recipe.folder / "report.md").read_text()
    for number, model in enumerate(results["models"]):
        own = items[2 * number : 2 * number + 2]
        assert [item["num_words"] for item in own] == [7, 4]
        assert sum(item["num_tokens"] for item in own) > 11
        nats = -sum(item["log_likelihood"] for item in own)
        found = model["shots"]["0"]
        assert found["scores"]["perplexity_per_word"] == found["mean"] == pytest.approx(math.exp(nats / 11))


@pytest.mark.parametrize("letters", ["", " \u03a9 \u03a8\u2126"])
def test_tokens_that_a_model_does_not_know_are_told_of(recipe_of, saved, tmp_path, recwarn, capsys, letters):
    """One likely token stands for them, so that a text which the model cannot read has a low perplexity."""
    file = tmp_path / "rows.txt"
    file.write_text(f"the cat sat{letters}\n", encoding="utf-8")
    fewshot(
        recipe_of("perplexity", [saved("seq2seq")], task={"text": "{{ text }}"}, data={"test": str(file)})
    )
    told = [str(warning.message) for warning in recwarn if "are unknown" in str(warning.message)]
    assert bool(told) == bool(letters)
    assert ("of the tokens are unknown to the tokenizer" in capsys.readouterr().err) == bool(letters)


def test_slow_and_fast_evaluations_are_equal(recipe_of, saved, tmp_path):
    both = []
    for is_slow in (False, True):
        recipe = recipe_of(
            "classification", [saved("decoder")], prompting={"one_by_one": is_slow, "num_fewshot": [2]}
        )
        both.append(read(fewshot(recipe, overwrite=True))[1])
    for fast, slow in zip(*both, strict=True):
        assert fast["values"]["none"] == pytest.approx(slow["values"]["none"], abs=1e-5)
        assert fast["values"]["calibrated"] == pytest.approx(slow["values"]["calibrated"], abs=1e-5)


def test_half_precision_says_about_the_same(recipe_of, saved):
    totals = []
    for precision in ("fp32", "bf16"):
        recipe = recipe_of(
            "completion", [saved("decoder"), saved("bert")], prompting={"precision": precision}
        )
        items = read(fewshot(recipe, overwrite=True))[1]
        totals.append([item["log_likelihood"] for item in items])
    assert totals[1] != totals[0]
    assert totals[1] == pytest.approx(totals[0], rel=0.1, abs=0.5)


def test_contamination_tells_items_apart(recipe_of, saved, tmp_path):
    texts = [row["text"] + " = " + row["answer"] for row in rows_of()]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"she said: {texts[0].upper()}!\n\nnothing else is here\n")
    recipe = recipe_of("completion", [saved("decoder")], contamination={"corpus": str(corpus), "words": 6})
    results, _ = read(fewshot(recipe))
    touched = sum(text == texts[0] for text in texts)
    assert results["contamination"] == {
        "words": 6,
        "items": 12,
        "touched": touched,
        "short": 0,
        "documents": 2,
    }
    parts = results["models"][0]["shots"]["0"]["contamination"]
    assert {name: part["items"] for name, part in parts.items()} == {
        "all": 12,
        "clean": 12 - touched,
        "touched": touched,
    }


def test_explanation_shows_which_tokens_are_scored(recipe_of, saved, capsys):
    recipe = recipe_of("multiple_choice", [saved("decoder"), saved("seq2seq"), saved("encoder")])
    told = explain(recipe)
    assert told.count("scored, 1 tokens: Ġ") == 1
    row = rows_of()[0]
    assert f"answer 0 ({'right' if row['gold'] == 0 else 'wrong'}): ' {row['choices'][0]}'" in told
    assert "target begins with: </s>" in told
    assert "after it: [SEP]" in told
    assert not recipe.folder.exists()


def test_command_prints_the_folder_and_explains(recipe_of, saved, tmp_path, capsys):
    recipe_of("completion", [])
    file = tmp_path / "task.yaml"
    file.write_text(
        f"task: {{kind: completion, context: '{{{{ text }}}} =', answer: '{{{{ answer }}}}'}}\n"
        f"data: {{test: {tmp_path / 'data' / 'rows.jsonl'}}}\noutput: {tmp_path / 'told'}\n"
    )
    command = ["fewshot", str(file), "--model", str(saved("decoder")), "prompting.num_fewshot=[1]"]
    assert main([*command, "models=[nothing]", "--explain"]) == 0  # --model is what counts, as in a run
    assert "scored, " in capsys.readouterr().out
    assert main(command) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'told'}\n"
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0


def test_what_does_not_fit_is_dropped_and_counted(recipe_of, saved):
    recipe = recipe_of("classification", [saved("decoder")], task={"description": "the cat sat. " * 33})
    results, items = read(fewshot(recipe))
    own = results["models"][0]["shots"]
    assert own["0"]["dropped"] == 0
    dropped = [item["dropped"] for item in items if item["shots"] == 2]
    assert own["2"]["dropped"] == sum(dropped) > 0
    for item in items:
        assert len(item["demonstrations"]) == item["shots"] - item["dropped"]
        assert item["prompt"].count("Answer:") == len(item["demonstrations"]) + 1


@pytest.mark.parametrize(("words", "number_cut"), [(150, 12), (1, 0)])
def test_contexts_that_are_too_long_lose_their_beginning_which_is_told(words, number_cut, recipe_of, saved):
    context = {"context": f"{{{{ 'the cat ' * {words} }}}} {{{{ text }}}} ="}
    recipe = recipe_of("completion", [saved("decoder")], task=context, prompting={"num_fewshot": [0]})
    results, items = read(fewshot(recipe))
    assert results["models"][0]["shots"]["0"]["cut"] == sum(item["cut"] > 0 for item in items) == number_cut
    told = "cut off behind what opens a text, once for all" in (recipe.folder / "report.md").read_text()
    assert told == (number_cut > 0)


def test_a_row_without_a_demonstration_is_none_of_any_k_above_0(recipe_of, saved, tmp_path):
    long = "{{ ('the cat ' * 85) if gold else '' }}{{ text }}\nAnswer:"
    parts = {"prompting": {"num_fewshot": [0, 1, 4], "seeds": [0, 1]}, "task": {"context": long}}
    same = str(tmp_path / "data" / "rows.jsonl")
    demonstrations = {"where": "gold == 1 or number < 9", "demonstrations": same}
    recipe = recipe_of("multiple_choice", [saved("decoder")], **parts, data=demonstrations)
    results, items = read(fewshot(recipe))
    (model,) = results["models"]
    for item in items:
        assert item["shots"] == 0 or item["demonstrations"]
    for count in (1, 4):
        own = [item for item in items if item["shots"] == count]
        assert 0 < len(own) < 24
        assert model["fitted"][str(count)] == {
            "prompts": 24,
            "without": 24 - len(own),
            "mean": pytest.approx(sum(len(item["demonstrations"]) for item in own) / len(own)),
        }
        known = model["shots"][str(count)]
        assert known["rows"] == len({item["row"] for item in own}) < 12
        assert (known["interval"] is None) == (known["rows"] < 10)
        for condition in known["conditions"]:
            right = [item["is_right"]["none"] for item in own if item["seed"] == condition["seed"]]
            assert condition["items"] == len(right)
            assert condition["scores"]["accuracy"] == pytest.approx(sum(right) / len(right))
    report = (recipe.folder / "report.md").read_text()
    assert f"{model['fitted']['1']['without']} of 24 prompts had room for no demonstration" in report


def test_what_no_demonstration_fits_is_neither_listed_nor_charted(recipe_of, saved, tmp_path):
    roomy = Path(shutil.copytree(saved("t5"), tmp_path / "t5"))
    AutoTokenizer.from_pretrained(roomy, model_max_length=2000).save_pretrained(roomy)
    parts = {
        "task": {"description": "the cat sat. " * 60},
        "prompting": {"num_fewshot": [0, 1, 4], "seeds": [0, 1]},
    }
    recipe = recipe_of("classification", [saved("decoder"), roomy], **parts)
    results, items = read(fewshot(recipe))
    ours, other = results["models"]
    assert list(ours["shots"]) == ["0"]
    assert {item["shots"] for item in items if item["model"] == ours["name"]} == {0}
    assert list(other["shots"]) == ["0", "1", "4"]
    report = (recipe.folder / "report.md").read_text()
    assert "decoder, K = 4: not one demonstration fitted into any prompt" in report
    assert "| decoder, K = 4 |" not in report
    recipe = recipe_of("classification", [saved("decoder")], **parts | {"prompting": {"num_fewshot": [1, 4]}})
    with pytest.raises(
        ValueError, match=r"no demonstration fits .* a maximum length of 192 tokens: add 0 to prompting"
    ):
        fewshot(recipe, overwrite=True)
