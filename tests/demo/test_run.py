"""The demonstration on a page of text: three members, a few steps each, and a report of all of them."""

import json
import random
import re
import shlex
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from tercet.__main__ import main
from tercet.command_line import parse
from tercet.configs.recipe import load_recipe
from tercet.demo.continuing import load_continuing
from tercet.demo.distilling import load_distillation
from tercet.demo.finetuning import load_finetuning
from tercet.demo.prompts import BEGINNINGS, GAPS, PARAGRAPHS
from tercet.demo.run import CURVES, MEMBERS, claim_folder, load_recipes, next_steps, run_demo
from tercet.demo.telegrams import with_rows
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.text.documentation import Docstring

RUNS = ("encoder", "encoder-from-scratch")
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
            name,
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
        for name in MEMBERS.values()
    ]


@pytest.fixture(scope="module")
def documents():
    """Invent modules of two packages with a docstring each."""
    draw = random.Random(0)

    def docstring() -> Docstring:
        summary, *details = (" ".join(draw.choices(WORDS, k=size)).capitalize() + "." for size in (8, 15, 44))
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
        finetuning=load_finetuning(["training.epochs=1"]),
        distillation=load_distillation(["task.training.epochs=1", "report.speed=false"]),
        continuing=load_continuing(),
        documents=documents,
    )


def test_report_shows_all_members_beside_what_needs_no_learning(finished):
    markdown = (finished.parent / "report.md").read_text()
    for name in ("Encoder", "Decoder", "Sequence to sequence"):
        assert f"## {name}" in markdown
    for row in ("untrained", "unigram", "trained"):
        assert len(re.findall(rf"^\| \*{{0,2}}{row}\*{{0,2}} \|", markdown, flags=re.MULTILINE)) == 3
    assert len(re.findall(r"^\| trigram \|", markdown, flags=re.MULTILINE)) == 2
    for label in ("sentence", "greedy", "sampled", "goes on", "telegram"):
        assert f"> {label}: " in markdown


def test_three_cards_come_first_and_made_up_texts_before_held_out_ones(finished):
    markdown = (finished.parent / "report.md").read_text()
    titles = ("Fills a gap", "Knows where a paragraph is from", "Knows what comes next")
    places = [markdown.index(f"**{title}: ") for title in titles]
    assert places == sorted(places)
    assert places[-1] < markdown.index("## Encoder")
    assert markdown.count("95 % interval ") >= len(titles)
    for texts, kind in (
        (BEGINNINGS, "prompt"),
        (PARAGRAPHS, "paragraph"),
        ([each[0] for each in GAPS], "sentence"),
    ):
        shown = [line for line in markdown.splitlines() if line.startswith(f"> {kind}: ")]
        assert all(text.strip() in line for text, line in zip(texts, shown, strict=False))


def test_sentences_say_what_the_scores_show(finished):
    markdown = (finished.parent / "report.md").read_text()
    written = json.loads((finished.parent / "scores.json").read_text())
    texts = [verdict["text"] for verdict in written["verdicts"]]
    assert len(texts) == 6
    assert all(text in markdown for text in texts)
    scores = written["scores"]["packages"]
    pair = " against ".join(f"{100 * scores[name]['score']:.1f} %" for name in ("pretrained", "bag of words"))
    assert any(f" a bag of words ({pair}; difference from " in text for text in texts)
    for answers in written["scores"].values():
        for own in answers.values():
            low, high = own.get("interval", (0, 1))
            assert low <= own["score"] <= high


def test_page_is_self_contained(finished):
    page = finished.read_text()
    assert finished.name == "report.html"
    assert "<script" not in page
    links = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    files = {link for link in links if not link.startswith(("#", "data:"))}
    pages = {f"finetuned/{run}/report.html" for run in RUNS}
    assert files == pages | {"distilled/report.html", "continuations/report.html"}
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
    names = (
        "pretrained",
        "random weights",
        "bag of words",
        "most frequent",
        "counting neighbours",
        "shared words",
    )
    rows = [len(re.findall(rf"^\| \*{{0,2}}{name}\*{{0,2}} \|", markdown, re.MULTILINE)) for name in names]
    assert rows == [1, 1, 1, 1, 2, 1]


def test_fine_tuned_models_score_what_their_runs_measured(finished):
    markdown = (finished.parent / "report.md").read_text()
    for run in RUNS:
        summary = json.loads((finished.parent / "finetuned" / run / "scores.json").read_text())
        score = summary["seeds"]["0"]["test"][summary["criterion"]]
        ends = [f"{100 * end:.1f}" for end in summary["interval"]]
        assert f"{100 * score:.1f} ({' to '.join(ends)})" in markdown


def test_both_runs_differ_in_their_beginning_alone(finished):
    runs = [finished.parent / "finetuned" / run for run in RUNS]
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


def test_report_shows_how_the_decoder_continues_beside_counting(finished):
    markdown = (finished.parent / "report.md").read_text()
    results = json.loads((finished.parent / "continuations" / "results.json").read_text())
    own = results["models"][0]["shots"]["0"]
    low, high = own["interval"]
    assert f"| **{100 * own['mean']:.1f} ({100 * low:.1f} to {100 * high:.1f})** |" in markdown
    for name in ("trigram", "shared words", "chance"):
        assert re.search(rf"^\| {name} \| [\d.]+ \([\d.]+ to [\d.]+\) \|", markdown, re.MULTILINE)


def test_next_steps_are_commands_that_work(finished):
    steps = [shlex.split(step) for step in next_steps(finished)]
    assert [step[:2] for step in steps] == [["tercet", name] for name in ("play", "predict", "doctor")]
    for _, *arguments in steps:
        options = parse(arguments)
        named = [options.model] if isinstance(options.model, str) else options.model
        assert all(Path(model, "config.json").exists() for model in named)
    predict = steps[1][1:]
    assert main(predict) == 0
    Path(predict[-1]).unlink()


def test_earlier_demo_is_replaced_only_if_asked(finished):
    with pytest.raises(ValueError, match="--overwrite"):
        claim_folder(finished.parent, overwrite=False)


def test_demo_with_a_file_of_somebody_else_is_never_deleted(finished):
    file = finished.parent / "encoder" / "model" / "notes.txt"
    file.write_text("years of work")
    try:
        with pytest.raises(ValueError, match=r"notes\.txt was not written by a run"):
            claim_folder(finished.parent, overwrite=True)
    finally:
        file.unlink()
    assert finished.exists()


def test_shipped_recipes_read_the_embedded_corpus():
    *pretraining, telegrams = load_recipes()
    for recipe in pretraining:
        assert recipe.corpus.train == recipe.corpus.validation == "documentation"
    own = with_rows(telegrams, Path("elsewhere"))
    assert own.corpus.train == str(Path("elsewhere") / Path(*Path(str(telegrams.corpus.train)).parts[-2:]))
