"""Carry out a study: recipes x overrides x seeds, judged, as a table.

    python lab/benchmarks/study.py ablations --set data=corpora steps=240 --page docs/results.md
    python lab/benchmarks/study.py bake_off --only CLM "MLM 15 %" --judges blimp trec --seeds 3
    python lab/benchmarks/study.py bake_off --try           a few steps of tiny models: to see that it runs
    python lab/benchmarks/study.py bake_off --render        the table of earlier figures

A study is a YAML file of `lab/benchmarks/studies/`, or any other file of this form; `study_file.py` tells
what it holds, and its first lines what it is about. Every model and every judgement is a cell: a folder
below --folder with a `result.json`. What is finished is not repeated, and what was interrupted goes on.

Rows are compared after the same tokens: times are what `speed.py` measures.
"""

import re
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from cells import cell_folder, once
from judges import JUDGES, Exam, pretrained, untrained
from measuring import Conditions, begin_result, describe_machine, in_fresh_process
from publishing import RESULTS, Result, keep, publish, read
from samples import text_sample
from speed import add_common
from standings import render
from study_file import Judge, Part, Row, Study, Training, filled, load_study

from tercet.configs.recipe import load_recipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.tools.convert.run import Member, convert_model
from tercet.training.run_folder import MODEL

STUDIES = Path(__file__).parent / "studies"


def main(arguments: Sequence[str]) -> int:
    """Carry out what the arguments ask for, print the tables, and write them down; 2 tells of wrong usage."""
    options = parse(arguments)
    try:
        study = study_of(options)
        name = Path(options.study).stem
        output = options.output or RESULTS / f"{name}.json"
        result = read(output) if options.is_rendered else carry_out(study, options, output)
        publish(render(study, result), options.page, name)
    except ValueError as error:
        print(f"study.py: {error}", file=sys.stderr)
        return 2
    return 0


def study_of(options: Namespace) -> Study:
    """Read the study, with the settings, rows and judges that the command line names."""
    path = STUDIES / f"{options.study}.yaml"
    source = path if path.exists() else options.study
    study = load_study(source, options.settings, options.variant, options.is_trial)
    if options.rows:
        own = tuple(Row(name, overrides=tuple(overrides)) for name, *overrides in options.rows)
        study = replace(study, parts=tuple(replace(each, rows=(each.rows[0], *own)) for each in study.parts))
    known = {
        "part": [part.name for part in study.parts],
        "row": [row.name for part in study.parts for row in part.rows],
        "judge": [judge for part in study.parts for judge in part.judges],
    }
    for what, chosen in (("part", options.parts), ("row", options.only), ("judge", options.judges)):
        if unknown := [name for name in chosen or () if name not in known[what]]:
            raise ValueError(f"no {what} is called {', '.join(unknown)}: {', '.join(known[what])}")
    return study


def carry_out(study: Study, options: Namespace, output: Path) -> Result:
    """Train and judge everything, and keep what each row gives at once."""
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    seeds = options.seeds or study.seeds
    if study.head == "run":
        result = begin_result(conditions, False, rounds=seeds)
    else:
        versions = describe_machine()["versions"]
        result = {"machine": {"versions": {name: versions[name] for name in STATED}}}
    result |= {"is_trial": options.is_trial, "is_timed": False}
    parts: dict[str, list[Result]] = {}
    result |= {"settings": study.settings, "parts": parts}
    torch.set_num_threads(options.threads)
    for part in study.parts:
        if options.parts is None or part.name in options.parts:
            rows = parts[part.name] = []
            shop = Workshop(study, part, options, conditions, seeds)
            for row in shop.rows:
                rows.append(shop.standing(row))
                keep(output, result)
    return result


STATED = ("tercet", "torch", "transformers")
"""Libraries that a result without times names."""


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
    """Where the rows of a part are trained and judged."""

    def __init__(self, study: Study, part: Part, options: Namespace, conditions: Conditions, seeds: int):
        self.part, self.options, self.seeds = part, options, seeds
        self.folder: Path = (options.folder or Path("runs") / Path(options.study).stem).resolve()
        self.rows = [row for row in part.rows if options.only is None or row.name in options.only]
        self.variables = {"folder": self.folder, "all_seeds": [*range(seeds)]} | study.settings
        for name, sample in study.samples.items():
            text, characters = Path(sample.of), sample.characters
            if characters is not None:
                text = text_sample(text, self.folder / f"{name}-{characters}", characters)
            self.variables[name] = text
        self.threads = options.threads
        self.call: Callable[..., Any] = partial(in_fresh_process, conditions)
        if options.is_trial:
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
        overrides = [*self.fill(train.overrides, self.rows[0], 0), *self.options.overrides]
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
            overrides = [*self.fill(train.overrides, row, seed), *self.options.overrides]
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
        chosen = self.part.judges if row.judges is None else row.judges
        names = [each for each in chosen if self.options.judges is None or each in self.options.judges]
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
        base = [*self.fill(train.overrides, row, model.seed), *self.options.overrides]
        about = judge.options | {"is_trial": self.options.is_trial}
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


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line."""
    names = ", ".join(sorted(path.stem for path in STUDIES.glob("*.yaml")))
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("study", help=f"{names}, or a file")
    add_common(parser)
    add = partial(parser.add_argument, default=None)
    add("--set", dest="settings", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the study")
    add("--variant", metavar="NAME", help="one of the study's variants; the first if left out")
    add("--parts", nargs="+", metavar="NAME", help="some of its parts")
    add("--only", nargs="+", metavar="NAME", help="some of its rows")
    add("--judges", nargs="+", metavar="NAME", help="some of its judges")
    add("--seeds", type=int, help="models of every row")
    add("--override", dest="overrides", nargs="+", default=[], metavar="KEY=VALUE", help="of every training")
    add(
        "--row",
        dest="rows",
        nargs="+",
        action="append",
        metavar="NAME KEY=VALUE",
        help="a row of one's own instead",
    )
    add("--try", dest="is_trial", action="store_true", default=False, help="a few steps of tiny models")
    add("--folder", type=Path, help="where cells are kept; runs/STUDY if left out")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
