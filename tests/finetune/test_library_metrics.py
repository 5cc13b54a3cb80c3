"""Modules of the `evaluate` library score beside a task's own metrics; local scripts stand for the Hub."""

import json

import pytest
from datasets import Dataset

from tercet.configs.documents import write_document
from tercet.configs.recipe import recipe_data
from tercet.finetune.inputs import find_inputs
from tercet.finetune.prepared import prepare
from tercet.finetune.tasks.generation import GenerationRecipe
from tercet.finetune.tasks.task import build_task
from tercet.finished_reports import write_report

from ..reported import finetune

SCRIPT = """
import datasets
import evaluate


class Agreement(evaluate.Metric):
    def _info(self):
        each = datasets.Value("{kind}")
        features = datasets.Features({{"predictions": each, "references": each}})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        pairs = list(zip(predictions, references))
        return {{"agreement": sum(a == b for a, b in pairs) / len(pairs), "first": pairs[0]}}
"""
KINDS = {"classification": "int64", "regression": "float64", "multiple_choice": "int64"}


@pytest.fixture(scope="module")
def script_of(tmp_path_factory):
    """Write a module for a kind of predictions; all are copied into one package of the cache."""
    folder = tmp_path_factory.mktemp("modules")

    def write(kind):
        file = folder / f"agreement_of_{kind}.py"
        file.write_text(SCRIPT.format(kind=kind))
        return str(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluate.config.HF_MODULES_CACHE", folder / "cache")
        yield write


@pytest.mark.parametrize("kind", KINDS)
def test_modules_score_what_a_task_predicts(kind, recipe_of, script_of):
    task = prepare(
        find_inputs(recipe_of(kind, task={"metrics": [script_of(KINDS[kind])]}, trust_remote_code=True))
    ).task
    prepared = prepare(find_inputs(recipe_of(kind)))
    rows = prepared.splits["validation"].rows
    predictions, references = (
        prepared.task.guess(prepared.splits["train"].rows, rows),
        prepared.task.references(rows),
    )
    plain = list(zip(*task.plain(predictions, references), strict=True))
    expected = {f"evaluate/agreement_of_{KINDS[kind]}/agreement": sum(a == b for a, b in plain) / len(plain)}
    assert task.library_scores(predictions, references) == pytest.approx(expected)
    assert prepared.task.library_scores(predictions, references) == {}


def test_a_run_reports_a_module_beside_its_own_metrics(recipe_of, script_of):
    recipe = recipe_of(
        "classification",
        task={"metrics": [script_of("int64")]},
        training={"epochs": 1},
        trust_remote_code=True,
    )
    finetune(recipe)
    scores = json.loads((recipe.folder / "scores.json").read_text())
    own = scores["seeds"][str(scores["best_seed"])][scores["split"]]
    assert own["evaluate/agreement_of_int64/agreement"] == pytest.approx(own["accuracy"])
    assert scores["criterion"] == "accuracy"
    assert "agreement (evaluate: agreement_of_int64)" in (recipe.folder / "report.md").read_text().replace(
        "\\", ""
    )


def test_no_code_of_others_runs_for_a_report(recipe_of, script_of, tmp_path, monkeypatch):
    """The recipe that trusts it lies in the folder, which somebody else may have made."""
    recipe = recipe_of("classification", training={"epochs": 1})
    finetune(recipe)
    told = recipe_data(recipe) | {"trust_remote_code": True}
    told["task"]["metrics"] = [script_of("int64")]
    (recipe.folder / "recipe.yaml").write_text(write_document(told))
    monkeypatch.setattr("evaluate.load", lambda *arguments, **options: pytest.fail("it runs"))
    write_report("finetune", recipe.folder)


def test_a_module_that_cannot_be_loaded_or_does_not_fit_is_refused_before_a_run(
    recipe_of, script_of, tmp_path
):
    missing = str(tmp_path / "nothing.py")
    with pytest.raises(ValueError, match=r"nothing.py', which evaluate.load cannot load .*: name a module"):
        prepare(find_inputs(recipe_of("classification", task={"metrics": [missing]}, trust_remote_code=True)))
    with pytest.raises(ValueError, match=r"has two modules called agreement_of_int64"):
        prepare(
            find_inputs(
                recipe_of(
                    "classification", task={"metrics": [script_of("int64")] * 2}, trust_remote_code=True
                )
            )
        )


def test_modules_score_texts_and_a_module_that_scores_others_is_refused(script_of):
    rows = Dataset.from_list([{"source": "a b. c", "target": "a b."}, {"source": "c", "target": "c"}])
    recipe = GenerationRecipe(kind="generation", metrics=(script_of("string"),))
    task = build_task(recipe, rows, trust_remote_code=True)
    scores = task.library_scores(task.guess(rows, rows), task.references(rows))
    assert scores == {"evaluate/agreement_of_string/agreement": 0.5}
    recipe = GenerationRecipe(kind="generation", metrics=(script_of("int64"),))
    with pytest.raises(ValueError, match=r"agreement_of_int64, which cannot score predictions such as 'a b"):
        build_task(recipe, rows, trust_remote_code=True)


@pytest.mark.parametrize("name", ["script", "folder", "module of the current folder", "repository"])
def test_code_of_others_runs_only_if_it_is_trusted(name, recipe_of, script_of, tmp_path, monkeypatch):
    """A folder of the current one has the name of a module of the library, and would be taken for it."""
    monkeypatch.chdir(tmp_path)
    ran = tmp_path / "ran"
    (tmp_path / "accuracy").mkdir()
    (tmp_path / "accuracy" / "accuracy.py").write_text(f"open({str(ran)!r}, 'w')\n")
    names = {
        "script": str(tmp_path / "accuracy" / "accuracy.py"),
        "folder": "./accuracy",
        "module of the current folder": "accuracy",
        "repository": "somebody/accuracy",
    }
    with pytest.raises(ValueError, match=r"brings its own code: review it, then set trust_remote_code=true"):
        prepare(find_inputs(recipe_of("classification", task={"metrics": [names[name]]})))
    assert not ran.exists()
