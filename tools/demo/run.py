"""The demonstration: three kinds of models learn from text that this machine already has; a page says what.

Encoder, decoder and sequence-to-sequence model are each pretrained, fine-tuned, distilled and prompted.
Every run is a shipped recipe, shortened to fit into minutes, which its command would carry out likewise.
Nothing is downloaded.
"""

import json
import resource
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...configs.messages import quietly
from ...configs.named_files import named_path
from ...configs.recipe import load_recipe
from ...data.cache import cache_folder
from ...data.embedded_corpus import SPLITS, read_documentation
from ...distill.recipe import DistillationRecipe
from ...distill.run import distill
from ...fewshot.recipe import FewShotRecipe
from ...fewshot.run import fewshot
from ...finetune.recipe import FineTuningRecipe
from ...finetune.run import finetune
from ...pretraining.recipe import PretrainingRecipe
from ...pretraining.run import pretrain
from ...reports.distill.report import write_report as report_of_distillation
from ...reports.fewshot.report import write_report as report_of_prompting
from ...reports.finetune.report import write_report as report_of_fine_tuning
from ...reports.finished_run import report_on
from ...reports.page import save
from ...reports.pretraining.report import write_report as report_of_pretraining
from ...training.ownership import mark, require_movable, set_aside, visible
from ...training.run_folder import MODEL, PAGE, writing
from .page import MEMBERS, PROMPTED, TASKS, build_page, verdicts_of
from .tasks import ROWS_PER_PACKAGE, Modules, write_tasks

COMMANDS = {
    "pretrain": (PretrainingRecipe, pretrain, report_of_pretraining),
    "finetune": (FineTuningRecipe, finetune, report_of_fine_tuning),
    "distill": (DistillationRecipe, distill, report_of_distillation),
    "fewshot": (FewShotRecipe, fewshot, report_of_prompting),
}
"""Name of a command -> its recipe, what carries it out, what makes its report."""

SHORTENED: Mapping[str, Sequence[str]] = {
    "encoder-demo": ("training.steps=100", "training.measure_utilization=false"),
    "decoder-demo": ("training.steps=120", "training.measure_utilization=false"),
    "seq2seq-demo": ("training.steps=80", "training.measure_utilization=false"),
    "packages-demo": ("training.epochs=2",),
    "packages-half-demo": ("task.training.epochs=1", "report.speed=false"),
    "continuations-demo": ("data.limit=100",),
}
"""Name of a recipe -> what makes the demonstration short: as it is, it takes longer and learns more."""

Steps = dict[str, tuple[str, str, list[str]]]
"""Folder of a run -> its command, its recipe, and the settings that name models and rows."""


def steps_in(folder: Path) -> Steps:
    """Return the runs of a demonstration in a folder, each after those whose models it reads."""
    rows = [f"data.{split}={folder / TASKS / f'packages-{split}.jsonl'}" for split in ROWS_PER_PACKAGE]
    steps: Steps = {}
    for member in MEMBERS:
        pretrained, finetuned = (folder / run / MODEL for run in (member, f"finetuned/{member}"))
        teacher = [f"task.teacher={finetuned}", *(f"task.{setting}" for setting in rows)]
        steps[member] = "pretrain", f"{member}-demo", []
        steps[f"finetuned/{member}"] = "finetune", "packages-demo", [f"model.path={pretrained}", *rows]
        steps[f"distilled/{member}"] = "distill", "packages-half-demo", teacher
    models = f"models={json.dumps([str(folder / member / MODEL) for member in MEMBERS])}"
    questions = f"data.test={folder / TASKS / 'continuations-test.jsonl'}"
    return steps | {PROMPTED: ("fewshot", "continuations-demo", [models, questions])}


def run_demo(
    output: str | Path,
    *,
    overwrite: bool = False,
    overrides: Mapping[str, Sequence[str]] | None = None,
    documents: Modules | None = None,
) -> Path:
    """Carry out all runs, and return the path of the page.

    Args:
        output: Folder of everything.
        overwrite: Replace an earlier demonstration there.
        overrides: Further changes of the shipped recipes.
        documents: Other modules for the tasks than this machine's, by split of pretraining.
    """
    folder = named_path(output, "--output")
    with writing(folder):
        claim_folder(folder, overwrite=overwrite)
        try:
            return carry_out(folder, overrides or {}, documents)
        except KeyboardInterrupt:  # a run within it says --resume, which no demo has
            raise KeyboardInterrupt("stopped; a demo begins anew: add --overwrite") from None


def carry_out(folder: Path, overrides: Mapping[str, Sequence[str]], documents: Modules | None) -> Path:
    """Carry out all runs in a folder that nobody else writes, and return the path of the page."""
    began, steps = time.perf_counter(), steps_in(folder)
    print("reading the documentation that is installed on this machine", flush=True)
    cache = cache_folder(None)
    write_tasks(folder / TASKS, documents or {split: read_documentation(split, cache) for split in SPLITS})
    times: dict[str, tuple[float, float]] = {}
    for number, (run, (command, name, inputs)) in enumerate(steps.items(), 1):
        since, processor_since = time.perf_counter(), processor_seconds()
        print(f"[{number}/{len(steps)}] {run}: tercet {command} {name}", flush=True)
        recipe_type, call, write_report = COMMANDS[command]
        settings = [*SHORTENED[name], *inputs, f"output={folder / run}", *overrides.get(name, ())]
        with quietly():
            call(load_recipe(recipe_type, name, settings))
            report_on(folder / run, write_report, makes_model=run != PROMPTED)
        times[run] = time.perf_counter() - since, processor_seconds() - processor_since
        for verdict in verdicts_of(folder, run):
            print(f"  {verdict.text}", flush=True)
    save(build_page(folder, times, SHORTENED, (time.perf_counter() - began) / 60), folder)
    return folder / PAGE


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def next_steps(page: Path) -> list[str]:
    """Return three commands that go on from a finished demonstration, the first of which opens its models."""
    models = [str(page.parent / member / MODEL) for member in MEMBERS]
    finetuned, rows = page.parent / "finetuned/encoder" / MODEL, page.parent / TASKS / "packages-test.jsonl"
    predict = ["predict", str(finetuned), str(rows), "--output", "packages.jsonl"]
    return [shlex.join(["tercet", *words]) for words in (["play", *models], predict, ["doctor", models[0]])]


def claim_folder(folder: Path, *, overwrite: bool) -> None:
    """Make the folder, in place of that of an earlier demonstration, which is renamed."""
    if folder.is_file():
        raise ValueError(f"output is {folder}, which is a file: name a folder")
    if visible(folder):
        require_movable(folder)
        if not overwrite:
            raise ValueError(f"{folder} holds an earlier demo: add --overwrite, or choose another --output")
        set_aside(folder)
    folder.resolve().mkdir(parents=True, exist_ok=True)
    mark(folder)
