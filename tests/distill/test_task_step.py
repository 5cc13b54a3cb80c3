"""A fine-tuned teacher passes on what it knows of a task, whatever its head."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from tercet.configs.recipe import parse_recipe
from tercet.data.steps.examples import pick
from tercet.distill import run
from tercet.distill.recipe import DistillationRecipe, StudentRecipe
from tercet.distill.task_objective import SoftLabel, SoftSets, divergence
from tercet.distill.task_step import TaskStep, require_same_beginning, taught, training_split
from tercet.finetune.run import finetune
from tercet.finetune.tasks.chat import Chat, ChatRecipe
from tercet.finetune.tasks.objectives import SingleLabelObjective
from tercet.finetune.tasks.task import keep_task
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.reports.distill.comparison import predict_split
from tercet.training.tracking import read_log

from ..finetune.conftest import ROWS, bases, recipe_of, write_rows  # noqa: F401
from ..reported import distill

HEADS = [*ROWS, "generation"]
SLOW = [pytest.mark.slow]
TEACHERS: dict = {}
"""Models that were fine-tuned for other tests of this file, and how."""

KNOWLEDGE = {"epochs": 1, "batch_size": 4, "precision": "fp32"}


@pytest.fixture
def fine_tuned(recipe_of, tmp_path):  # noqa: F811
    """Fine-tune a tiny model for a kind of task; give the recipe of a distillation from it."""

    def make(kind, member=None, unlabelled=False, **parts):
        member = member or ("seq2seq" if kind == "generation" else "encoder")
        rows = {"generation": generation_rows} | ROWS
        ROWS.setdefault(kind, rows[kind])
        task = {"longest_target": 12} if kind == "generation" else {}
        recipe = recipe_of(kind, member, training=KNOWLEDGE, task=task)
        if (kind, member) not in TEACHERS:
            TEACHERS[kind, member] = finetune(recipe), recipe
        teacher, recipe = TEACHERS[kind, member]
        data = {
            "task": {
                "teacher": str(teacher),
                "data": {"train": recipe.data.train, "validation": recipe.data.validation},
                "training": KNOWLEDGE | parts.pop("training", {}),
            }
            | parts.pop("task", {}),
            "report": {"without_teacher": False, "random": False, "speed": False} | parts.pop("report", {}),
            "student": {"num_layers": 1} | parts.pop("student", {}),
            "output": str(tmp_path / "distilled"),
        }
        if unlabelled:
            more = [
                {key: value for key, value in row.items() if key in read_by(recipe)}
                for row in rows[kind](9, 7)
            ]
            data["task"]["unlabelled"] = str(write_rows(tmp_path / "more.jsonl", more))
        return parse_recipe(DistillationRecipe, data | parts)

    yield make
    ROWS.pop("generation", None)


def read_by(recipe):
    return recipe.task.input_columns


def generation_rows(count, seed):
    rows = ROWS["ranking"](count, seed)
    return [{"source": row["query"], "target": row["positive"]} for row in rows]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "tagging" else SLOW) for kind in HEADS]
)
def test_every_head_is_distilled(kind, fine_tuned):
    recipe = fine_tuned(kind, student={"token_types": "kept"} if kind != "generation" else {})
    folder = distill(recipe)
    scores = json.loads((recipe.folder / "scores.json").read_text())
    assert scores["task"]["kind"] == kind
    kept = scores["task"]["scores"]["student"]
    teachers = scores["task"]["scores"]["teacher"]["score"]
    assert (kept["share"] is None) if teachers <= 0 else math.isfinite(kept["share"])
    assert (folder / "task.json").exists()
    teacher, student = (
        TaskStep.prepare(recipe.task).model.config,
        json.loads((folder / "config.json").read_text()),
    )
    assert student["num_hidden_layers"] == 1 < teacher.num_hidden_layers
    assert "Kept of the teacher's score" in (recipe.folder / "report.md").read_text()


@pytest.mark.parametrize("kind", HEADS)
def test_a_student_that_is_its_teacher_has_nothing_to_learn_from_it(kind, fine_tuned):
    """And gradients reach the student alone, where it is another."""
    step = TaskStep.prepare(fine_tuned(kind).task)
    examples = training_split(step).examples
    teacher = step.model
    objective = taught(step, teacher, torch.device("cpu"))
    batch = objective.collate(pick(examples, np.arange(6)), 0)
    losses = objective.losses(teacher, batch)
    assert losses["soft"].item() == pytest.approx(0.0, abs=1e-2)
    other = type(teacher)(teacher.config)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    own = taught(step, other, torch.device("cpu"))
    losses = own.losses(other.train(), batch)
    assert losses["soft"].item() > 1e-3
    sum(losses.values()).backward()
    assert any(parameter.grad is not None for parameter in other.parameters())
    assert all(parameter.grad is None for parameter in teacher.parameters())


@pytest.mark.parametrize(
    "kind",
    ["classification", "multi_label", "regression", "tagging", "question_answering", "multiple_choice"],
)
def test_rows_without_labels_are_answered_by_the_teacher_alone(kind, fine_tuned):
    step = TaskStep.prepare(fine_tuned(kind, unlabelled=True).task)
    examples = training_split(step).examples
    labelled = step.task.examples(step.rows["train"], step.encoder)
    assert len(examples) == len(labelled) + 9
    student = type(step.model)(step.model.config).eval()
    objective = taught(step, student, torch.device("cpu"))

    def losses(indices):
        batch = objective.collate(pick(examples, np.array(indices)), 0)
        found = {name: loss.item() for name, loss in objective.losses(student, batch).items()}
        return found, {name: int(count) for name, count in objective.targets(batch).items()}

    term = objective.base.term
    (both, both_counts), (first, first_counts), (second, second_counts) = (
        losses(indices)
        for indices in ([0, 1, len(labelled), len(labelled) + 1], [0, 1], [len(labelled), len(labelled) + 1])
    )
    assert second_counts[term] == 0
    assert second_counts["soft"] > 0
    assert both[term] == pytest.approx(first[term], rel=1e-4)
    assert both["soft"] == pytest.approx(first["soft"] + second["soft"], rel=1e-2, abs=1e-2)
    assert both_counts == {name: first_counts[name] + second_counts[name] for name in both_counts}


def test_a_run_with_rows_without_labels_learns_from_them(fine_tuned):
    alone = load_file(distill(fine_tuned("classification")) / "model.safetensors")
    recipe = fine_tuned("classification", unlabelled=True)
    more = load_file(distill(recipe, overwrite=True) / "model.safetensors")
    assert json.loads((recipe.folder / "scores.json").read_text())["task"]["unlabelled"] == 9
    assert not all(torch.equal(alone[name], more[name]) for name in alone)


def test_who_learns_from_labels_alone_keeps_step_with_the_student(fine_tuned):
    """It reads its rows more often instead, and has as many checkpoints to choose from, at the same steps.

    The student learns from each of 16 rows with labels and of 9 without once in an epoch.
    """
    recipe = fine_tuned(
        "classification", unlabelled=True, report={"without_teacher": True}, training={"epochs": 3}
    )
    distill(recipe, overwrite=True)
    logs = []
    for name, of_epochs in (("student", [25] * 3), ("without-teacher", [16] * 5 + [4])):
        scores = json.loads((recipe.folder / name / "task" / "scores.json").read_text())
        assert scores["seeds"]["0"]["learned"]["examples_of_epochs"] == of_epochs
        (log,) = (recipe.folder / name).rglob("log.jsonl")
        records = read_log(log)
        logs.append(
            (
                max(record["step"] for record in records),
                [r["step"] for r in records if "evaluation/loss" in r],
            )
        )
    assert logs[0] == logs[1]
    assert len(logs[0][1]) == 3


def test_student_and_teacher_are_scored_in_the_same_precision(fine_tuned):
    """A student that is its teacher predicts what it predicts, to the last digit."""
    training = {"precision": "bf16", "learning_rate": 1e-12}
    recipe = fine_tuned("classification", training=training)
    recipe = replace(recipe, student=StudentRecipe(path=recipe.task.teacher))
    distill(recipe, overwrite=True)
    step = TaskStep.prepare(recipe.task)
    teachers = predict_split(step, step.model, "validation")
    (file,) = (recipe.folder / "student" / "task").glob("predictions.jsonl")
    assert [json.loads(line) for line in file.read_text().splitlines()] == teachers
    exact = replace(
        step, recipe=replace(step.recipe, training=replace(step.recipe.training, precision="fp32"))
    )
    assert predict_split(exact, step.model, "validation") != teachers


def test_soft_labels_by_their_definition():
    scores = [torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).double() for seed in (0, 1)]
    found, right = scores
    q, p = ((each / 3).softmax(-1) for each in scores)
    expected = 9 * (p * (p / q).log()).sum()
    torch.testing.assert_close(divergence(found, right, 3.0), expected)
    labels = SoftLabel(SingleLabelObjective(), 3.0)
    torch.testing.assert_close(labels.soft(found, right, {}), expected)
    hard = labels.hard(found, {"labels": torch.tensor([0, 2, 1, 1])})
    torch.testing.assert_close(
        hard, F.cross_entropy(found.float(), torch.tensor([0, 2, 1, 1]), reduction="sum")
    )


def test_what_is_no_choice_does_not_count():
    found, right = torch.tensor([[1.0, 2.0, -torch.inf]]), torch.tensor([[2.0, 0.0, -torch.inf]])
    found.requires_grad_()
    loss = divergence(found, right, 2.0)
    torch.testing.assert_close(loss, divergence(found[:, :2], right[:, :2], 2.0))
    loss.backward()
    assert found.grad.isfinite().all()


def test_several_labels_are_several_questions():
    from tercet.finetune.tasks.objectives import MultiLabelObjective

    found, right = torch.tensor([[0.5, -1.0]]).double(), torch.tensor([[2.0, 1.0]]).double()
    q, p = ((scores / 2).sigmoid() for scores in (found, right))
    expected = 4 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).mean()
    labels = SoftSets(MultiLabelObjective(), 2.0)
    torch.testing.assert_close(labels.soft(found, right, {}), expected)


def test_a_student_may_lack_the_teachers_segments(fine_tuned):
    recipe = fine_tuned("question_answering", student={"token_types": "dropped"})
    assert json.loads((distill(recipe) / "config.json").read_text())["type_vocab_size"] == 0


def test_controls_are_learned_alike(fine_tuned):
    recipe = fine_tuned("classification", report={"without_teacher": True, "random": True})
    distill(recipe)
    scores = json.loads((recipe.folder / "scores.json").read_text())["task"]["scores"]
    assert set(scores) == {"teacher", "student", "without-teacher", "random"}


def test_a_row_without_labels_that_cannot_be_read_is_told_before_anything_is_written(fine_tuned, tmp_path):
    recipe = fine_tuned("classification", unlabelled=True)
    write_rows(tmp_path / "more.jsonl", [{"text": "a cat"}, {"text": " "}])
    with pytest.raises(ValueError, match=r"more\.jsonl, line 2: row 2 has no text"):
        distill(recipe)
    (tmp_path / "more.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"more\.jsonl has no rows: name one that has some in unl"):
        distill(recipe)
    assert not recipe.folder.exists()


def test_a_task_of_no_use_without_labels_is_refused(fine_tuned):
    with pytest.raises(ValueError, match="rows of ranking without labels are not supported"):
        distill(fine_tuned("ranking", unlabelled=True))


def test_a_teacher_that_knows_no_task_is_refused(fine_tuned, bases):  # noqa: F811
    recipe = fine_tuned("classification", task={"teacher": str(bases / "encoder")})
    with pytest.raises(ValueError, match=r"has no task\.json"):
        distill(recipe)


def test_a_column_is_renamed_where_the_teacher_names_it(fine_tuned, tmp_path):
    recipe = fine_tuned("classification").task
    rows = write_rows(tmp_path / "others.jsonl", [{"review": "the cat", "label": "cat"}])
    with pytest.raises(ValueError, match=r"no column 'text': give one of its columns .* this name$"):
        TaskStep.prepare(replace(recipe, data=replace(recipe.data, train=str(rows))))


def test_a_teacher_of_chat_is_refused(fine_tuned, bases, tmp_path):  # noqa: F811
    folder = shutil.copytree(bases / "decoder", tmp_path / "chat")
    keep_task(Chat(ChatRecipe("chat")), folder, 64)
    recipe = fine_tuned("classification", task={"teacher": str(folder)})
    with pytest.raises(
        ValueError, match="chat was fine-tuned for chat, which is not distilled from rows: name"
    ):
        distill(recipe)
    assert not recipe.folder.exists()


def test_a_student_that_reads_less_than_its_teacher_is_refused(fine_tuned):
    student = {"overrides": {"max_position_embeddings": 32}, "initialization": "random"}
    with pytest.raises(ValueError, match=r"maximum length of 32 tokens .* set data\.max_length=32"):
        distill(fine_tuned("classification", student=student))


def test_a_folder_goes_on_from_the_weights_that_it_began_with(tmp_path):
    first, second = (tmp_path / name for name in ("first", "second"))
    for number, folder in enumerate((first, second)):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        save_file({"weight": torch.full((1,), float(number))}, folder / "model.safetensors")
    require_same_beginning(tmp_path / "task", Checkpoint.open(str(first)))
    require_same_beginning(tmp_path / "task", Checkpoint.open(str(first)))
    with pytest.raises(ValueError, match=r"trained from other weights than those of .*second: delete it"):
        require_same_beginning(tmp_path / "task", Checkpoint.open(str(second)))


def test_teacher_and_student_are_opened_once(fine_tuned, hub):
    recipe = fine_tuned("classification")
    folder = Path(recipe.task.teacher)
    fetched = hub(dict.fromkeys(["somebody/teacher", "somebody/student"], folder))
    task = replace(recipe.task, teacher="somebody/teacher")
    run.distill(replace(recipe, task=task, student=StudentRecipe(path="somebody/student")))
    assert fetched == {"somebody/teacher": 1, "somebody/student": 1}


def test_a_resumed_run_keeps_the_finished_seed(fine_tuned):
    recipe = fine_tuned("classification")
    folder = distill(recipe)
    before = load_file(folder / "model.safetensors")
    after = load_file(distill(recipe, resume=True) / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
