"""Who races: the loop that everybody writes around transformers' model, and our engine with a recipe.

Both write a curve as they go, a line for every judgement. Both clocks count steps, and the batches for them;
judging, tokenizing and building the model are left out.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
from peers import padded
from time_to_loss_contests import Contest, held_out_sample
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerBase, get_scheduler

from tercet.modeling import TercetPreTrainedModel
from tercet.pretraining.model import build_model
from tercet.pretraining.prepared import find_inputs, load_or_train_tokenizer
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.text import context_of, open_text, training_source
from tercet.training.evaluation import HeldOut, evaluation_mode
from tercet.training.examples import Examples
from tercet.training.fit import fit
from tercet.training.objective import Batch, Objective
from tercet.training.precision import build_accelerator
from tercet.training.stages import prepare_data
from tercet.training.tracking import LOG, read_log

TRIAL_STEPS = 8
"""Steps that tell how long one takes; the first two do not count."""

CURVE = "curve.jsonl"
"""The stock side's curve in its folder; ours is in the log."""

Curve = list[dict[str, float]]
"""A run's judgements: `step`, `seconds`, `tokens`, `loss`."""


def race_tercet(contest: Contest, recipe: PretrainingRecipe, folder: Path) -> dict[str, Any]:
    """Train as our recipe says; its size and its curve."""
    tokenizer = load_or_train_tokenizer(recipe, find_inputs(recipe), None)
    accelerator = build_accelerator(recipe.training, folder)
    model = build_model(recipe, tokenizer)
    objective, judges = contest.objective(recipe, tokenizer), contest.judges(recipe, tokenizer)

    def judge(model: nn.Module) -> dict[str, float]:
        return {"judged": mean_loss(judges, objective, lambda batch: our_loss(model, objective, batch))}

    learned = recipe.objective.build(context_of(recipe, tokenizer))
    source_of_length = training_source(recipe, open_text(recipe, "train"), tokenizer)
    data = prepare_data(
        source_of_length(recipe.corpus.sequence_length),
        learned,
        recipe.training,
        accelerator,
        source_of_length=source_of_length,
        held_out=HeldOut(held_out_sample(recipe, tokenizer), measure=judge),
    )
    fit(model, learned, data, recipe.training, folder, accelerator, width=model.config.hidden_size)
    assert isinstance(model, TercetPreTrainedModel)
    return {"parameters": model.num_parameters(), "curve": curve_of(read_log(folder / LOG))}


def curve_of(log: Sequence[dict[str, Any]]) -> Curve:
    """Pick the judgements out of our log."""
    names = {"step": "step", "seconds": "seconds", "tokens": "tokens", "evaluation/judged": "loss"}
    judgements = [record for record in log if "evaluation/judged" in record]
    return [{ours: record[name] for name, ours in names.items()} for record in judgements]


def race_stock(
    contest: Contest, recipe: PretrainingRecipe, folder: Path, *, rate: float, minutes: float, judgements: int
) -> dict[str, Any]:
    """Train transformers' model for so many minutes, in which its schedule runs to its end.

    It is judged `judgements` times, at the end at last; ours is judged when its recipe evaluates.
    """
    tokenizer = load_or_train_tokenizer(recipe, find_inputs(recipe), None)
    judge = stock_judge(contest, recipe, tokenizer)
    trial = StockRun(contest, recipe, tokenizer, rate, TRIAL_STEPS)
    seconds_per_step = median([trial.step() for _ in range(TRIAL_STEPS)][2:])
    steps = max(round(60 * minutes / seconds_per_step), 1)

    run = StockRun(contest, recipe, tokenizer, rate, steps)
    curve: Curve = []
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / CURVE).open("w", encoding="utf-8") as file:
        seconds = 0.0
        for step in range(1, steps + 1):
            seconds += run.step()
            if step * judgements % steps < judgements:  # at equal distances, and at the end
                loss = judge(run.model)
                curve.append({"step": step, "seconds": seconds, "tokens": run.tokens, "loss": loss})
                print(json.dumps(curve[-1]), file=file, flush=True)
    return {"parameters": run.model.num_parameters(), "curve": curve}


class StockRun:
    """Transformers' model, collator and schedule, with torch's optimizer; float32, as shipped."""

    def __init__(
        self,
        contest: Contest,
        recipe: PretrainingRecipe,
        tokenizer: PreTrainedTokenizerBase,
        rate: float,
        steps: int,
    ):
        torch.manual_seed(0)
        self.model = contest.stock(recipe, tokenizer).train()
        self.optimizer = AdamW(
            self.model.parameters(), rate, contest.betas, weight_decay=contest.weight_decay, fused=True
        )
        warmup = round(contest.warmup_ratio * steps)
        self.schedule = get_scheduler(contest.schedule, self.optimizer, warmup, steps)
        source_of_length = training_source(recipe, open_text(recipe, "train"), tokenizer)
        source = source_of_length(recipe.corpus.sequence_length)
        loader = DataLoader(
            Rows(source.epoch(0)),
            contest.batch_size,
            shuffle=True,
            collate_fn=contest.collator(tokenizer),
        )
        self.batches: Iterator[dict[str, Tensor]] = chain.from_iterable(repeat(loader))
        self.tokens = 0

    def step(self) -> float:
        """Take one step, and tell how many seconds it took."""
        start = time.perf_counter()
        batch = next(self.batches)
        self.model(**batch).loss.backward()
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.tokens += int(batch["attention_mask"].sum())
        return time.perf_counter() - start


class Rows(Dataset):
    """Examples as transformers' collators take them."""

    def __init__(self, examples: Examples):
        self.examples = examples

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        """Make one."""
        return {"input_ids": self.examples[index]["input_ids"].tolist()}


def stock_judge(
    contest: Contest, recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase
) -> Callable[[nn.Module], float]:
    """Build what judges transformers' model."""
    objective, judges = contest.objective(recipe, tokenizer), contest.judges(recipe, tokenizer)
    pad_token_id = cast(int, tokenizer.pad_token_id)

    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        (targets,) = objective.targets(batch).values()
        return model(**padded(batch, pad_token_id)).loss * targets

    def judge(model: nn.Module) -> float:
        with evaluation_mode(model):
            return mean_loss(judges, objective, lambda batch: loss_of(model, batch))

    return judge


def our_loss(model: nn.Module, objective: Objective, batch: Batch) -> Tensor:
    """Sum our model's losses over the targets of a batch."""
    (scores,) = objective.scores(model, batch).values()
    return scores["loss"]


@torch.no_grad()
def mean_loss(judges: Sequence[Batch], objective: Objective, loss_of: Callable[[Batch], Tensor]) -> float:
    """Divide the sum of all batches' losses by the number of their targets."""
    total = sum(float(loss_of(batch)) for batch in judges)
    return total / sum(int(number) for batch in judges for number in objective.targets(batch).values())
