"""Runs of fine-tuning, one a seed: pretrained model and head -> learn -> best checkpoint -> scores."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from accelerate import Accelerator, DistributedType
from torch import Tensor, nn

from ..configs.messages import quietly
from ..data.files.atomic_writes import explaining_a_full_disk, replace_text
from ..data.steps.objective import Objective
from ..modeling import TercetPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint
from ..modeling.saved.model_folder import save_tokenizer
from ..modeling.saved.saving import save_loadable
from ..modeling.saved.weights import hash_of_weights
from ..training.checkpoints.checkpoint import CHECKPOINTS, best, latest, read_state
from ..training.devices.environment import environment_of
from ..training.devices.sharding import gathered, load_whole_weights, whole_weights
from ..training.evaluation import HeldOut
from ..training.learning import Outcome, Parts, Session, learn, tell_of_amount, tell_of_weights
from ..training.loop import Progress
from ..training.recipe import OptimizerRecipe, ScheduleRecipe, TrainingRecipe
from ..training.run_folder import MODEL, SCORES, Run, delete
from ..training.stages import prepare_data
from ..training.tracking import as_json
from .encoding import LabelledExamples, TextEncoder
from .evaluation import Evaluation, Evaluator, evaluate_rows
from .inputs import Inputs, Setting
from .model import TaskModel, learner_of, load_task_model, merged
from .output import ADAPTED, ADAPTER, BEFORE, GRID, GRID_SCORES, PREDICTIONS, seed_folder
from .prepared import Prepared, Results
from .recipe import FineTuningTraining, in_words
from .splits import Split, encoder_of, remember_words
from .tasks.task import Task, keep_task

ROOM = 1.5
"""Times the tokens of an average step that a micro-batch may hold by default: most steps are one."""

RECORDS = 100
"""Records that a run writes into its log, about."""


def learn_best(inputs: Inputs, prepared: Prepared, run: Run) -> tuple[Setting, Results]:
    """Carry out the runs of all seeds, with the best setting of a grid; give it, and all scores.

    With further pretraining, the seeds learn twice: before it and, what counts, behind it.
    """
    setting, first = inputs.settings[0], prepared.pretrained
    if setting.values:
        setting, first = best_of_grid(inputs.settings, prepared, run), None
    if inputs.adaptation is not None:
        learn_all(setting, prepared, run.folder / BEFORE, first=first, resume=run.resume)
        adapted = inputs.adaptation.adapt(setting.start.model.folder, run.folder / ADAPTED)
        adapted_start = replace(setting.start, model=Checkpoint.open(str(adapted)))
        setting, first = replace(setting, start=adapted_start), None
    return setting, learn_all(setting, prepared, run.folder, first=first, resume=run.resume)


def learn_all(
    setting: Setting,
    prepared: Prepared,
    folder: Path,
    *,
    first: TaskModel | None,
    resume: bool,
    read: Mapping[str, Split] | None = None,
    **options: Any,
) -> Results:
    """Carry out the runs of all seeds below a folder, with further options of `learn_seed`.

    `first` is the model of the first seed if it is loaded already; it is changed. `read` is what is learned
    from and measured on, if not what was prepared.
    """
    splits = prepared.splits if read is None else read
    results = {}
    for seed in setting.training.seeds:
        place = (seed_folder(folder, seed), seed)
        results[seed] = learn_seed(
            setting, prepared.task, splits, *place, pretrained=first, resume=resume, **options
        )
        first = None
    return results


def best_of_grid(settings: Sequence[Setting], prepared: Prepared, run: Run) -> Setting:
    """Try every setting of a grid with the first seed, and give the best on validation."""
    splits = {name: split for name, split in prepared.splits.items() if name != "test"}
    results: list[dict[str, Any]] = []
    for setting in settings:
        place = (run.folder / GRID / ",".join(in_words(setting.values)), setting.training.seeds[0])
        scores = learn_seed(setting, prepared.task, splits, *place, resume=run.resume)
        shortfall = prepared.task.minimized_metric(scores["validation"])
        results.append({"values": setting.values, **scores, "shortfall": shortfall})
    with run.together() as is_main:
        if is_main:
            replace_text(run.folder / GRID_SCORES, json.dumps([*map(as_json, results)], indent=2) + "\n")
    return settings[min(range(len(settings)), key=lambda number: results[number]["shortfall"])]


def learn_seed(
    setting: Setting,
    task: Task,
    splits: Mapping[str, Split],
    folder: Path,
    seed: int,
    *,
    resume: bool,
    pretrained: TaskModel | None = None,
    teach: Callable[[TercetPreTrainedModel, torch.device], Objective] | None = None,
    pace: LabelledExamples | None = None,
) -> dict[str, Any]:
    """Carry out the run of one seed and return its scores; one that is finished is not repeated.

    Args:
        setting: Says how.
        task: What is learned.
        splits: What from, and what the model is measured on.
        folder: Receives log, scores, predictions and model.
        seed: Seed of head, order and dropout.
        resume: Continue a run that is there.
        pretrained: The model of this seed if it is loaded already; it is changed.
        teach: Says what a model on a device learns, if that is more than the task's own objective.
        pace: Examples by which steps and evaluations are counted, if others than those learned from.
    """
    if (folder / SCORES).exists():
        return json.loads((folder / SCORES).read_text(encoding="utf-8"))
    training, lora, train = setting.training, setting.lora, splits["train"].examples
    recipe = training_recipe_of(training, train, seed, pace)
    session = Session.begin(folder, recipe, resume=resume)
    accelerator = session.accelerator
    if lora is not None and accelerator.distributed_type == DistributedType.FSDP:
        raise ValueError("lora merges whole matrices, but FSDP shards them: use DDP")
    pretrained, learner = load_learner(setting, task, splits, seed, pretrained)
    objective = teach(pretrained.model, accelerator.device) if teach else task.objective_for(pretrained.model)
    validation = Evaluator(task, splits["validation"])
    held_out = HeldOut(measure=validation.measure, criterion=task.minimized_metric)
    size, width = training.batch_size, pretrained.model.config.hidden_size
    data = prepare_data(train, objective, recipe, accelerator, held_out=held_out, examples_per_step=size)
    parts = Parts(model=learner, objective=objective, data=data, width=width, about=setting.about)
    outcome = learn(session, parts)
    scores = load_best_model(learner, folder, accelerator)
    scored = hash_of_weights(whole_weights(learner, accelerator))
    evaluations = evaluate_best(learner, validation, splits, scores, accelerator)
    results = results_of(evaluations, outcome, recipe.steps, environment_of(learner, accelerator))
    weights = whole_weights(learner, accelerator)
    if accelerator.is_main_process:
        model, weights = merged(learner, folder / ADAPTER) if lora else (pretrained.model, weights)
        saved = hash_of_weights(weights)
        encoder = encoder_of(pretrained.model, pretrained.tokenizer, setting.max_length)
        keep_model(model, weights, encoder, task, folder / MODEL, with_code=recipe.save_code)
        results["learned"] |= {"scored": scored, "saved": saved}
        keep_results(folder, evaluations, results)
        if not lora:  # whose additions are merged into the weights that are saved
            tell_of_weights(folder.name, {"best": scored}, {"best": saved})
        tell_of_rows(folder.name, training, train, pace, outcome.progress)
    accelerator.wait_for_everyone()
    return results


def tell_of_rows(
    run: str,
    training: FineTuningTraining,
    rows: LabelledExamples,
    pace: LabelledExamples | None,
    progress: Progress,
) -> None:
    """Print how many rows a run has learned from, if its epochs ask for another number and go by them."""
    num_rows = len(rows)
    if pace is not None and len(pace) != num_rows:
        return
    done, asked = sum(progress.examples_of_epochs), training.epochs * num_rows
    tolerance = training.batch_size if training.epochs % 1 else 1
    tell_of_amount(run, "examples", done, asked, progress, tolerance=tolerance)


def load_learner(
    setting: Setting,
    task: Task,
    splits: Mapping[str, Split],
    seed: int,
    pretrained: TaskModel | None = None,
) -> tuple[TaskModel, nn.Module]:
    """Load the model of a seed unless it is, with what it has to know of the rows, and what of it learns."""
    pretrained = pretrained or load_task_model(setting.start, task, seed)
    remember_words(pretrained.model, splits)
    return pretrained, learner_of(pretrained.model, setting.lora, setting.training.frozen_layers)


def results_of(
    evaluations: Mapping[str, Evaluation], outcome: Outcome, planned_steps: int, trained_on: dict[str, Any]
) -> dict[str, Any]:
    """Join the scores of a run's splits with how long it took, was meant to take, and on what."""
    return {name: as_json(each.scores) for name, each in evaluations.items()} | {
        "steps": outcome.progress.step,
        "planned_steps": planned_steps,
        "seconds": outcome.progress.seconds,
        "trained_on": trained_on,
        "learned": {
            "examples_of_epochs": outcome.progress.examples_of_epochs,
            "targets": outcome.progress.targets_of,
            "skipped_steps": int(outcome.progress.skipped),
        },
    }


def training_recipe_of(
    training: FineTuningTraining, examples: LabelledExamples, seed: int, pace: LabelledExamples | None = None
) -> TrainingRecipe:
    """Return the engine's recipe of how a seed's run learns.

    Steps have `batch_size` rows, the last one of an epoch what is left; tokens only cut micro-batches. How
    many steps and evaluations there are, `pace` says, if given.
    """
    assert training.learning_rate is not None  # the run has chosen one
    size, lengths = training.batch_size, np.sort(examples.lengths)
    steps_per_epoch = -(-len(examples if pace is None else pace) // size)
    steps = max(1, round(training.epochs * steps_per_epoch))
    evaluate_every = max(1.0, steps_per_epoch / training.evaluations_per_epoch)
    return TrainingRecipe(
        steps=steps,
        tokens_per_step=int(lengths[-size:].sum()),
        tokens_per_micro_batch=training.tokens_per_micro_batch
        or max(round(ROOM * size * lengths.mean()), int(lengths[-1])),
        optimizer=OptimizerRecipe(
            learning_rate=training.learning_rate,
            betas=(0.9, 0.999),
            layer_decay=training.layer_decay,
            weight_decay=training.weight_decay,
        ),
        schedule=ScheduleRecipe(kind=training.schedule, warmup_ratio=training.warmup_ratio),
        max_grad_norm=training.max_grad_norm,
        precision=training.precision,
        compile=training.compile,
        gradient_checkpointing=training.gradient_checkpointing,
        cpu_offload=training.cpu_offload,
        seed=seed,
        evaluate_every=evaluate_every,
        checkpoint_every=evaluate_every,
        keep_checkpoints=1,
        patience=training.patience,
        log_every=max(1, steps // RECORDS),
        trackers=training.trackers,
        measure_utilization=False,
        num_workers=training.num_workers,
        save_code=training.save_code,
    )


def evaluate_best(
    model: nn.Module,
    validation: Evaluator,
    splits: Mapping[str, Split],
    scores: dict[str, float],
    accelerator: Accelerator,
) -> dict[str, Evaluation]:
    """Evaluate a model, which has `scores` in validation, on all rows that nothing is learned from."""
    accelerator.wait_for_everyone()  # until all have read the checkpoint: the main process deletes it
    with gathered(model.eval(), accelerator):
        evaluations = {"validation": validation.evaluate(model, scores)}
        if (test := splits.get("test")) is not None:
            evaluations["test"] = evaluate_rows(model, validation.task, test.rows, test.examples)
    return evaluations


def load_best_model(model: nn.Module, folder: Path, accelerator: Accelerator) -> dict[str, float]:
    """Load a model's best checkpoint; return the scores that it had then."""
    checkpoint = best(folder / CHECKPOINTS) or latest(folder / CHECKPOINTS)
    assert checkpoint is not None
    load_whole_weights(
        accelerator.unwrap_model(model), safetensors.torch.load_file(checkpoint / "model.safetensors")
    )
    return read_state(checkpoint)["scores"]


def keep_model(
    model: TercetPreTrainedModel,
    weights: dict[str, Tensor],
    encoder: TextEncoder,
    task: Task,
    folder: Path,
    *,
    with_code: bool,
) -> None:
    """Write a finished model with everything that others need to use it as it was scored."""
    remedy = "make room and continue with --resume; the checkpoints are there"
    with explaining_a_full_disk(folder, model.get_memory_footprint(), remedy), quietly():
        save_loadable(model, folder, weights, with_code=with_code)
        save_tokenizer(encoder.settled(), folder)
    keep_task(task, folder, encoder.max_length)
    for name, content in task.companions(model.config, encoder.max_length).items():
        (folder / name).parent.mkdir(exist_ok=True)
        replace_text(folder / name, json.dumps(content, indent=2) + "\n")


def keep_results(folder: Path, evaluations: Mapping[str, Evaluation], results: dict[str, Any]) -> None:
    """Write what a model was worth; the checkpoints of its run are not needed any more."""
    last = list(evaluations.values())[-1]
    lines = (json.dumps(prediction, ensure_ascii=False) for prediction in last.predictions)
    replace_text(folder / PREDICTIONS, "\n".join(lines) + "\n")
    replace_text(folder / SCORES, json.dumps(results, indent=2) + "\n")
    delete(folder / CHECKPOINTS)
