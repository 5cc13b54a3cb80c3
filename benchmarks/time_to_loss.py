"""Race the stock models to a loss: the wall-clock time until a held-out loss is reached.

    python benchmarks/speed.py time_to_loss --data data/pretrain_en         both races, two hours on two cores
    python benchmarks/speed.py time_to_loss --data ... --cases decoder --minutes 10 --cpus 2 3

The stock side, the loop that everybody writes around transformers' model, tries its learning rates in short
runs, and then trains for the given minutes with the best of them. The loss that it ends with is the target,
and the time of our engine with a recipe is that of its first judgement that is as good. Both write a curve as
they go, a line for every judgement. Both clocks count steps, and the batches for them; judging, tokenizing
and building the model are left out. `contests.py` defines what is raced and how it is judged.

A run that is finished is kept in --folder and not repeated. The data are a folder with `train` and
`validation`: text files, one sentence per line, a blank line between documents. Let the machine rest.
"""

import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
from cells import afresh, cell_folder, once
from contests import CONTESTS, Contest, held_out_sample
from matplotlib import rc_context
from matplotlib.figure import Figure
from measuring import Conditions, in_fresh_process
from peers import padded
from publishing import NOISY, Result, table
from speed import Benchmark
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerBase, get_scheduler

from tercet.configs.recipe import recipe_data
from tercet.modeling import TercetPreTrainedModel
from tercet.pretraining.model import build_model
from tercet.pretraining.prepared import find_inputs, load_or_train_tokenizer
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.text import context_of, open_text, training_source
from tercet.reporting.curves import FIRST, INK, LOOK, QUIET, SECOND, THIRD
from tercet.training.evaluation import HeldOut, evaluation_mode
from tercet.training.examples import Examples
from tercet.training.fit import fit
from tercet.training.objective import Batch, Objective
from tercet.training.precision import build_accelerator
from tercet.training.stages import prepare_data
from tercet.training.tracking import LOG, read_log

JUDGEMENTS = 12
"""How often the stock side's long run is judged."""

PLACES = ("train", "validation", "cache", "output")
"""Keys of a recipe and its corpus that say where things lie."""

MOST_DIFFERENCE = 0.03
"""By how much the numbers of parameters may differ."""

TRIAL_STEPS = 8
"""Steps that tell how long one takes; the first two do not count."""

CURVE = "curve.jsonl"
"""The stock side's curve in its folder; ours is in the log."""

Curve = list[dict[str, float]]
"""A run's judgements: `step`, `seconds`, `tokens`, `loss`."""


def race(contest: Contest, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Run the stock side with the best of its rates, then ours, and compare their times.

    Raises:
        ValueError: The models differ in size.
    """
    folder = options.folder.resolve() / contest.name
    recipe = contest.our_recipe(options.data.resolve(), folder, options.override)

    def stock(rate: float, minutes: float, judgements: int) -> dict[str, Any]:
        depends_on = (conditions, contest.figures, recipe.tokenizer, recipe.corpus, rate, minutes, judgements)
        run = partial(race_stock, contest, recipe, rate=rate, minutes=minutes, judgements=judgements)
        cell = cell_folder(folder, f"stock-{rate:g}-{minutes:g}-minutes", depends_on)
        return once(cell, partial(in_fresh_process, conditions, afresh, run))

    rates = options.rates or contest.rates
    pilots = {rate: stock(rate, options.pilot_minutes, 1) for rate in rates} if len(rates) > 1 else {}
    best = min(rates, key=lambda rate: pilots[rate]["curve"][-1]["loss"] if pilots else 0)
    theirs = stock(best, options.minutes, JUDGEMENTS)
    depends_on = (conditions, contest.figures, recipe)
    race_ours = partial(race_tercet, contest, recipe)
    ours = once(
        cell_folder(folder, "tercet", depends_on), partial(in_fresh_process, conditions, afresh, race_ours)
    )
    if abs(ours["parameters"] / theirs["parameters"] - 1) > MOST_DIFFERENCE:
        raise ValueError(f"parameters: {ours['parameters']:,} against {theirs['parameters']:,}")
    target, reached = theirs["curve"][-1]["loss"], theirs["curve"][-1]["seconds"]
    return {
        "contest": contest.figures,
        "recipe": without_places(recipe_data(recipe)),
        "pilots": {f"{rate:g}": pilot["curve"][-1] for rate, pilot in pilots.items()},
        "pilot_minutes": options.pilot_minutes,
        "target": target,
        "sides": {
            f"stock, rate {best:g}": theirs | {"seconds": reached},
            f"tercet, {contest.recipe}": ours | {"seconds": time_to(target, ours["curve"])},
        },
    }


def without_places(recipe: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a recipe where this machine keeps things: the paths of text, cache and output."""
    corpus = {name: value for name, value in recipe["corpus"].items() if name not in PLACES}
    return {name: value for name, value in recipe.items() if name not in PLACES} | {"corpus": corpus}


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
        source_of=lambda stage: source_of_length(stage.sequence_length or recipe.corpus.sequence_length),
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
        """Take one step, and return how many seconds it took."""
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


def time_to(target: float, curve: Sequence[dict[str, float]]) -> float | None:
    """Return the seconds until the first judgement that is as good as the target; `None` if there is none."""
    return next((point["seconds"] for point in curve if point["loss"] <= target), None)


def render(result: Result) -> str:
    """Write the races' result as Markdown: the machine, the trials of the rates, the table."""
    machine, races = result["machine"], result["cases"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        f"{result['date']}: {machine['processor']} ({machine['instructions']}), threads: "
        f"{result['conditions']['threads']}; Python {machine['python']}, {versions}; load average "
        f"{machine['load_average']:.2f} at the start.",
        *(["", NOISY] if result["is_noisy"] else []),
        "",
        *(_pilots(name, race) for name, race in races.items()),
        "",
    ]
    rows = [
        {"race": name, "side": side, "parameters": run["parameters"]}
        | run["curve"][-1]
        | {"minutes": run["curve"][-1]["seconds"] / 60}
        | _speed_up(run["seconds"], next(iter(race["sides"].values()))["seconds"])
        for name, race in races.items()
        for side, run in race["sides"].items()
    ]
    return "\n".join([*lines, *table(COLUMNS, rows, "llr")])


COLUMNS = {
    "race": "{race}",
    "side": "{side}",
    "parameters": "{parameters:,}",
    "steps": "{step:,}",
    "tokens": "{tokens:,}",
    "total time": "{minutes:.1f} min",
    "final loss": "{loss:.3f}",
    "time to target": "{reached}",
    "speed-up": "{speed_up}",
}


def _speed_up(reached: float | None, slowest: float) -> dict[str, str]:
    if reached is None:
        return {"reached": "not reached", "speed_up": ""}
    return {"reached": f"{reached / 60:.1f} min", "speed_up": f"{slowest / reached:.1f}x"}


def _pilots(name: str, race: dict[str, Any]) -> str:
    """Describe the target, and what the stock side's rates had led to when it chose."""
    trials = ", ".join(f"{rate}: {last['loss']:.3f}" for rate, last in race["pilots"].items())
    minutes = f"{race['pilot_minutes']:g} minute{'s' if race['pilot_minutes'] != 1 else ''}"
    chosen = f"; the stock side's rates after {minutes}: {trials}" if trials else ""
    return f"- {name}: the target is {race['target']:.3f} nats{chosen}."


def draw(result: dict[str, Any], file: Path) -> None:
    """Draw every race's curves into a PNG file, time on a logarithmic axis."""
    with rc_context(LOOK):
        figure = Figure(figsize=(10, 3.8), layout="constrained")
        races = result["cases"].items()
        for axes, (name, race) in zip(figure.subplots(1, len(races), squeeze=False)[0], races, strict=True):
            axes.set_title(f"{name}: held-out loss over minutes", loc="left", fontsize=10.5, color=INK)
            axes.axhline(race["target"], color=SECOND, linewidth=1.2, linestyle=(0, (4, 3)))
            for (side, run), colour in zip(race["sides"].items(), (THIRD, FIRST), strict=True):
                minutes = [point["seconds"] / 60 for point in run["curve"]]
                losses = [point["loss"] for point in run["curve"]]
                axes.plot(minutes, losses, color=colour, linewidth=2, label=side)
                if run["seconds"] is not None:
                    axes.plot(run["seconds"] / 60, race["target"], "o", color=colour)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(axis="y")
            axes.legend(frameon=False, labelcolor=QUIET, fontsize=9)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=160, facecolor="white")


BENCHMARK = Benchmark(
    CONTESTS,
    race,
    options={
        "--data": {"type": Path, "required": True, "help": "folder with train and validation"},
        "--minutes": {"type": float, "default": 30, "help": "how long the stock side trains"},
        "--pilot-minutes": {"type": float, "default": 3, "help": "how long it tries each of its rates"},
        "--rates": {"nargs": "+", "type": float, "help": "its rates, instead of the contest's"},
        "--override": {"nargs": "+", "default": [], "metavar": "KEY=VALUE", "help": "of our recipe"},
        "--folder": {"type": Path, "default": Path("runs/time-to-loss"), "help": "where runs are kept"},
    },
    draw=draw,
    text=render,
)
