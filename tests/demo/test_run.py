"""The demonstration on a page of text: three members, a few steps each, and a report of all of them."""

import json
import random
import re
from dataclasses import replace

import pytest

from tercet.configs.recipe import load_recipe
from tercet.demo.run import CURVES, MEMBERS, claim_folder, load_recipes, run_demo
from tercet.pretraining.recipe import PretrainingRecipe

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
def finished(recipes, tmp_path_factory):
    """Run the demonstration once."""
    return run_demo(tmp_path_factory.mktemp("demo") / "new", recipes=recipes)


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
    assert all(link.startswith("#") for link in links)
    assert page.count("<svg") == len(MEMBERS)


def test_curves_lie_beside_the_report(finished):
    for name in CURVES:
        assert (finished.parent / name).read_bytes().startswith(b"\x89PNG")


def test_models_read_back_score_what_their_runs_measured(finished):
    for member in MEMBERS:
        measured = json.loads((finished.parent / member / "evaluation.json").read_text())["scores"]
        term = next(name for name in measured if name.endswith("/loss"))
        assert f"| **{measured[term]:.3f}** |" in (finished.parent / "report.md").read_text()


def test_earlier_demo_is_replaced_only_if_asked(finished):
    with pytest.raises(ValueError, match="--overwrite"):
        claim_folder(finished.parent, overwrite=False)


def test_folder_that_no_demo_wrote_is_never_deleted(tmp_path):
    (tmp_path / "thesis.txt").write_text("two years of work")
    with pytest.raises(ValueError, match=r"thesis\.txt, which no demo wrote"):
        claim_folder(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


def test_shipped_recipes_read_the_embedded_corpus():
    for recipe in load_recipes():
        assert recipe.corpus.train == recipe.corpus.validation == "documentation"
        assert replace(recipe, output="elsewhere") != recipe
