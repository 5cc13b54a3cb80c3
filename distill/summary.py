"""What a distillation has come to: scores beside the teacher's, sizes and times, the report and the model.

What a student's score shows beside its teacher's and its controls', a sentence each.

All of them answered the same rows. Beside the teacher counts the interval of the share that is kept, beside
the same student without a teacher that of the difference.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch

from ..finetune.summary import SCORE_NAMES, read_predictions
from ..finetune.text_rows import example_texts
from ..ground.messages import quietly
from ..pretraining.translation_scores import TranslationMeasure
from ..reporting.next_steps import NextStep, after_learning_a_task, after_pretraining
from ..reporting.next_steps import as_data as steps_as_data
from ..reporting.page import save
from ..reporting.verdicts import (
    Outcome,
    Verdict,
    about_few_rows,
    as_data,
    difference_in_words,
    outcome_of_difference,
    shown,
)
from ..stock.architectures import options_of_export
from ..storage.model_folder import load_config
from ..text.texts_read import read_texts
from ..training.disk import replace_text
from ..training.precision import join_processes
from ..training.run_folder import EVALUATION, MODEL, RECIPE, SCORES, TEXTS, delete
from .comparison import (
    keep_of_examples,
    keep_of_predictions,
    keep_of_translations,
    lead_of_examples,
    lead_of_predictions,
    lead_of_translations,
    load_all,
    predict_split,
    score_examples,
)
from .general_prepared import PreparedGeneralStep
from .general_step import CACHE
from .output import GENERAL, RANDOM, STUDENT, TASK, TEACHER, WITHOUT_TEACHER
from .prepared import Prepared
from .recipe import DistillationRecipe
from .report import build_report, kept_of, score_name
from .size_and_speed import measure_speeds, size_of
from .task_step import PreparedTaskStep
from .teacher import Source, moved

CONTROLS = {
    WITHOUT_TEACHER: {
        "better": "The teacher helped: the student is better than the same student without one",
        "worse": "The teacher did harm: the student is worse than the same student without one",
        "unclear": "The teacher brought nothing measurable over the same student without one",
    },
    RANDOM: {
        "better": "The teacher's layers helped: the student is better than one from random weights",
        "worse": "The teacher's layers did harm: the student is worse than one from random weights",
        "unclear": "The teacher's layers brought nothing measurable over random weights",
    },
}
"""Name of a control -> outcome of the comparison with it -> what this says."""


def verdicts(summary: Mapping[str, Any]) -> Iterator[Verdict]:
    """Compare the student with its teacher, and with the same student without the teacher's help."""
    told = summary[TASK] if TASK in summary else summary[GENERAL]
    if few := about_few_rows(**told["drawn"]):
        yield few
        return
    kept = kept_of(summary)
    own, teacher = kept[STUDENT], kept[TEACHER]["score"]
    name = score_name(summary)
    if own["interval"] is not None:
        yield about_teacher(own, f"{name}: {shown(own['score'])} against {shown(teacher)}")
    for control, lead in told["leads"].items():
        outcome: Outcome = "unclear"
        if lead is not None:
            outcome = outcome_of_difference(tuple(lead), is_higher_better=told.get("is_higher_better", True))
        scores = [each["score"] for each in (own, kept[control])]
        if lead is None or None in scores:
            continue
        details = f"{' against '.join(map(shown, scores))}; {difference_in_words(tuple(lead))}"
        yield Verdict(f"{CONTROLS[control][outcome]} ({details}).", outcome)


def about_teacher(own: Mapping[str, Any], scores: str) -> Verdict:
    """Judge the share of the teacher's score that is kept: all of it is 1."""
    low, high = own["interval"]
    share = f"{own['share']:.1%} [{low:.1%}, {high:.1%}]"
    outcome = outcome_of_difference((low - 1, high - 1))
    if outcome == "worse":
        return Verdict(f"Keeps {share} of the teacher's score: measurably worse ({scores}).", outcome)
    if outcome == "better":
        return Verdict(f"Exceeds the teacher's score: {share} of it ({scores}).", outcome)
    return Verdict(f"Not measurably worse than the teacher: {share} of its score ({scores}).", outcome)


Summary = dict[str, Any]
"""Plain data: what `scores.json` holds."""


def summarize(recipe: DistillationRecipe, prepared: Prepared) -> None:
    """Compare all students, put the model where it is looked for, and write the report.

    Args:
        recipe: As it was carried out.
        prepared: Its steps, and the students that have learned.
    """
    general, task, students = prepared.general, prepared.task, list(prepared.students)
    folder, last = recipe.folder, TASK if task is not None else GENERAL
    models = {name: folder / name / last / MODEL for name in students}
    delete(folder / MODEL)
    shutil.copytree(models[STUDENT], folder / MODEL, dirs_exist_ok=True)
    shutil.copy(folder / RECIPE, folder / MODEL)
    summary: Summary = {"students": students}
    if general is not None:
        summary[GENERAL] = compare_general(general, {name: folder / name / GENERAL for name in students})
    if task is not None:
        summary[TASK] = compare_task(task, {name: folder / name / TASK for name in students})
    summary |= compare_models(recipe, prepared.last.teacher, models[STUDENT])
    summary["verdicts"] = as_data(verdicts(summary))
    summary["next_steps"] = steps_as_data(what_comes_next(str(folder / MODEL), task))
    replace_text(folder / SCORES, json.dumps(summary, indent=2) + "\n")
    replace_text(folder / TEXTS, json.dumps(texts_of(general, task, folder), indent=2) + "\n")
    told = json.loads((folder / STUDENT / last / EVALUATION).read_text(encoding="utf-8"))
    told["scores"] |= for_card(summary)
    replace_text(folder / EVALUATION, json.dumps(told, indent=2) + "\n")
    save(build_report(recipe, summary), folder)


def what_comes_next(model: str, task: PreparedTaskStep | None) -> Iterator[NextStep]:
    """Yield what may be done with the student."""
    export = options_of_export(load_config(Path(model)))
    if task is None:
        return after_pretraining(model, classifies=False, export=export)
    recipe = task.task.recipe
    return after_learning_a_task(model, example_texts(recipe), recipe.input_columns, export)


def compare_general(step: PreparedGeneralStep, folders: dict[str, Path]) -> Summary:
    """Compare what students and teacher expect of held-out text, and how they translate it."""
    assert step.held_out.source is not None
    students = load_all({name: str(path / MODEL) for name, path in folders.items()})
    models = {TEACHER: step.teacher.model, **students}
    for model in models.values():
        moved(model, present_device()).eval()
    expected = {
        name: score_examples(model, step.base, step.held_out.source) for name, model in models.items()
    }
    kept = {name: keep_of_examples(rows, expected[TEACHER]) for name, rows in expected.items()}
    leads = {name: lead_of_examples(expected[STUDENT], expected[name]) for name in folders if name != STUDENT}
    drawn = {"number": int((expected[TEACHER][:, 0] > 0).sum()), "unit": "held-out examples"}
    if isinstance(measure := step.held_out.measure, TranslationMeasure):
        drawn = {"number": len(measure.references), "unit": "translations"}
        written = {name: measure.translate(model) for name, model in models.items()}
        for name in leads:
            leads[name] = lead_of_translations(
                written[STUDENT], written[name], measure.references, **measure.compared
            )
        for name, texts in written.items():
            kept[name]["bleu"] = keep_of_translations(
                texts, written[TEACHER], measure.references, **measure.compared
            )
    found: Summary = {name: {key: asdict(each) for key, each in kept[name].items()} for name in students}
    for name, path in folders.items():
        found[name]["evaluation"] = json.loads((path / EVALUATION).read_text(encoding="utf-8"))["scores"]
    found[TEACHER] = {key: {"score": each.score} for key, each in kept[TEACHER].items()}
    told: Summary = {"term": step.base.term, "examples": len(expected[TEACHER]), "scores": found}
    told |= {"drawn": drawn, "leads": leads}
    if (cache := folders[STUDENT] / CACHE).exists():
        told["cache"] = json.loads(cache.read_text(encoding="utf-8"))
    return told


def compare_task(step: PreparedTaskStep, folders: dict[str, Path]) -> Summary:
    """Compare how well students and teacher know the task, on the last split."""
    split = "test" if "test" in step.rows else "validation"
    references = step.task.references(step.rows[split])
    teachers = predict_split(step, moved(step.teacher.model, present_device()), split)
    found: Summary = {}
    predictions = {name: read_predictions(folder / "predictions.jsonl") for name, folder in folders.items()}
    for name, folder in folders.items():
        found[name] = asdict(keep_of_predictions(step.task, predictions[name], teachers, references))
        told = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        found[name] |= {key: told[key][split] for key in ("mean", "standard_deviation")}
    found[TEACHER] = {"score": step.task.score(teachers, references)[step.task.metric_for_best_model]}
    return {
        "kind": step.task.recipe.kind,
        "criterion": step.task.metric_for_best_model,
        SCORE_NAMES: step.task.score_names,
        "split": split,
        "rows": {name: len(rows) for name, rows in step.rows.items()},
        "drawn": {"number": len(step.task.drawn(teachers, references)[0]), "unit": step.task.drawn_unit},
        "unlabelled": 0 if step.unlabelled is None else len(step.unlabelled),
        "scores": found,
        "is_higher_better": step.task.metrics[step.task.metric_for_best_model],
        "leads": {
            name: lead_of_predictions(step.task, predictions[STUDENT], own, references)
            for name, own in predictions.items()
            if name != STUDENT
        },
    }


def compare_models(recipe: DistillationRecipe, teacher: Source, student: Path) -> Summary:
    """Compare sizes and optionally times of the student and of the teacher of the last step."""
    models = {TEACHER: teacher.model, **load_all({STUDENT: str(student)})}
    with written_as_ours(teacher) as folder:
        folders = {TEACHER: folder, STUDENT: student}
        sizes = {name: asdict(size_of(model, folders[name])) for name, model in models.items()}
        if not recipe.report.speed:
            return {"sizes": sizes}
        places = {name: str(folder) for name, folder in folders.items()}
        return {"sizes": sizes, "speeds": measure_speeds(models, places, present_device())}


@contextmanager
def written_as_ours(teacher: Source) -> Iterator[Path]:
    """Yield a folder from which a teacher is loaded as ours: its own, or a temporary one if it is stock."""
    if load_config(teacher.folder).model_type.startswith("tercet"):
        yield teacher.folder
        return
    with tempfile.TemporaryDirectory() as folder, quietly():
        teacher.model.save_pretrained(folder)
        yield Path(folder)


def present_device() -> torch.device:
    """Return the device of this process."""
    return cast(torch.device, join_processes().device)


def texts_of(general: PreparedGeneralStep | None, task: PreparedTaskStep | None, folder: Path) -> Summary:
    """Return what was read: names, sizes and hashes."""
    told: Summary = {}
    if general is not None:
        told |= read_texts(folder / STUDENT / GENERAL / TEXTS)
    if task is not None:
        rows = read_texts(folder / STUDENT / TASK / TEXTS)
        told = {split: [*told.get(split, []), *rows.get(split, [])] for split in {**told, **rows}}
    return told


def for_card(summary: Summary) -> dict[str, Any]:
    """Return the facts that a model card tells of a distillation, by the names of its scores."""
    kept, sizes = kept_of(summary)[STUDENT], summary["sizes"]
    told: dict[str, Any] = {
        "distillation/fewer_parameters": 1 - sizes[STUDENT]["parameters"] / sizes[TEACHER]["parameters"],
    }
    if kept["share"] is not None:
        told["distillation/retained"] = kept["share"]
    if kept["interval"] is not None:
        told["distillation/retained/interval"] = list(kept["interval"])
    if "speeds" in summary:
        speeds = summary["speeds"]
        told["distillation/times_faster"] = speeds[STUDENT]["throughput"] / speeds[TEACHER]["throughput"]
    return told
