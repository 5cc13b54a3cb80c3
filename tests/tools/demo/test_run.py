"""The demonstration on a page of text: ten runs of a few steps each, and a page of what they found."""

import json
import random
import re
import shlex
from html import unescape
from pathlib import Path

import pytest
from accelerate import Accelerator
from transformers import AutoModelForPreTraining, AutoTokenizer

from tercet.__main__ import main
from tercet.command_line import parse
from tercet.configs.recipe import load_recipe
from tercet.data.embedded_corpus import Docstring
from tercet.data.steps.batches import one_pass
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.reports.pretraining.baselines import TrigramModel
from tercet.reports.pretraining.comparison import steps_in_order, trigram_losses, with_ends
from tercet.tools.demo.page import MEMBERS, NUM_SHOWN, PROMPTED
from tercet.tools.demo.run import COMMANDS, SHORTENED, next_steps, run_demo, steps_in
from tercet.tools.demo.tasks import evenly_spaced
from tercet.training.evaluation import evaluate, micro_batches

from ...pretraining.conftest import TINY
from ...pretraining_parts import documents_of, reader_of

RUNS = steps_in(Path("runs/demo"))
WORDS = ["the", "a", "of", "in", "array", "given", "value", "object", "called", "number", "returns"]
LONG = TINY | {"max_position_embeddings": 128}


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
        f"model.overrides={json.dumps(LONG)}",
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
    return dict.fromkeys((f"{member}-demo" for member in MEMBERS), pretraining) | {
        "packages-demo": ["training.epochs=1"],
        "packages-half-demo": ["task.training.epochs=1"],
    }


@pytest.fixture(scope="module")
def documents():
    """Invent modules of two packages with a docstring each."""
    draw = random.Random(0)

    def docstring() -> Docstring:
        summary, *details = (" ".join(draw.choices(WORDS, k=size)).capitalize() + "." for size in (8, 15, 44))
        return Docstring(summary, details)

    sizes = {"train": 20, "validation": 6}
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


def test_every_kind_of_model_does_every_job_to_the_verdicts_of_its_own_report(finished, markdown):
    jobs = ("pretrained", "fine-tuned", "distilled")
    shown = [line for line in markdown.replace("\\", "").splitlines() if line.startswith("- **")]
    for name in MEMBERS.values():
        assert all(any(line.startswith(f"- **{name}, {job}. ") for line in shown) for job in jobs)
    for run in RUNS:
        own = [verdict["text"] for verdict in read(finished, run, "scores.json")["verdicts"]]
        assert own
        assert all(any(text in line for line in shown) for text in own)
    assert sum(line.startswith("- **Prompted. ") for line in shown) == len(MEMBERS)


def test_the_page_begins_with_what_was_learned(finished, markdown):
    verdicts = [each for run in RUNS for each in read(finished, run, "scores.json")["verdicts"]]
    good = sum(each["outcome"] == "better" for each in verdicts)
    assert f"{good} of {len(verdicts)} verdicts are in favour" in markdown
    assert markdown.index("- **Encoder, pretrained. ") < markdown.index("## ")


def test_examples_are_evenly_spaced_held_out_texts(finished, markdown):
    rows = (finished.parent / "tasks" / "packages-test.jsonl").read_text().splitlines()
    shown = [line for line in markdown.splitlines() if line.startswith("> paragraph: ")]
    expected = [json.loads(row)["text"] for row in evenly_spaced(rows, NUM_SHOWN)]
    assert [line.removeprefix("> paragraph: ").rstrip("\\").strip() for line in shown] == expected
    plain = unescape(markdown.replace("\\", ""))
    for member in MEMBERS:
        for sample in evenly_spaced(read(finished, member, "evaluation.json")["samples"], NUM_SHOWN):
            assert all(text.strip()[:20] in plain for text in sample.values())


def test_the_page_names_the_longer_trainings(markdown):
    for recipe, settings in SHORTENED.items():
        assert f"{recipe}: {' '.join(settings)}" in markdown.replace("\\", "")


def test_page_is_self_contained(finished):
    page = finished.read_text()
    assert finished.name == "report.html"
    assert "<script" not in page
    links = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    files = {link for link in links if not link.startswith(("#", "data:"))}
    assert files == {f"{run}/report.html" for run in RUNS}
    assert all((finished.parent / file).exists() for file in files)


def test_a_decoder_is_compared_with_counting_as_by_the_definition(finished, monkeypatch):
    recipe = load_recipe(PretrainingRecipe, str(finished.parent / "decoder" / "recipe.yaml"))
    folder = finished.parent / "decoder" / "model"
    model, tokenizer = AutoModelForPreTraining.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    reader, texts = reader_of(recipe, tokenizer), documents_of(recipe)
    train, held_out = (reader.tokenize(texts[split]) for split in ("train", "validation"))
    counted = TrigramModel.fit(*with_ends(train, [tokenizer.eos_token_id]), len(tokenizer))
    nats = -counted.log_probability(*with_ends(held_out, [tokenizer.eos_token_id]))
    summary = read(finished, "decoder", "evaluation.json")
    assert summary["trigram"] == {"clm": pytest.approx(nats.mean())}
    objective, accelerator = reader.build_objective(model.config), Accelerator(cpu=True)
    source = reader.held_out(texts["validation"]).source
    steps = steps_in_order(source, objective, recipe.training)
    scores = evaluate(model.eval(), objective, micro_batches(one_pass(steps), model.device), accelerator)
    assert summary["scores"]["clm/loss"] == pytest.approx(scores["clm/loss"], rel=1e-4)
    assert read(finished, "encoder", "evaluation.json")["trigram"] == {}
    monkeypatch.setattr("tercet.reports.pretraining.comparison.MOST_COUNTED", 100)
    assert trigram_losses(reader, texts) == {}


@pytest.mark.parametrize("member", MEMBERS)
def test_the_student_has_half_the_layers(member, finished):
    teacher, student = (
        read(finished, job, member, "model", "config.json") for job in ("finetuned", "distilled")
    )
    assert (teacher["num_hidden_layers"], student["num_hidden_layers"]) == (2, 1)


@pytest.mark.parametrize("run", [run for run in RUNS if run not in MEMBERS])
def test_a_shipped_recipe_names_what_the_demonstration_writes(run):
    """So `tercet finetune packages-demo` does after `tercet demo` what that did, for longer."""
    command, name, inputs = RUNS[run]
    is_general = run == PROMPTED or not run.endswith("encoder")  # whose shipped recipes name no such model
    models = ("models=", "model.path=", "task.teacher=")
    own = [each for each in inputs if not (is_general and each.startswith(models))]
    recipe_type = COMMANDS[command][0]
    assert load_recipe(recipe_type, name, own) == load_recipe(recipe_type, name)


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
