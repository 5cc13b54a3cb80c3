"""One report of each kind, from small real runs, and what they look like in a browser: `make pages`.

    python tests/reports/report_pages.py --folder runs/pages

The models are tiny and learn for seconds from a part of the documentation that every installation has: the
scores mean nothing, the pages are whole. Every page is checked at the width of a phone and of a desk, in
light and in dark colours, and photographed; the exit code is 1 if something is wrong with one of them.
"""

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path

from page_checks import SCHEMES, WIDTHS, browser, photograph, problems_of

import tercet
from tercet.configs.recipe import load_recipe
from tercet.data.cache import cache_folder
from tercet.data.embedded_corpus import Document, read_documentation
from tercet.fewshot.recipe import FewShotRecipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.tools.demo.page import MEMBERS
from tercet.tools.demo.run import run_demo
from tercet.tools.inspect.page import inspect_model

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}

MODELS = {"tagging": "encoder", "regression": "encoder", "generation": "seq2seq"}
"""Kind of a task that is learned besides those of the demonstration -> the member that learns it."""

MODULES = {"train": 400, "validation": 60}
"""Split -> modules whose documentation is read."""

PAGES = {
    "demo": "demo/report.html",
    "pretraining": "demo/encoder/report.html",
    "classification": "demo/finetuned/encoder/report.html",
    "distillation": "demo/distilled/encoder/report.html",
    "few-shot": "few-shot/report.html",
    "generation": "generation/report.html",
    "tagging": "tagging/report.html",
    "regression": "regression/report.html",
    "inspection": "inspection.html",
}
"""Kind of a report -> where it lies."""


def write_pages(folder: Path, *, steps: int = 30, modules: Mapping[str, int] = MODULES) -> dict[str, Path]:
    """Carry out the runs in a folder, and say where the page of each kind is."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = {
        split: spread(read_documentation(split, cache_folder(None)), modules[split]) for split in modules
    }
    for split, read in documents.items():
        texts = ["\n".join(text) for _, found in read for text in (each.paragraphs for each in found) if text]
        (folder / f"{split}.txt").write_text("\n\n".join(texts), encoding="utf-8")
    run_demo(
        folder / "demo",
        overwrite=True,
        overrides=dict.fromkeys((f"{member}-demo" for member in MEMBERS), small(folder, steps))
        | {"packages-half-demo": ["task.training.epochs=1", "report.random=true", "report.speed=true"]},
        documents=documents,
    )
    for kind in MODELS:
        write_rows(kind, folder)
        tercet.finetune(task_of(kind, folder), overwrite=True)
    tercet.fewshot(prompts_of(folder), overwrite=True)
    model, page = folder / "demo" / "decoder" / "model", folder / PAGES["inspection"]
    inspect_model(str(model), "The function returns a list of strings. The function returns", str(page))
    return {kind: folder / page for kind, page in PAGES.items()}


def spread(documents: Sequence[Document], number: int) -> list[Document]:
    """Choose some modules, evenly spaced."""
    return list(documents[:: max(1, len(documents) // number)])


def small(folder: Path, steps: int) -> list[str]:
    """Shrink the members of the demonstration."""
    return [
        f"model.overrides={json.dumps(TINY)}",
        "tokenizer.vocab_size=2000",
        f"corpus.train={folder / 'train.txt'}",
        f"corpus.validation={folder / 'validation.txt'}",
        f"training.steps={steps}",
        "training.measure_utilization=false",
        f"training.evaluate_every={max(steps // 5, 1)}",
        f"training.log_every={max(steps // 15, 1)}",
    ]


def task_of(kind: str, folder: Path) -> FineTuningRecipe:
    """Load the recipe that learns from the rows of `write_rows`."""
    recipes = {
        "tagging": "token-classification",
        "regression": "text-similarity",
        "generation": "summarization",
    }
    columns = {
        "tagging": [],
        "regression": ["task.texts=[text]", "task.label=score"],
        "generation": ["task.source=text", "task.target=summary"],
    }
    return load_recipe(
        FineTuningRecipe,
        recipes[kind],
        [
            f"model.path={folder / 'demo' / MODELS[kind] / 'model'}",
            f"data.train={folder / f'{kind}-train.jsonl'}",
            f"data.validation={folder / f'{kind}-validation.jsonl'}",
            "training.epochs=2",
            f"output={folder / kind}",
            *columns[kind],
        ],
    )


def prompts_of(folder: Path) -> FewShotRecipe:
    """Ask the decoder which package a paragraph documents, with and without demonstrations."""
    rows = folder / "demo" / "tasks"
    files = {split: rows / f"packages-{split}.jsonl" for split in ("train", "test")}
    labels = sorted({json.loads(line)["label"] for line in files["train"].read_text("utf-8").splitlines()})
    return load_recipe(
        FewShotRecipe,
        "topics",
        [
            f"task.choices={json.dumps(labels)}",
            f"data.test={files['test']}",
            f"data.demonstrations={files['train']}",
            "data.limit=40",
            "prompting.num_fewshot=[0,1,4]",
            "prompting.seeds=[0,1]",
            f"models=[{folder / 'demo' / 'decoder' / 'model'}]",
            f"output={folder / 'few-shot'}",
        ],
    )


def write_rows(kind: str, folder: Path) -> None:
    """Make rows of those of the demonstration.

    Names in code style are tagged in paragraphs, or the share of such words is the number; a summary is how a
    paragraph begins.
    """
    for split in ("train", "validation"):
        file = folder / "demo" / "tasks" / f"packages-{split}.jsonl"
        read = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        rows = [row_of(kind, each["text"].split()[:40]) for each in read]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows[:300])
        (folder / f"{kind}-{split}.jsonl").write_text(lines, encoding="utf-8")


def row_of(kind: str, words: list[str]) -> dict[str, object]:
    """Make a row of the words of a paragraph."""
    if kind == "generation":
        return {"text": " ".join(words), "summary": " ".join(words[:8])}
    tags = tags_of(words)
    if kind == "tagging":
        return {"tokens": words, "tags": tags}
    return {"text": " ".join(words), "score": sum(tag != "O" for tag in tags) / len(words)}


def tags_of(words: list[str]) -> list[str]:
    """Tag words that look like names of code, and numbers."""
    return [
        "B-NUMBER" if word.strip(".,()").isdigit() else "B-NAME" if is_name(word) else "O" for word in words
    ]


def is_name(word: str) -> bool:
    """Return whether a word has an underscore, a bracket or a backquote."""
    return any(mark in word for mark in "_`(=")


def main() -> None:
    """Write the pages, check them, and photograph them."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/pages"), help="where to write (%(default)s)"
    )
    parser.add_argument("--only-check", action="store_true", help="check the pages that are there")
    options = parser.parse_args()
    found = {kind: options.folder / page for kind, page in PAGES.items()}
    pages = found if options.only_check else write_pages(options.folder)
    if problems := look(pages, options.folder / "pictures"):
        raise SystemExit("\n".join(problems))
    print(f"{options.folder / 'pictures'}: {len(pages)} pages, nothing is wrong with them")


def look(pages: Mapping[str, Path], pictures: Path) -> list[str]:
    """Check every page on every screen, photograph it, and list what is wrong."""
    problems = []
    with browser() as opened:
        for kind, page in pages.items():
            for screen, width in WIDTHS.items():
                for scheme in SCHEMES:
                    found = problems_of(opened, page, width, scheme)
                    problems += [f"{kind}, {screen}, {scheme}: {problem}" for problem in found]
                    photograph(opened, page, width, scheme, pictures / f"{kind}-{screen}-{scheme}.png")
    return problems


if __name__ == "__main__":
    main()
