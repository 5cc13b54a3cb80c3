"""The demonstration: three small models learn from text that this machine already has; a page says what.

    pretrain the encoder -> fine-tune it, beside random weights -> distill it --+
    pretrain the decoder -> find continuations ---------------------------------+--> report.md, report.html
    teach a sequence-to-sequence model to write telegrams out ------------------+

Every step is a shipped recipe (`RUNS`), which its command would carry out likewise. Nothing is downloaded.
"""

import json
import resource
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..configs.recipe import load_recipe
from ..distill.recipe import DistillationRecipe
from ..distill.report import write_report as report_of_distillation
from ..distill.run import distill
from ..fewshot.recipe import FewShotRecipe
from ..fewshot.report import write_report as report_of_prompting
from ..fewshot.run import fewshot
from ..finetune.output import PREDICTIONS
from ..finetune.recipe import FineTuningRecipe
from ..finetune.report import write_report as report_of_fine_tuning
from ..finetune.run import finetune
from ..finetune.summary import read_predictions
from ..finetune.tasks import load_task
from ..ground.messages import quietly
from ..metrics.bootstrap import percentile_interval
from ..pretraining.recipe import PretrainingRecipe
from ..pretraining.report import write_report as report_of_pretraining
from ..pretraining.run import pretrain
from ..reporting.page import save
from ..reporting.verdicts import Verdict, about_few_rows, as_data, judge
from ..storage.finished_run import FinishedRun, report_on
from ..storage.scores import METRICS
from ..text.cache import cache_folder
from ..text.documentation import SPLITS, Document, read_documentation
from ..text.paths import named_path
from ..text.row_files import read_file
from ..training.disk import replace_text
from ..training.ownership import mark, require_movable, set_aside, visible
from ..training.run_folder import EVALUATION, MODEL, PAGE, SCORES, writing
from .report import (
    CONTINUING,
    CONTROL,
    DISTILLED,
    FINETUNED,
    NAMES,
    ROWS,
    Spent,
    build_report,
    scored,
    scores_of,
)
from .tasks import SPLITS as SPLITS_OF_TASKS
from .tasks import write_tasks


@dataclass(frozen=True)
class Command:
    """What carries a kind of recipe out."""

    name: str
    """As it is typed."""
    recipe: type
    carry_out: Callable[[Any], Path]
    """What it calls: recipe -> folder of the run."""
    summary: str
    """The file that says what a run has come to."""
    write_report: Callable[[FinishedRun], None]
    """Makes the report of a finished run."""


PRETRAIN = Command("pretrain", PretrainingRecipe, pretrain, EVALUATION, report_of_pretraining)
FINETUNE = Command("finetune", FineTuningRecipe, finetune, SCORES, report_of_fine_tuning)
DISTILL = Command("distill", DistillationRecipe, distill, SCORES, report_of_distillation)
PROMPT = Command("fewshot", FewShotRecipe, fewshot, SCORES, report_of_prompting)

RUNS = {
    "encoder": (PRETRAIN, "encoder-demo"),
    FINETUNED: (FINETUNE, "packages-demo"),
    CONTROL: (FINETUNE, "packages-demo"),
    DISTILLED: (DISTILL, "encoder-half-demo"),
    "decoder": (PRETRAIN, "decoder-demo"),
    CONTINUING: (PROMPT, "continuations-demo"),
    "seq2seq": (PRETRAIN, "telegrams-demo"),
}
"""Folder of a run -> its command and its recipe, in their order."""

SHARE_OF_FIRST = 0.27
"""Share of the whole that the first run takes."""

Overrides = Mapping[str, Sequence[str]]
"""Name of a recipe -> settings that are changed in it."""

Documents = Mapping[str, Sequence[Document]]
"""Modules by split of pretraining."""


def run_demo(
    output: str | Path,
    *,
    overwrite: bool = False,
    overrides: Overrides | None = None,
    documents: Documents | None = None,
) -> Path:
    """Train the three members, measure what they can do, and return the path of the report's page.

    Args:
        output: Folder of everything.
        overwrite: Replace an earlier demonstration there.
        overrides: Changes of the shipped recipes; models, rows and outputs are those of the demonstration.
        documents: Other modules for the tasks, by split of pretraining, than those of this machine.

    Raises:
        ValueError: The folder holds something else, or an earlier demonstration without `overwrite`.
        KeyboardInterrupt: A signal stopped it.
    """
    folder = named_path(output, "--output")
    with writing(folder):
        claim_folder(folder, overwrite=overwrite)
        try:
            return show_all(folder, overrides or {}, documents)
        except KeyboardInterrupt:  # a run within it says --resume, which no demo has
            raise KeyboardInterrupt("stopped; a demo begins anew: add --overwrite") from None


def show_all(folder: Path, overrides: Overrides, documents: Documents | None) -> Path:
    """Carry out the demonstration in a folder that nobody else writes; the arguments are `run_demo`'s."""
    began = spent()
    recipes = {run: recipe_of(run, folder, overrides.get(name, ())) for run, (_, name) in RUNS.items()}
    say("reading the documentation that is installed on this machine")
    if documents is None:
        cache = cache_folder(recipes["encoder"].corpus.cache)
        documents = {split: read_documentation(split, cache) for split in SPLITS}
    write_tasks(folder / ROWS, documents)
    summaries: dict[str, Any] = {}
    verdicts: list[Verdict] = []
    times: dict[str, Spent] = {}
    for number, (run, (command, name)) in enumerate(RUNS.items(), 1):
        since = spent()
        say(f"[{number}/{len(RUNS)}] {run}: tercet {command.name} {name}")
        with quietly():
            command.carry_out(recipes[run])
            report_on(folder / run, command.write_report, makes_model=command is not PROMPT)
        times[run] = spent() - since
        if number == 1:
            minutes = times[run].seconds / SHARE_OF_FIRST / 60
            say(f"  about {minutes:.0f} minutes for the whole demo, on a machine as busy as now")
        summaries[run] = json.loads((folder / run / command.summary).read_text(encoding="utf-8"))
        told = json.loads((folder / run / SCORES).read_text(encoding="utf-8"))["verdicts"]
        found = [Verdict(**each) for each in told]
        if run == CONTROL:  # is of interest only beside the encoder that was pretrained
            found, run = [beside_control(folder, summaries)], FINETUNED
        for verdict in found:
            say(f"  {verdict.text}")
            verdicts.append(replace(verdict, text=f"{NAMES[run]}. {verdict.text}"))
    scores = {"scores": scores_of(summaries), "verdicts": as_data(verdicts)}
    replace_text(folder / SCORES, json.dumps(scores, indent=2))
    times["all"] = spent() - began
    save(build_report(folder, summaries, verdicts, documents, times), folder)
    return folder / PAGE


def recipe_of(run: str, folder: Path, overrides: Sequence[str]) -> Any:
    """Read the shipped recipe of a run, with models, rows and output of a demonstration."""
    command, name = RUNS[run]
    recipe: Any = replace(load_recipe(command.recipe, name, overrides), output=str(folder / run))
    if run == "seq2seq":
        return replace(recipe, corpus=replace(recipe.corpus, **files(folder, "telegrams", SPLITS)))
    if run in (FINETUNED, CONTROL):
        model = replace(recipe.model, path=str(folder / "encoder" / MODEL), from_scratch=run == CONTROL)
        return replace(recipe, model=model, data=replace(recipe.data, **files(folder, "packages")))
    if run == DISTILLED:
        data = replace(recipe.task.data, **files(folder, "packages"))
        return replace(recipe, task=replace(recipe.task, teacher=str(folder / FINETUNED / MODEL), data=data))
    if run == CONTINUING:
        data = replace(recipe.data, test=str(folder / ROWS / Path(recipe.data.test).name))
        return replace(recipe, data=data, models=(str(folder / "decoder" / MODEL),))
    return recipe


def files(folder: Path, task: str, splits: Sequence[str] = SPLITS_OF_TASKS) -> dict[str, str]:
    """Name the files of a task's rows."""
    return {split: str(folder / ROWS / f"{task}-{split}.jsonl") for split in splits}


def beside_control(folder: Path, summaries: Mapping[str, Any]) -> Verdict:
    """Judge what pretraining has brought: on the same rows, beside the same encoder from random weights."""
    summary, best = scored(summaries[FINETUNED])
    if few := about_few_rows(**summary["drawn"]):
        return few
    task = load_task(folder / FINETUNED / MODEL)
    rows = read_file(files(folder, "packages")["test"], task.recipe.columns)
    references = task.references(rows)
    predicted = [read_predictions(folder / run / PREDICTIONS) for run in (FINETUNED, CONTROL)]
    own, theirs = (task.bootstrap(each, references) for each in predicted)
    criterion = summary["criterion"]
    return judge(
        "the same encoder without pretraining",
        (best[criterion], tuple(summary["interval"])),
        scored(summaries[CONTROL])[1][criterion],
        difference=percentile_interval(own - theirs),
        metric=METRICS[criterion],
    )


def spent() -> Spent:
    """Return the time, and the processor time of this process and of those that it has waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Spent(time.perf_counter(), sum(usage.ru_utime + usage.ru_stime for usage in usages))


def next_steps(page: Path) -> list[str]:
    """Return three commands that go on from a finished demonstration, the first of which opens its models."""
    folder = page.parent

    def path(*parts: str) -> str:
        return shlex.quote(str(folder.joinpath(*parts)))

    return [
        f"tercet play {path('encoder', MODEL)} {path('decoder', MODEL)} {path('seq2seq', MODEL)}",
        f"tercet predict {path(FINETUNED, MODEL)} {path(ROWS, 'packages-test.jsonl')} "
        "--output packages.jsonl",
        f"tercet doctor {path('encoder', MODEL)}",
    ]


def claim_folder(folder: Path, *, overwrite: bool) -> None:
    """Make the folder, in place of that of an earlier demonstration, which is renamed.

    Raises:
        ValueError: As `run_demo`.
    """
    if folder.is_file():
        raise ValueError(f"output is {folder}, which is a file: name a folder")
    if visible(folder):
        require_movable(folder)
        if not overwrite:
            raise ValueError(f"{folder} holds an earlier demo: add --overwrite, or choose another --output")
        say(f"replacing the earlier demo in {folder}")
        set_aside(folder)
    folder.resolve().mkdir(parents=True, exist_ok=True)
    mark(folder)


def say(message: str) -> None:
    """Print what is going on."""
    print(message, flush=True)
