"""Carry out a study: recipes x overrides x seeds, judged, as tables.

    python lab/benchmarks/benchmark.py bake_off --page docs/results.md
    python lab/benchmarks/benchmark.py bake_off --smoke     a few steps of tiny models: to see that it runs
    python lab/benchmarks/benchmark.py bake_off --render    the table of earlier figures

`study_file.py` tells what the file of a study holds, and its first lines what it is about; `--rounds` are
seeds. Every model and every judgement is a cell: a folder below --folder with a `result.json`. What is
finished is not repeated, and what was interrupted goes on.

Rows are compared after the same tokens: times are what other benchmarks measure.
"""

import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from benchmark import Benchmark
from cells import cell_folder, once
from judges import JUDGES, Exam, pretrained, untrained
from measuring import Conditions, in_fresh_process
from publishing import Result
from samples import text_sample
from standings import text_of
from study_file import Judge, Part, Row, Study, Training, filled, load_study

from tercet.configs.recipe import load_recipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.tools.convert.run import Member, convert_model
from tercet.training.run_folder import MODEL

STUDIES = Path(__file__).parent / "studies"


@dataclass(frozen=True)
class StudyPart:
    """A part of a study, by their names."""

    study: str
    part: str
    is_trial: bool = False

    def shrunk(self) -> "StudyPart":
        """Return a trial of the same."""
        return replace(self, is_trial=True)


def benchmark_of(name: str) -> Benchmark:
    """Make a benchmark of a study: its cases are the parts."""
    study = load_study(STUDIES / f"{name}.yaml")
    return Benchmark(
        {part.name: StudyPart(name, part.name) for part in study.parts},
        measure_part,
        options={
            "--set": {"dest": "settings", "nargs": "+", "default": [], "metavar": "NAME=VALUE", "help": SET},
            "--folder": {"type": Path, "help": "where cells are kept; runs/STUDY if left out"},
        },
        defaults={"rounds": study.seeds, "threads": 1, "waits_for_rest": False},
        begin=lambda conditions, is_smoke: {"is_timed": False},
        text=partial(text_of, study),
    )


SET = "settings of the study, which its file names"


def measure_part(case: StudyPart, options: Namespace, conditions: Conditions, result: Result) -> Result:
    """Train and judge the rows of a part."""
    study = load_study(STUDIES / f"{case.study}.yaml", options.settings, case.is_trial)
    result["settings"] = study.settings
    torch.set_num_threads(conditions.threads)
    (part,) = (each for each in study.parts if each.name == case.part)
    folder = (options.folder or Path("runs") / case.study).resolve()
    shop = Workshop(study, part, folder, conditions, options.rounds, case.is_trial)
    return {"rows": [shop.standing(row) for row in part.rows]}


@dataclass(frozen=True)
class Model:
    """A row's model of one seed: its cell, and what its training gave."""

    cell: Path
    seed: int
    found: Result

    @property
    def path(self) -> Path:
        """Where the model lies."""
        return self.cell / "run" / MODEL


class Workshop:
    """Where the rows of a part are trained and judged.

    Args:
        study: The study.
        part: A part of it.
        folder: Of all cells.
        conditions: Of the processes that train and judge.
        seeds: How many models a row has.
        is_trial: Whether all is as short as can be, and in this process.
    """

    def __init__(
        self, study: Study, part: Part, folder: Path, conditions: Conditions, seeds: int, is_trial: bool
    ):
        self.part, self.folder, self.seeds, self.is_trial = part, folder, seeds, is_trial
        self.threads = conditions.threads
        self.variables = {"folder": folder, "all_seeds": [*range(seeds)]} | study.settings
        for name, sample in study.samples.items():
            text, characters = Path(sample.of), sample.characters
            if characters is not None:
                text = text_sample(text, folder / f"{name}-{characters}", characters)
            self.variables[name] = text
        self.call: Callable[..., Any] = partial(in_fresh_process, conditions)
        if is_trial:
            self.call = lambda function, *arguments: function(*arguments)

    def standing(self, row: Row) -> Result:
        """Train and judge a row: what it cost, and under `judgements` those of all seeds, by judge."""
        about = {"name": row.name, "overrides": [*row.overrides]} | self.part.defaults | row.fields
        if self.part.train is None:
            seeds = range(self.seeds if self.varies(*self.judge_texts()) else 1)
            return about | {
                "judgements": self.judgements(row, [Model(self.folder, each, {}) for each in seeds])
            }
        steps = self.steps()
        models = self.trained(row, steps)
        about |= {name: models[0].found[name] for name in ("parameters", "tokens", "steps")}
        return about | {"judgements": self.judgements(row, models)}

    def steps(self) -> int:
        """Count the steps of a training from its tokens, unless they are given."""
        train = self.part.train
        assert train is not None
        if train.steps is not None:
            return train.steps
        overrides = self.fill(train.overrides, self.part.rows[0], 0)
        size = load_recipe(PretrainingRecipe, train.recipe, overrides).training.tokens_per_step
        return max(round((train.tokens or 0) / size), 1)

    def trained(self, row: Row, steps: int) -> list[Model]:
        """Train a row with every seed, or find what was trained before."""
        train = self.part.train
        assert train is not None
        models = []
        for seed in range(self.seeds if self.varies(*train.overrides) else 1):
            own = [
                each.replace("HALF", f"{steps // 2}").replace("FIFTH", f"{steps // 5}")
                for each in row.overrides
            ]
            overrides = self.fill(train.overrides, row, seed)
            if train.command == "pretrain":
                overrides += [f"training.steps={steps}", f"training.checkpoint_every={max(steps // 4, 1)}"]
            overrides += self.fill(own, row, seed)
            depends_on = (train.command, train.recipe, overrides, self.threads)
            cell = cell_folder(self.folder, f"{slug(row.name)}-seed-{seed}", depends_on)
            begin = {"pretrain": pretrained, "untrained": untrained}[train.command]
            work = partial(self.call, begin, train.recipe, overrides)
            models.append(Model(cell, seed, told_once(cell, f"training: {row.name}, seed {seed}", work)))
        return models

    def judgements(self, row: Row, models: Sequence[Model]) -> dict[str, list[Result]]:
        """Judge the models of a row by all judges that it has."""
        names = self.part.judges if row.judges is None else row.judges
        return {
            name: [self.judged(row, name, self.part.judges[name], each) for each in models] for name in names
        }

    def judged(self, row: Row, name: str, judge: Judge, model: Model) -> Result:
        """Judge a model, or find how it was judged."""
        path = model.path
        if member := filled(judge.convert, self.variables | self.part.defaults | row.fields):
            path = converted(model.cell, path, member)
        overrides = self.fill(judge.overrides, row, model.seed, model=path)
        train = self.part.train or Training()
        base = self.fill(train.overrides, row, model.seed)
        about = judge.options | {"is_trial": self.is_trial}
        exam = Exam(judge.recipe, (*overrides,), path, judge.limits, about, (train.recipe, (*base,)))
        cell = cell_folder(model.cell, f"{name}-{slug(row.name)}", (judge.kind, exam, self.threads))
        what = f"judging: {row.name}, seed {model.seed}: {name}"
        return told_once(cell, what, partial(self.call, JUDGES[judge.kind], exam))

    def fill(self, overrides: Sequence[str], row: Row, seed: int, **more: Any) -> list[str]:
        """Put the row's fields and the settings into overrides."""
        variables = self.variables | self.part.defaults | row.fields | {"row": row.name, "seed": seed} | more
        return [filled(each, variables) for each in overrides]

    def judge_texts(self) -> list[str]:
        """Return the overrides of all judges."""
        return [each for judge in self.part.judges.values() for each in judge.overrides]

    @staticmethod
    def varies(*overrides: str) -> bool:
        """Return whether a seed is read: else there is one model."""
        return any(re.search(r"\$seed\b", each) for each in overrides)


def converted(cell: Path, model: Path, member: str) -> Path:
    """Convert a model to another member, once."""

    def compute(folder: Path) -> Result:
        convert_model(str(model), cast(Member, member), str(folder / MODEL), overwrite=True)
        return {}

    once(cell / member, compute)
    return cell / member / MODEL


def told_once(cell: Path, what: str, compute: Callable[[Path], Result]) -> Result:
    """Compute a cell unless it is finished, and print what is being done."""

    def tell(folder: Path) -> Result:
        print(what, file=sys.stderr, flush=True)
        return compute(folder)

    return once(cell, tell)


def slug(name: str) -> str:
    """Return a name as part of a folder's: `mlm-30-15`."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))
