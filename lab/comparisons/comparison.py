"""What a comparison is, and how it is carried out: recipes x overrides x seeds, judged, as tables.

`--rounds` are seeds. Every training and every judgement is kept in a folder below --folder, in `result.json`:
what is finished is not repeated, and what was interrupted goes on. The file of a comparison:

    settings    what `--set` changes, and each `$name` in the file
    trial       settings of `--smoke`
    seeds       of every row, where its training or its judges name `$seed`; 1 if left out
    parts       what becomes a table each, by name:
      train       recipe, steps and overrides of a row's training; left out where judges find finished models
      defaults    fields of rows that do not have them
      rows        name, fields (each `$name`), further overrides, and judges (all if left out)
      judges      kind (a key of `judges.JUDGES`), recipe, overrides, options; title, what is `shown`, scale
      columns     title -> what is shown of a row's fields
      note        a sentence above the table, which reads the settings and the first row

Overrides read fields, settings, `seed`, `all_seeds`, `row`, `folder`, and `model` (in judges) or `half` and
`fifth` of the steps (in rows). What is `shown` of a judge reads what `numbers` returns.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from math import hypot, sqrt
from pathlib import Path
from statistics import mean, stdev
from string import Template
from typing import Any

import torch
import yaml
from scipy.stats import t as student

import tercet
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.training.run_folder import MODEL

from ..benchmarks.benchmark import Benchmark
from ..benchmarks.measuring import Conditions
from ..publishing import Result, keep, lines_of, read
from .judges import JUDGES, Exam

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))

Data = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of a comparison, by their names."""

    comparison: str
    name: str
    is_trial: bool = False

    def shrunk(self) -> "Part":
        """Return a trial of the same."""
        return replace(self, is_trial=True)


def benchmark_of(name: str) -> Benchmark:
    """Make a benchmark of a comparison: its cases are the parts."""
    comparison = load_comparison(name)
    return Benchmark(
        __doc__,
        {part: Part(name, part) for part in comparison["parts"]},
        measure_part,
        options={
            "--set": {"dest": "settings", "nargs": "+", "default": [], "metavar": "NAME=VALUE"},
            "--folder": {"type": Path, "help": "where models and judgements are kept; by default runs/NAME"},
        },
        defaults={"rounds": comparison.get("seeds", 1), "threads": 1},
        is_timed=False,
        text=partial(text_of, comparison),
    )


def load_comparison(name: str, changes: Sequence[str] = (), is_trial: bool = False) -> Data:
    """Read a comparison, and put its settings where they are named."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    comparison = yaml.safe_load(text)
    settings = comparison.get("settings", {}) | (comparison.get("trial", {}) if is_trial else {})
    given = dict(each.split("=", 1) for each in changes)
    if unknown := given.keys() - settings.keys():
        raise ValueError(f"{name} has no setting {', '.join(unknown)}; it has {', '.join(settings)}")
    settings |= {name: yaml.safe_load(value) for name, value in given.items()}
    return yaml.safe_load(filled(text, settings)) | {"settings": settings}


def filled(text: str, variables: Mapping[str, Any]) -> str:
    """Put variables into a text as YAML has them; what else it names is left."""
    shown = {name: each if isinstance(each, str) else json.dumps(each) for name, each in variables.items()}
    return Template(text).safe_substitute(shown)


def measure_part(case: Part, options: Namespace, conditions: Conditions, result: Result) -> Result:
    """Train and judge the rows of a part."""
    comparison = load_comparison(case.comparison, options.settings, case.is_trial)
    result["settings"] = comparison["settings"]
    torch.set_num_threads(conditions.threads)
    folder = (options.folder or Path("runs") / case.comparison).resolve()
    workshop = Workshop(comparison["parts"][case.name], comparison["settings"], folder, options.rounds)
    return {"rows": [workshop.standing(row) for row in workshop.part["rows"]]}


class Workshop:
    """Where the rows of a part are trained and judged, with so many seeds, in a folder."""

    def __init__(self, part: Data, settings: Data, folder: Path, seeds: int):
        self.part, self.folder = part, folder
        self.variables = settings | {"folder": str(folder), "all_seeds": [*range(seeds)]}
        self.seeds = range(seeds if "$seed" in json.dumps(part.get("train") or part["judges"]) else 1)

    def standing(self, row: Data) -> Data:
        """Train and judge a row: what it cost, and under `judgements` those of all seeds, by judge."""
        about = {"name": row["name"], "overrides": row.get("overrides", [])}
        about |= self.part.get("defaults", {}) | row.get("fields", {})
        judgements: dict[str, list[Data]] = {name: [] for name in row.get("judges", self.part["judges"])}
        for seed in self.seeds:
            model = self.trained(row, seed) if "train" in self.part else {}
            about |= {name: each for name, each in model.items() if name != "path"}
            for name, found in judgements.items():
                found.append(self.judged(row, seed, self.part["judges"][name], model.get("path", "")))
        return about | {"judgements": judgements}

    def trained(self, row: Data, seed: int) -> Data:
        """Train a row, or find what was trained before: its `path`, and what it cost."""
        train = self.part["train"]
        steps = int(self.fill([str(train["steps"])], row, 0)[0])
        own = self.fill(row.get("overrides", []), row, seed, half=steps // 2, fifth=steps // 5)
        overrides = [*self.fill(train["overrides"], row, seed), f"training.steps={steps}", *own]
        recipe = self.fill([train["recipe"]], row, seed)[0]
        return once(self.folder, f"training {row['name']}, seed {seed}", pretrained, recipe, overrides)

    def judged(self, row: Data, seed: int, judge: Data, model: str) -> Data:
        """Judge a model, or find how it was judged. A judge without a recipe reads that of the training."""
        recipe = judge.get("recipe", "")
        overrides = self.fill(judge.get("overrides", []), row, seed, model=model)
        if not recipe and "train" in self.part:
            recipe, *base = self.fill(
                [self.part["train"]["recipe"], *self.part["train"]["overrides"]], row, seed
            )
            overrides = [*base, *overrides] if judge["kind"] == "held_out" else overrides
        exam = Exam(recipe, tuple(overrides), Path(model), judge.get("options", {}))
        what = f"judging {row['name']}, seed {seed}: {judge['title']}"
        return once(self.folder, what, JUDGES[judge["kind"]], exam)

    def fill(self, overrides: Sequence[Any], row: Data, seed: int, **more: Any) -> list[str]:
        """Put fields and settings into overrides; a list among them is continued by what it holds."""
        fields = self.part.get("defaults", {}) | row.get("fields", {})
        variables = self.variables | fields | {"row": row["name"], "seed": seed} | more
        flat = [each for one in overrides for each in (one if isinstance(one, list) else [one])]
        return [filled(each, variables) for each in flat]


def once(folder: Path, what: str, work: Callable[..., Data], *given: Any) -> Data:
    """Do work in a folder of its own, which it gets at last, unless that is finished; return the result."""
    own = folder / f"{work.__name__}-{sha256(repr(given).encode()).hexdigest()[:12]}"
    if not (own / "result.json").exists():
        print(what, file=sys.stderr, flush=True)
        own.mkdir(parents=True, exist_ok=True)
        keep(own / "result.json", work(*given, own))
    return read(own / "result.json")


def pretrained(recipe: str, overrides: Sequence[str], folder: Path) -> Data:
    """Pretrain, going on with an interrupted run: where the model is, and what it cost."""
    tercet.pretrain(recipe, *overrides, f"output={folder / 'run'}", resume=True)
    model = folder / "run" / MODEL
    told = read(folder / "run" / "evaluation.json")
    cost = {"steps": told["step"], "tokens": told["tokens"]}
    return cost | {"path": str(model), "parameters": Checkpoint.open(str(model)).ours().num_parameters()}


def text_of(comparison: Data, result: Result) -> list[str]:
    """Write the tables of all parts that were measured."""
    lines: list[str] = []
    for name, part in comparison["parts"].items():
        if rows := result["cases"].get(name, {}).get("rows"):
            about = {**comparison["settings"], **result.get("settings", {}), **rows[0]}
            about = {key: code(each) if isinstance(each, list) else each for key, each in about.items()}
            lines += ["", part["note"].format(**about)] if "note" in part else []
            lines += ["", *lines_of_rows(part, rows)]
    return lines[1:]


def lines_of_rows(part: Data, rows: Sequence[Data]) -> list[str]:
    """Write a line for each row: its columns, and its scores by all judges."""
    head, lines = [*part["columns"], *(judge["title"] for judge in part["judges"].values())], []
    for row in rows:
        about = row | {"change": code(row.get("overrides", []), "<br>")}
        cells = [shown.format(**about) for shown in part["columns"].values()]
        for name, judge in part["judges"].items():
            own = row["judgements"].get(name)
            first = rows[0]["judgements"].get(name)
            cells.append(judge["shown"].format(**numbers(own, first, judge.get("scale", 100))) if own else "")
        lines.append(cells)
    return lines_of(head, lines, part.get("alignment", "lr"))


def code(texts: Sequence[str], between: str = ", ") -> str:
    """Write texts as code."""
    return between.join(f"`{each}`" for each in texts)


def numbers(own: Sequence[Data], first: Sequence[Data] | None, scale: float) -> dict[str, float]:
    """Return what a table may show of a row's judgements, one for each seed, beside those of the first row.

    These are `mean` and `deviation` over all seeds, the `difference` of the mean from that of the first row,
    the bounds `low` and `high` of the first seed's interval over rows, `half` of the width of the 95 %
    interval over rows and seeds, and what else the first judgement has.
    """
    values = [value for each in own for value in each["values"]]
    found = {name: each for name, each in own[0].items() if isinstance(each, float)}
    found |= {"mean": mean(values), "deviation": stdev(values) if len(values) > 1 else 0.0}
    if first:
        found["difference"] = mean(values) - mean(value for each in first for value in each["values"])
    if "interval" in own[0]:
        found |= dict(zip(("low", "high"), own[0]["interval"], strict=True)) | {"half": half_of(own)}
    return {name: scale * each for name, each in found.items()}


def half_of(own: Sequence[Data]) -> float:
    """Return half the width of a score's 95 % interval.

    It joins two doubts, as independent ones: that over rows, by bootstrap, and that over seeds, by Student's
    t. Of several models, each is a sample; of a single one, the seeds of its judge are, if there are several.
    """
    samples = [mean(each["values"]) for each in own] if len(own) > 1 else own[0]["values"]
    of_rows = mean((high - low) / 2 for low, high in (each["interval"] for each in own))
    num, of_seeds = len(samples), 0.0
    if num > 1:
        of_seeds = float(student.ppf(0.975, num - 1)) * stdev(samples) / sqrt(num)
    return hypot(of_rows, of_seeds)
