"""A fine-tuning run, from a recipe to a model that knows a task, and an honest account of how well.

rows -> task -> examples                      for every seed:
                   |                             pretrained model + head -> fit -> best checkpoint -> scores
                   +---------------------------> scores of all seeds, baselines, intervals -> the best model

Whatever may be wrong with recipe, rows and model shows before the output folder is touched.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from accelerate import Accelerator
from torch import nn

from ..configs.recipe import recipe_data
from ..interop.messages import quietly
from ..modeling import TercetPreTrainedModel
from ..pretraining.output import MODEL, delete
from ..training.checkpoint import best, latest
from ..training.circumstances import circumstances
from ..training.disk import explaining_a_full_disk, replace_text
from ..training.evaluation import HeldOut
from ..training.fit import CHECKPOINTS, fit
from ..training.precision import build_accelerator
from ..training.recipe import OptimizerRecipe, ScheduleRecipe, TrainingRecipe
from ..training.sharding import load_whole_weights
from ..training.tracking import as_json
from .answers import Judged, judge
from .examples import LabelledExamples
from .model import Beginning, freeze, load_beginning
from .output import PREDICTIONS, SCORES, claim_output, require_claimable, seed_folder
from .recipe import FineTuningRecipe, FineTuningSchedule
from .splits import MEASURED, Split, encode_splits, encoder_of, read_splits
from .summary import conclude
from .task import Task
from .tasks import build_task, keep_task

RECORDS = 100
"""Records that a run writes into its log, about."""


def finetune(recipe: FineTuningRecipe, *, resume: bool = False, overwrite: bool = False) -> Path:
    """Fine-tune a model as a recipe says, once for every seed, and return the folder of the best one.

    Args:
        recipe: Everything that the run depends on.
        resume: Continue an earlier run in the output folder, if there is one.
        overwrite: Replace an earlier run in the output folder.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the rows, the model or the output folder.
        FileNotFoundError: A named file or model does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
        DiskFullError: There is no room; what was written before is intact.
    """
    require_claimable(recipe, resume=resume, overwrite=overwrite)
    rows = read_splits(recipe)
    task = build_task(recipe.task, rows["train"])
    first = load_beginning(recipe.model, task, recipe.training.seeds[0])
    encoder = encoder_of(first.model, first.tokenizer, recipe.data.max_length)
    splits = encode_splits(rows, task, encoder)
    claim_output(recipe, resume=resume, overwrite=overwrite)
    results = {seed: learn(recipe, task, splits, seed, resume=resume) for seed in recipe.training.seeds}
    return conclude(recipe, task, splits, first, results)


def learn(
    recipe: FineTuningRecipe, task: Task, splits: Mapping[str, Split], seed: int, *, resume: bool
) -> dict[str, Any]:
    """Carry out the run of one seed and return its scores; one that is finished is not repeated.

    Raises:
        KeyboardInterrupt: A signal stopped the run.
    """
    folder = seed_folder(recipe, seed)
    if (folder / SCORES).exists():
        return json.loads((folder / SCORES).read_text(encoding="utf-8"))
    training = training_of(recipe.training, splits["train"].examples, seed)
    accelerator = build_accelerator(training, folder)
    beginning = load_beginning(recipe.model, task, seed)
    freeze(beginning.model, recipe.training.frozen_layers)
    held_out = HeldOut(measure=measure_of(task, splits["validation"]), criterion=task.shortfall)
    outcome = fit(
        beginning.model,
        task.objective(),
        splits["train"].examples,
        training,
        folder,
        accelerator,
        width=beginning.model.config.hidden_size,
        held_out=held_out,
        about=recipe_data(recipe),
        resume=resume,
    )
    if outcome.interrupted_by is not None:
        raise KeyboardInterrupt(f"stopped by {outcome.interrupted_by}; continue with --resume")
    bring_back_best(beginning.model, folder, accelerator)
    judged = {name: judge_split(beginning.model, task, splits[name]) for name in splits if name in MEASURED}
    results = {name: as_json(each.scores) for name, each in judged.items()} | {
        "steps": outcome.progress.step,
        "seconds": outcome.progress.seconds,
        "trained_on": circumstances(beginning.model, accelerator),
    }
    if accelerator.is_main_process:
        keep(beginning, task, folder, judged, results)
    accelerator.wait_for_everyone()
    return results


def training_of(schedule: FineTuningSchedule, examples: LabelledExamples, seed: int) -> TrainingRecipe:
    """Say in the engine's words how a seed's run learns.

    Steps are cut by tokens: as many as `batch_size` rows have on average.
    """
    total = int(examples.lengths.sum())
    tokens = max(round(schedule.batch_size * total / len(examples)), int(examples.lengths.max()))
    steps_per_epoch = -(-total // tokens)
    steps = max(1, round(schedule.epochs * steps_per_epoch))
    evaluate_every = max(1, steps_per_epoch // schedule.evaluations_per_epoch)
    return TrainingRecipe(
        steps=steps,
        tokens_per_step=min(tokens, total),
        tokens_per_micro_batch=schedule.tokens_per_micro_batch,
        optimizer=OptimizerRecipe(
            learning_rate=schedule.learning_rate,
            betas=(0.9, 0.999),
            layer_decay=schedule.layer_decay,
            weight_decay=schedule.weight_decay,
        ),
        schedule=ScheduleRecipe(kind=schedule.schedule, warmup_ratio=schedule.warmup_ratio),
        max_grad_norm=schedule.max_grad_norm,
        precision=schedule.precision,
        seed=seed,
        evaluate_every=evaluate_every,
        checkpoint_every=evaluate_every,
        keep_checkpoints=1,
        patience=schedule.patience,
        log_every=max(1, steps // RECORDS),
        trackers=schedule.trackers,
        measure_utilization=False,
        num_workers=schedule.num_workers,
    )


def measure_of(task: Task, split: Split) -> Callable[[nn.Module], dict[str, float]]:
    """Make the function that scores a model on a split."""

    def measure(model: nn.Module) -> dict[str, float]:
        return judge(model, task, split.rows, split.examples).scores

    return measure


def judge_split(model: nn.Module, task: Task, split: Split) -> Judged:
    """Predict and score a split with a model that learns no more."""
    return judge(model.eval(), task, split.rows, split.examples)


def bring_back_best(model: TercetPreTrainedModel, folder: Path, accelerator: Accelerator) -> None:
    """Give a model the weights of its best checkpoint."""
    checkpoint = best(folder / CHECKPOINTS) or latest(folder / CHECKPOINTS)
    assert checkpoint is not None
    load_whole_weights(
        accelerator.unwrap_model(model), safetensors.torch.load_file(checkpoint / "model.safetensors")
    )


def keep(
    beginning: Beginning, task: Task, folder: Path, judged: Mapping[str, Judged], results: dict[str, Any]
) -> None:
    """Write what a seed's run has led to; its checkpoints are not needed any more."""
    model = folder / MODEL
    remedy = "make room and continue with --resume; the checkpoints are there"
    with explaining_a_full_disk(model, beginning.model.get_memory_footprint(), remedy), quietly():
        beginning.model.save_pretrained(model)
        beginning.tokenizer.save_pretrained(model)
    keep_task(task, model)
    last = list(judged.values())[-1]
    lines = (json.dumps(prediction, ensure_ascii=False) for prediction in last.predictions)
    replace_text(folder / PREDICTIONS, "\n".join(lines) + "\n")
    replace_text(folder / SCORES, json.dumps(results, indent=2) + "\n")
    delete(folder / CHECKPOINTS)
