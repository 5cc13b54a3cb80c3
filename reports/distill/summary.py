"""What a distillation has come to: scores beside the teacher's, with sizes and times.

What a student's score shows beside its teacher's and its controls', a sentence each.

All of them answered the same rows. Beside the teacher counts the interval of the share that is kept, beside
the same student without a teacher that of the difference.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...distill.facts import present_device
from ...distill.general_step import GeneralStep
from ...distill.output import CACHE, GENERAL, RANDOM, STUDENT, TASK, TEACHER, WITHOUT_TEACHER
from ...distill.steps import Prepared
from ...distill.task_step import TaskStep
from ...distill.teacher import moved
from ...modeling.saved.checkpoint import Checkpoint
from ...pretraining.translation_scores import TranslationMeasure
from ...training.run_folder import EVALUATION, MODEL, SCORES
from ..finetune.summary import SCORE_NAMES, called, read_predictions
from ..scores import METRICS, Score, as_pair, number, what_is_scored
from ..verdicts import (
    Outcome,
    Verdict,
    about_few_rows,
    as_data,
    difference_in_words,
    outcome_of_difference,
    shown,
)
from .comparison import (
    keep_of_examples,
    keep_of_predictions,
    keep_of_translations,
    lead_of_examples,
    lead_of_predictions,
    lead_of_translations,
    predict_split,
    score_examples,
)


def kept_of(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each model's deciding score and the share of the teacher's: of the last step.

    On raw text, that is BLEU where there are translations, and accuracy elsewhere.
    """
    if TASK in summary:
        return summary[TASK]["scores"]
    scores = summary[GENERAL]["scores"]
    return {name: scores[name].get("bleu", scores[name]["accuracy"]) for name in scores}


def score_name(summary: Mapping[str, Any]) -> str:
    """Describe which score decides."""
    if TASK in summary:
        told = summary[TASK]
        return f"{called(told['criterion'], told)} on {told['rows'][told['split']]:,} {told['split']} rows"
    told = summary[GENERAL]
    if "bleu" in told["scores"][STUDENT]:
        return f"{METRICS['bleu']} of greedy translations"
    return f"accuracy of {what_is_scored(told['term'])}"


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


def summarize(prepared: Prepared, folder: Path, measured: Mapping[str, Any]) -> Summary:
    """Compare all students with their teachers.

    Args:
        prepared: The steps, as before the students have learned.
        measured: Sizes and, if they were measured, speeds.
    """
    general, task, students = prepared.general, prepared.task, [student.name for student in prepared.students]
    summary: Summary = {"students": students}
    if general is not None:
        summary[GENERAL] = compare_general(general, {name: folder / name / GENERAL for name in students})
    if task is not None:
        summary[TASK] = compare_task(task, {name: folder / name / TASK for name in students})
    summary |= {key: measured[key] for key in ("sizes", "speeds") if key in measured}
    return summary | {"verdicts": as_data(verdicts(summary))}


def scores_of(summary: Mapping[str, Any]) -> Iterator[Score]:
    """Yield the scores of teacher, controls and student in the last step, and what the students keep."""
    step = summary.get(TASK) or summary[GENERAL]
    n, split = step.get("drawn", {}).get("number"), step.get("split", "validation")
    for model, own in reversed(step["scores"].items()):
        of_measures = {model: own} if "score" in own else {f"{model}, {name}": s for name, s in own.items()}
        for name, kept in of_measures.items():
            if "score" in kept:
                yield Score(name, kept["score"], None, {}, n, split)
            if kept.get("share") is not None:
                interval = as_pair(kept["interval"])
                yield Score(f"{name}: share kept", kept["share"], interval, {}, n, split)


def told(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the line about the scores of teacher, controls and student with which the command ends."""
    step = summary.get(TASK) or summary[GENERAL]

    def in_words(scores: Mapping[str, Any]) -> str:
        if "score" in scores:
            return f"{step['criterion']} {number(scores['score'])}"
        measures = {name: kept["score"] for name, kept in scores.items() if "score" in kept}
        return ", ".join(f"{name} {number(value)}" for name, value in measures.items())

    yield "; ".join(f"{name} {in_words(scores)}" for name, scores in reversed(step["scores"].items()))


def compare_general(step: GeneralStep, folders: dict[str, Path]) -> Summary:
    """Compare what students and teacher expect of held-out text, and how they translate it."""
    held_out = step.text.held_out
    assert held_out.source is not None
    students = {name: Checkpoint.open(str(path / MODEL)).transformer() for name, path in folders.items()}
    models = {TEACHER: step.model, **students}
    for model in models.values():
        moved(model, present_device()).eval()
    expected = {name: score_examples(model, step.base, held_out.source) for name, model in models.items()}
    kept = {name: keep_of_examples(rows, expected[TEACHER]) for name, rows in expected.items()}
    leads = {name: lead_of_examples(expected[STUDENT], expected[name]) for name in folders if name != STUDENT}
    drawn = {"number": int((expected[TEACHER][:, 0] > 0).sum()), "unit": "held-out examples"}
    if isinstance(measure := held_out.measure, TranslationMeasure):
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


def compare_task(step: TaskStep, folders: dict[str, Path]) -> Summary:
    """Compare how well students and teacher know the task, on the last split."""
    split = "test" if "test" in step.rows else "validation"
    references = step.task.references(step.rows[split])
    teachers = predict_split(step, moved(step.model, present_device()), split)
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
