"""The step on rows: fine-tuning with a teacher, from whose answers the student learns beside the labels.

teacher's task -> rows -> examples                   what all students have in common
   |                         |
   +-> student ->  TaskDistillation -> as in fine-tuning: seeds, best checkpoints, report
"""

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..configs.documents import read_facts
from ..configs.messages import quietly
from ..configs.recipe import recipe_data
from ..data.cache import made_once
from ..data.files.atomic_writes import replace_text
from ..data.files.rows import read_rows
from ..data.steps.exchange import main_first, wait_for_everyone
from ..data.steps.objective import IGNORE
from ..data.steps.packing import Ragged
from ..finetune.encoding import LabelledExamples, TextEncoder, numbers
from ..finetune.facts import keep_best, keep_rows
from ..finetune.inputs import Setting
from ..finetune.learning import learn_all
from ..finetune.learning_rate import choose_learning_rate
from ..finetune.model import Start, load_task_model
from ..finetune.prepared import prepare_rows
from ..finetune.recipe import DataRecipe, FineTuningRecipe, PretrainedModelRecipe
from ..finetune.splits import Split, SplitRows, encode_splits, encoder_of, read_splits
from ..finetune.tasks.task import Task, load_task
from ..modeling import TercetPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint, Opener
from ..modeling.saved.model_folder import save_tokenizer
from ..modeling.saved.saving import save_loadable
from ..training.devices.precision import join_processes
from ..training.run_folder import RECIPE, write_recipe
from .output import BEGINNING, BEGINNING_HASH
from .recipe import StudentRecipe
from .steps import Step, Student
from .student import build_student
from .task_objective import IS_LABELLED, SOFT, TaskDistillation
from .task_recipe import TaskStepRecipe
from .teacher import load_model, require_same_vocabulary


@dataclass(frozen=True, kw_only=True)
class TaskStep(Step):
    """Fine-tuning with a teacher."""

    recipe: TaskStepRecipe
    task: Task
    """The teacher's."""
    rows: SplitRows
    unlabelled: Dataset | None
    """Rows that the teacher alone labels, if there are any."""

    @property
    def encoder(self) -> TextEncoder:
        return encoder_of(self.model, self.tokenizer, self.recipe.data.max_length)

    @classmethod
    def prepare(cls, recipe: TaskStepRecipe, open_model: Opener = Checkpoint.open) -> Self:
        teacher = open_model(recipe.teacher)
        model, task = load_model(teacher), load_task(teacher.folder)
        require_teacher(recipe.teacher, model, task)
        rows = read_splits(recipe.data, task.recipe.build())
        unlabelled = None
        if recipe.unlabelled is not None:
            if task.recipe.kind in ("ranking", "generation"):  # whose rows mean nothing without labels
                raise ValueError(
                    f"unlabelled is set, but rows of {task.recipe.kind} without labels are not "
                    f"supported: leave it out"
                )
            unlabelled, _, tally = read_rows(
                recipe.unlabelled,
                task.recipe.input_columns,
                "unlabelled",
                on_bad_row=recipe.data.on_bad_row,
                check=task.require_inputs,
            )
            rows.tallies["unlabelled"] = tally
        step = cls(
            teacher=teacher,
            model=model,
            open_model=open_model,
            recipe=recipe,
            task=task,
            rows=rows,
            unlabelled=unlabelled,
        )
        encode_splits(rows, task, step.encoder, recipe.data.on_bad_row)  # raises what is wrong with the rows
        if unlabelled is not None:
            encode_unlabelled(step, unlabelled)
        tell_of_leakage(recipe.teacher, read_facts(teacher.folder / RECIPE), recipe.data)
        return step

    def require_learnable(self, student: Student, folder: Path) -> None:
        if student.recipe.path is None:
            return require_same_input(self, own_student(self, student.recipe), self.tokenizer)
        start, seed = Start(self.open_model(student.recipe.path)), self.recipe.training.seeds[0]
        own = load_task_model(start, self.task, seed)
        return require_same_input(self, own.model, own.tokenizer)

    def learn(self, student: Student, folder: Path, *, resume: bool) -> None:
        processes, own = join_processes(), student.recipe
        with main_first():
            path = own.path or write_beginning(self, own, folder / BEGINNING)
            model = self.open_model(path)
            recipe, setting = settled(self.recipe, self.task, model, folder)
            if processes.is_main_process:
                folder.mkdir(parents=True, exist_ok=True)
                write_recipe(recipe, folder)
            require_same_beginning(folder, model)
            prepared = prepare_rows(self.rows, self.task, setting, self.recipe.data.on_bad_row)
        first, splits, whole = prepared.pretrained, prepared.splits, training_split(self)
        require_same_input(self, first.model, first.tokenizer)
        if processes.is_main_process:
            keep_rows(folder, self.recipe.data, prepared)
            if setting.rate is not None:
                print(setting.rate, file=sys.stderr, flush=True)
        wait_for_everyone()
        results = learn_all(
            *(setting, prepared, folder),
            first=first,
            resume=resume,
            read={**splits, "train": whole} if student.is_taught else splits,
            teach=partial(taught, self) if student.is_taught else None,
            # Of the control, too: it takes as many steps, and has as many checkpoints to choose from.
            pace=whole.examples,
        )
        if processes.is_main_process:
            keep_best(folder, prepared, results, setting)
        wait_for_everyone()


def require_teacher(name: str, model: TercetPreTrainedModel, task: Task) -> None:
    """Raise a `ValueError` unless a model was fine-tuned for its task, and rows of that are distilled."""
    if not type(model).__name__.endswith(task.head):
        raise ValueError(
            f"the teacher {name} is a {type(model).__name__}, which has no head "
            f"{task.head} for {task.recipe.kind}: name a model of tercet finetune"
        )
    if task.recipe.kind not in SOFT:
        raise ValueError(
            f"the teacher {name} was fine-tuned for {task.recipe.kind}, which is not distilled from rows: "
            "name a teacher of another task, or distill this one on text (general)"
        )


def tell_of_leakage(name: str, recipe: Mapping[str, Any], data: DataRecipe) -> None:
    """Warn unless a student is measured on rows that its teacher's recipe holds out, too."""
    told = recipe.get("data") or (recipe.get("task") or {}).get("data") or {}
    theirs = {"validation_share": DataRecipe.validation_share} | told
    keys = ["train", "validation", "dataset", "subset", "group"]
    is_same = all(theirs.get(key) == getattr(data, key) for key in keys)
    is_within = data.validation is not None or data.validation_share <= theirs["validation_share"]
    if not (is_same and is_within) or data.test == data.train:
        named = (key for key in (*keys, "validation_share") if theirs.get(key))
        known = ", ".join(f"task.data.{key}={theirs[key]}" for key in named)
        warnings.warn(
            f"the teacher {name} may have learned rows that are held out here, so that scores are too good: "
            f"it was trained with {known if told else 'rows that its folder does not name'}",
            stacklevel=2,
        )


def encode_unlabelled(step: TaskStep, rows: Dataset) -> LabelledExamples:
    """Encode further rows as the teacher reads them."""
    try:
        return step.task.examples(rows, step.encoder, labelled=False)
    except ValueError as error:
        raise ValueError(f"unlabelled ({step.recipe.unlabelled}): {error}") from None


def settled(
    step: TaskStepRecipe, task: Task, beginning: Checkpoint, folder: Path
) -> tuple[FineTuningRecipe, Setting]:
    """Return the step as a recipe of fine-tuning a student on disk, and what that says of how it learns."""
    data, training = step.data, step.training
    rate = choose_learning_rate(beginning, training)
    if rate is not None:
        training = replace(training, learning_rate=rate.value)
    recipe = FineTuningRecipe(
        model=PretrainedModelRecipe(path=beginning.name),
        task=task.recipe,
        data=data,
        training=training,
        output=str(folder),
    )
    start, about = Start(beginning), recipe_data(recipe)
    return recipe, Setting(start=start, training=training, max_length=data.max_length, about=about, rate=rate)


def write_beginning(step: TaskStep, student: StudentRecipe, folder: Path) -> str:
    """Make a student of the teacher, with its head, and write it into a folder unless it is there."""

    def write(target: Path) -> None:
        with quietly():
            save_tokenizer(step.tokenizer, target)
            save_loadable(own_student(step, student), target)

    return str(made_once(folder, write, "another folder with output=..."))


def require_same_beginning(folder: Path, model: Checkpoint) -> None:
    """Make sure that runs in a folder go on from the weights that they began with, and note these."""
    file, own = folder / BEGINNING_HASH, model.hash
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(file, own)
    elif file.read_text(encoding="utf-8") != own:
        raise ValueError(
            f"{folder} was trained from other weights than those of {model.name}: delete it, or start over "
            "with --overwrite"
        )


def own_student(step: TaskStep, student: StudentRecipe) -> TercetPreTrainedModel:
    """Make a student of the teacher, with its head."""
    model = step.model
    return build_student(student, model, type(model), step.recipe.training.seeds[0])


def require_same_input(
    step: TaskStep, student: TercetPreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raise a `ValueError` unless a student reads the same tokens of a row as the teacher, and as many."""
    require_same_vocabulary(step.tokenizer, tokenizer)
    own = encoder_of(student, tokenizer, step.recipe.data.max_length)
    if own.max_length != step.encoder.max_length:
        shorter = min(own.max_length, step.encoder.max_length)
        raise ValueError(
            f"the student has a maximum length of {own.max_length:,} tokens and the teacher of "
            f"{step.encoder.max_length:,}: set data.max_length={shorter}"
        )


def taught(step: TaskStep, student: TercetPreTrainedModel, device: torch.device) -> TaskDistillation:
    """Build what a student learns on a device."""
    return TaskDistillation(
        SOFT[step.task.recipe.kind](step.task.objective(), step.recipe.temperature),
        step.model,
        student,
        soft_weight=step.recipe.soft_weight,
        hard_weight=step.recipe.hard_weight,
        device=device,
        precision=step.recipe.training.precision,
    )


def training_split(step: TaskStep) -> Split:
    """Encode what is learned from as the teacher reads it, rows without labels behind those with them."""
    rows = step.rows["train"]
    labelled = step.task.examples(rows, step.encoder)
    if step.unlabelled is None:
        return Split(rows, labelled)
    return Split(rows, joined(labelled, encode_unlabelled(step, step.unlabelled)))


def joined(labelled: LabelledExamples, others: LabelledExamples) -> LabelledExamples:
    """Put examples without labels behind others, with something in the labels' place that is never read."""
    fields = {
        name: Ragged(
            np.concatenate([field.values, blank.values]), np.concatenate([field.lengths, blank.lengths])
        )
        for name, field in labelled.fields.items()
        for blank in (others.fields[name] if name in others.fields else blanks(field, labelled, others),)
    }
    flags = np.repeat([1, 0], [len(labelled), len(others)]).astype(np.int64)
    return LabelledExamples(fields | {IS_LABELLED: numbers(flags)})


def blanks(field: Ragged, labelled: LabelledExamples, others: LabelledExamples) -> Ragged:
    """Fill a field of labels: positions of no target where labels lie along tokens, otherwise zeros."""
    lies_along = np.array_equal(field.lengths, labelled.fields["input_ids"].lengths)
    if "words" in labelled.fields and lies_along:
        lengths = others.fields["input_ids"].lengths
        return Ragged(np.full(int(lengths.sum()), IGNORE, dtype=field.values.dtype), lengths)
    width = int(field.lengths[0])
    lengths = np.full(len(others), width, dtype=np.int64)
    return Ragged(np.zeros(width * len(others), dtype=field.values.dtype), lengths)
