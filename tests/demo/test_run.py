"""The demonstration on a page of text: three members, a few steps each, and a report of all of them."""

import json
import random
import re
from dataclasses import replace

import pytest
import yaml
from safetensors.torch import load_file

from tercet.configs.recipe import load_recipe
from tercet.demo import run as demo
from tercet.demo.distilling import load_distillation
from tercet.demo.finetuning import load_tasks
from tercet.demo.prompting import load_prompting
from tercet.demo.run import CURVES, MEMBERS, claim_folder, load_recipes, run_demo
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.text.documentation import Docstring

WORDS = [
    "function",
    "returns",
    "number",
    "array",
    "given",
    "value",
    "the",
    "a",
    "of",
    "in",
    "object",
    "called",
]
TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """Shrink the shipped recipes to two steps on a few invented documents."""
    folder, draw = tmp_path_factory.mktemp("texts"), random.Random(0)
    for name, size in (("train", 60), ("validation", 8)):
        documents = [
            "\n".join(
                " ".join(" ".join(draw.choices(WORDS, k=12)).capitalize() + "." for _ in range(4))
                for _ in range(4)
            )
            for _ in range(size)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(documents))
    return [
        load_recipe(
            PretrainingRecipe,
            f"{member}-demo",
            [
                f"model.overrides={json.dumps(TINY)}",
                "tokenizer.vocab_size=400",
                f"corpus.train={folder / 'train.txt'}",
                f"corpus.validation={folder / 'validation.txt'}",
                f"corpus.cache={folder / 'cache'}",
                "training.steps=2",
                "training.schedule.warmup_steps=1",
                "training.measure_utilization=false",
                "training.tokens_per_step=1024",
                "training.evaluate_every=1",
                "training.log_every=1",
            ],
        )
        for member in MEMBERS
    ]


@pytest.fixture(scope="module")
def documents():
    """Invent modules of two packages with a docstring each."""
    draw = random.Random(0)

    def docstring() -> Docstring:
        summary, *details = (" ".join(draw.choices(WORDS, k=size)).capitalize() + "." for size in (8, 15, 15))
        return Docstring(summary, details)

    sizes = {"train": 20, "validation": 4}
    return {
        split: [
            (f"{package}.m{number}", [docstring()]) for number in range(size) for package in ("torch", "json")
        ]
        for split, size in sizes.items()
    }


@pytest.fixture(scope="module")
def finished(recipes, documents, tmp_path_factory):
    """Run the demonstration once."""
    return run_demo(
        tmp_path_factory.mktemp("demo") / "new",
        recipes=recipes,
        tasks=load_tasks(["training.epochs=1"]),
        distillation=load_distillation(["task.training.epochs=1", "report.speed=false"]),
        prompting=load_prompting(["prompting.num_fewshot=[0,1]", "prompting.seeds=[0]", "data.limit=4"]),
        documents=documents,
    )


def test_report_shows_all_members_beside_what_needs_no_learning(finished):
    markdown = (finished.parent / "report.md").read_text()
    for name in ("Encoder", "Decoder", "Sequence to sequence"):
        assert f"## {name}" in markdown
    for row in ("untrained", "unigram", "trained"):
        assert len(re.findall(rf"^\| \*{{0,2}}{row}\*{{0,2}} \|", markdown, flags=re.MULTILINE)) == 4
    assert len(re.findall(r"^\| trigram \|", markdown, flags=re.MULTILINE)) == 1
    for label in ("sentence", "true next", "elsewhere", "greedy", "sampled", "restored"):
        assert f"> {label}: " in markdown


def test_page_is_self_contained(finished):
    page = finished.read_text()
    assert finished.name == "report.html"
    assert "<script" not in page
    links = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    files = {link for link in links if not link.startswith(("#", "data:"))}
    runs = [run for member in MEMBERS for run in (member, f"{member}-from-scratch")]
    pages = {f"finetuned/{run}/report.html" for run in runs}
    assert files == pages | {"distilled/report.html", "prompting/report.html"}
    assert all((finished.parent / file).exists() for file in files)
    assert page.count("<svg") == len(MEMBERS) + 1


def test_curves_lie_beside_the_report(finished):
    for name in CURVES:
        assert (finished.parent / name).read_bytes().startswith(b"\x89PNG")


def test_models_read_back_score_what_their_runs_measured(finished):
    for member in MEMBERS:
        measured = json.loads((finished.parent / member / "evaluation.json").read_text())["scores"]
        term = next(name for name in measured if name.endswith("/loss"))
        assert f"| **{measured[term]:.3f}** |" in (finished.parent / "report.md").read_text()


def test_report_shows_every_task_beside_what_is_no_transformer(finished):
    markdown = (finished.parent / "report.md").read_text()
    names = ("pretrained", "random weights", "bag of words", "most frequent", "first sentence")
    rows = [len(re.findall(rf"^\| \*{{0,2}}{name}\*{{0,2}} \|", markdown, re.MULTILINE)) for name in names]
    assert rows == [2, 2, 1, 1, 1]
    assert markdown.count("The pretrained ") == len(MEMBERS)


def test_fine_tuned_models_score_what_their_runs_measured(finished):
    markdown = (finished.parent / "report.md").read_text()
    for member in MEMBERS:
        for run in (member, f"{member}-from-scratch"):
            summary = json.loads((finished.parent / "finetuned" / run / "scores.json").read_text())
            score = summary["seeds"]["0"]["test"][summary["criterion"]]
            ends = [f"{100 * end:.1f}" for end in summary["interval"]]
            assert f"{100 * score:.1f} ({' to '.join(ends)})" in markdown


def test_both_runs_of_a_member_differ_in_their_beginning_alone(finished):
    for member in MEMBERS:
        runs = [finished.parent / "finetuned" / run for run in (member, f"{member}-from-scratch")]
        recipes = [yaml.safe_load((run / "recipe.yaml").read_text()) for run in runs]
        models = [recipe.pop("model") for recipe in recipes]
        assert recipes[0] | {"output": ""} == recipes[1] | {"output": ""}
        assert models[0] | {"from_scratch": True} == models[1]
        weights = [load_file(run / "model" / "model.safetensors") for run in runs]
        assert any((weights[0][name] != weights[1][name]).any() for name in weights[0])


def test_report_shows_what_a_student_of_half_the_layers_keeps(finished):
    markdown = (finished.parent / "report.md").read_text()
    configs = [
        json.loads((finished.parent / folder / "model" / "config.json").read_text())
        for folder in ("finetuned/encoder", "distilled")
    ]
    assert [config["num_hidden_layers"] for config in configs] == [2, 1]
    scores = json.loads((finished.parent / "distilled" / "scores.json").read_text())["task"]["scores"]
    for row, name in (("teacher", "teacher"), (r"\*\*student\*\*", "student")):
        assert re.search(rf"^\| {row} \| \**{scores[name]['score']:.4g}", markdown, re.MULTILINE)
    assert "## Half the layers" in markdown


def test_report_shows_what_prompting_gives_without_training(finished):
    markdown = (finished.parent / "report.md").read_text()
    results = json.loads((finished.parent / "prompting" / "results.json").read_text())
    assert [model["member"] for model in results["models"]] == list(MEMBERS)
    for count in ("0", "1"):
        scores = [model["shots"][count] for model in results["models"]]
        cells = [
            f"{100 * own['mean']:.1f} ({100 * own['interval'][0]:.1f} to {100 * own['interval'][1]:.1f})"
            for own in scores
        ]
        assert f"| K = {count} | {' | '.join(cells)} |" in markdown


def test_earlier_demo_is_replaced_only_if_asked(finished):
    with pytest.raises(ValueError, match="--overwrite"):
        claim_folder(finished.parent, overwrite=False)


def test_folder_that_no_demo_wrote_is_never_deleted(tmp_path):
    (tmp_path / "thesis.txt").write_text("two years of work")
    with pytest.raises(ValueError, match=r"thesis\.txt, which was not written by a demo"):
        claim_folder(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


def test_demo_with_a_file_of_somebody_else_is_never_deleted(finished):
    file = finished.parent / "encoder" / "model" / "notes.txt"
    file.write_text("years of work")
    try:
        with pytest.raises(ValueError, match=r"notes\.txt was not written by a run"):
            claim_folder(finished.parent, overwrite=True)
    finally:
        file.unlink()
    assert finished.exists()


@pytest.mark.parametrize("name", ["", " ", "~nobody-of-that-name/demo"])
def test_a_name_that_means_no_folder_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "show_all", lambda folder, *others: folder)
    with pytest.raises(ValueError, match=r"^--output is '"):
        run_demo(name)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_demo_does_not_speak_of_resuming(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt("stopped by SIGTERM; continue with --resume")

    monkeypatch.setattr(demo, "show_all", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"^stopped; a demo begins anew: add --overwrite$"):
        run_demo(tmp_path / "demo")


def test_folder_without_the_list_of_a_demo_is_none(tmp_path):
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "recipe.yaml").write_text("flour: 500 g")
    with pytest.raises(ValueError, match=r"has no \.tercet\.json, the list of what a demo wrote there"):
        claim_folder(tmp_path, overwrite=True)
    assert (tmp_path / "encoder" / "recipe.yaml").exists()


def test_demo_is_replaced_whole(tmp_path):
    claim_folder(tmp_path, overwrite=False)
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "log.jsonl").write_text("{}")
    claim_folder(tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == [".tercet.json"]


def test_shipped_recipes_read_the_embedded_corpus():
    for recipe in load_recipes():
        assert recipe.corpus.train == recipe.corpus.validation == "documentation"
        assert replace(recipe, output="elsewhere") != recipe
