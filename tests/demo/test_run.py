"""The demonstration on a page of text: seven runs of a few steps each, and a page of their reports."""

import json
import random
import re
import shlex
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, AutoTokenizer

from tercet.__main__ import main
from tercet.command_line import parse
from tercet.configs.recipe import load_recipe
from tercet.demo.report import CONTINUING, CONTROL, DISTILLED, FINETUNED, MEMBERS, curves_of
from tercet.demo.run import RUNS, claim_folder, next_steps, recipe_of, run_demo
from tercet.demo.samples import BEGINNINGS, GAPS, NUM_SHOWN, PARAGRAPHS, TELEGRAMS
from tercet.pretraining.comparison import compare, trigram_losses
from tercet.text.documentation import Docstring

WORDS = ["the", "a", "of", "in", "array", "given", "value", "object", "called", "number", "returns"]
TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


@pytest.fixture(scope="module")
def overrides(tmp_path_factory):
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
    pretraining = [
        f"model.overrides={json.dumps(TINY)}",
        "tokenizer.vocab_size=400",
        f"corpus.train={folder / 'train.txt'}",
        f"corpus.validation={folder / 'validation.txt'}",
        f"corpus.cache={folder / 'cache'}",
        "training.steps=2",
        "training.measure_utilization=false",
        "training.tokens_per_step=1024",
        "training.evaluate_every=1",
        "training.log_every=1",
    ]
    return dict.fromkeys((RUNS[member][1] for member in MEMBERS), pretraining) | {
        "packages-demo": ["training.epochs=1"],
        "encoder-half-demo": ["task.training.epochs=1", "report.speed=false"],
    }


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
def finished(overrides, documents, tmp_path_factory):
    """Run the demonstration once."""
    return run_demo(tmp_path_factory.mktemp("demo") / "new", overrides=overrides, documents=documents)


@pytest.fixture(scope="module")
def markdown(finished):
    return (finished.parent / "report.md").read_text()


def read(finished, *parts):
    return json.loads(finished.parent.joinpath(*parts).read_text())


def test_every_member_has_one_card_and_every_run_its_verdicts_beside_what_it_must_beat(finished, markdown):
    """All of them are those of the run's own report."""
    cards = re.findall(r"^\*\*(Encoder|Decoder|Sequence to sequence|Student)", markdown, re.MULTILINE)
    assert cards == ["Encoder", "Decoder", "Sequence to sequence", "Student", "Decoder"]
    places = [
        markdown.index(f"**{title}: ") for title in ("Sequence to sequence", "Student", "Decoder, prompted")
    ]
    headings = [
        markdown.index(f"## {title}") for title in ("Encoder", "Half the layers", "Finding what comes next")
    ]
    assert places[0] < headings[0] < headings[1] < places[1] < headings[2] < places[2]
    for name in ("no context", "trigram", "without pretraining", "bag of words", "majority class", "random"):
        assert re.search(rf"^{name} +█* +[\d.]+$", markdown, re.MULTILINE), name
    told = [verdict["text"] for verdict in read(finished, "scores.json")["verdicts"]]
    for run in (*MEMBERS, FINETUNED, CONTINUING):
        own = [verdict["text"] for verdict in read(finished, run, "scores.json")["verdicts"]]
        assert own
        assert all(any(text.endswith(each) for text in told) for each in own)
    assert any("the same encoder without pretraining (accuracy " in text for text in told)
    shown = markdown.replace("\\", "")
    assert all(f"- **{text}**" in shown for text in told)


def test_scores_lie_within_their_intervals(finished):
    for answers in read(finished, "scores.json")["scores"].values():
        for own in answers.values():
            low, high = own.get("interval", (0, 100))
            assert low <= own["score"] <= high


def test_made_up_texts_come_before_held_out_ones(markdown):
    for texts, kind in (
        (BEGINNINGS, "prompt"),
        (PARAGRAPHS, "paragraph"),
        (TELEGRAMS, "telegram"),
        ([each[0] for each in GAPS], "sentence"),
    ):
        shown = [line for line in markdown.splitlines() if line.startswith(f"> {kind}: ")]
        assert len(texts) < len(shown) <= len(texts) + 2 * NUM_SHOWN  # telegrams show sentences, too
        assert all(text.strip() in line for text, line in zip(texts, shown, strict=False))
    for label in ("greedy", "sampled", "original", "written", "right"):
        assert f"> {label}: " in markdown


def test_page_is_self_contained(finished):
    page = finished.read_text()
    assert finished.name == "report.html"
    assert "<script" not in page
    links = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    files = {link for link in links if not link.startswith(("#", "data:"))}
    assert files == {f"{run}/report.html" for run in RUNS}
    assert all((finished.parent / file).exists() for file in files)
    assert page.count("<svg") == len(MEMBERS)
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_curves_lie_beside_the_report(finished):
    for name in map(curves_of, MEMBERS):
        assert (finished.parent / name).read_bytes().startswith(b"\x89PNG")


def test_a_decoder_is_compared_with_counting_as_by_the_definition(finished, monkeypatch):
    recipe = load_recipe(RUNS["decoder"][0].recipe, str(finished.parent / "decoder" / "recipe.yaml"))
    folder = finished.parent / "decoder" / "model"
    model = AutoModelForPreTraining.from_pretrained(folder)
    scores = compare(recipe, model.eval(), AutoTokenizer.from_pretrained(folder))
    summary = read(finished, "decoder", "evaluation.json")
    assert summary["trigram"] == {"clm": pytest.approx(scores["trigram"]["clm/loss"])}
    assert summary["scores"]["clm/loss"] == pytest.approx(scores["trained"]["clm/loss"], rel=1e-4)
    assert read(finished, "encoder", "evaluation.json")["trigram"] == {}
    monkeypatch.setattr("tercet.pretraining.comparison.MOST_COUNTED", 100)
    assert trigram_losses(recipe, AutoTokenizer.from_pretrained(folder)) == {}


def test_both_runs_differ_in_their_beginning_alone(finished):
    runs = [finished.parent / run for run in (FINETUNED, CONTROL)]
    recipes = [yaml.safe_load((run / "recipe.yaml").read_text()) for run in runs]
    models = [recipe.pop("model") for recipe in recipes]
    assert recipes[0] | {"output": ""} == recipes[1] | {"output": ""}
    assert models[0] | {"from_scratch": True} == models[1]
    weights = [load_file(run / "model" / "model.safetensors") for run in runs]
    assert any((weights[0][name] != weights[1][name]).any() for name in weights[0])


def test_the_student_has_half_the_layers(finished, markdown):
    configs = [read(finished, run, "model", "config.json") for run in (FINETUNED, DISTILLED)]
    assert [config["num_hidden_layers"] for config in configs] == [2, 1]
    assert "## Half the layers" in markdown


@pytest.mark.parametrize("run", RUNS)
def test_a_shipped_recipe_names_what_the_demonstration_writes(run):
    """So `tercet finetune packages-demo` does after `tercet demo` what that did."""
    command, name = RUNS[run]
    shipped, own = load_recipe(command.recipe, name), recipe_of(run, Path("runs/demo"), ())
    for recipe in (shipped, own):
        object.__setattr__(recipe, "output", "")
    if run == CONTROL:
        object.__setattr__(own.model, "from_scratch", False)
    if run == CONTINUING:  # whose shipped recipe names no model
        object.__setattr__(own, "models", ())
    assert shipped == own


def test_next_steps_are_commands_that_work(finished, tmp_path, monkeypatch):
    """What they write lies where one is, and not in the demonstration's folder, which is replaced whole."""
    monkeypatch.chdir(tmp_path)
    steps = [shlex.split(step) for step in next_steps(finished)]
    assert [step[:2] for step in steps] == [["tercet", name] for name in ("play", "predict", "doctor")]
    for _, *arguments in steps:
        options = parse(arguments)
        named = [options.model] if isinstance(options.model, str) else options.model
        assert all(Path(model, "config.json").exists() for model in named)
    predict = steps[1][1:]
    assert main(predict) == 0
    assert (tmp_path / "packages.jsonl").exists()


def test_earlier_demo_is_replaced_only_if_asked(finished):
    with pytest.raises(ValueError, match="--overwrite"):
        claim_folder(finished.parent, overwrite=False)
