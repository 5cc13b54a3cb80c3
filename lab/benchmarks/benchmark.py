"""Measure Tercet beside stock models and other libraries, or carry out a study.

    python lab/benchmarks/benchmark.py pretraining                      all cases, ten minutes on two cores
    python lab/benchmarks/benchmark.py generation --cases 4x256 --rounds 9
    python lab/benchmarks/benchmark.py bake_off --page docs/results.md  put the table there
    python lab/benchmarks/benchmark.py fewshot --render                 the table of earlier figures
    python lab/benchmarks/benchmark.py fewshot --smoke                  tiny shapes: only to see that it runs

A benchmark is the module of this folder that has its name: cases, what is measured of one, and how it is
shown. A study is a YAML file of `studies/`, whose cases are its parts. `benchmark.py NAME --help` shows what
is measured, and all options. `measuring.py` explains how time is taken: let the machine rest meanwhile.
"""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from measuring import Conditions, begin_result
from publishing import RESULTS, Result, Row, describe_run, keep, publish, read, table

BENCHMARKS = ("pretraining", "generation", "data_pipeline", "finetuning", "distillation", "fewshot")
STUDIES = tuple(sorted(path.stem for path in (Path(__file__).parent / "studies").glob("*.yaml")))


def no_facts(*_: Any) -> list[str]:
    """Return nothing."""
    return []


@dataclass(frozen=True)
class Benchmark:
    """What is measured, and how it is shown."""

    cases: Mapping[str, Any]
    measure: Callable[[Any, Namespace, Conditions, Result], dict[str, Any]]
    """Gets a case, the options, the conditions and the result so far; `sides` of what it gives are rows."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Of the table: title -> what is shown of a row, which has `case`, `side` and the side's fields."""
    has_row_per_case: bool = False
    """Whether a row is a case instead, and has `case`, its fields and each side: `{tercet[seconds]}`."""
    alignment: str = "lr"
    sides: Sequence[str] = ()
    """Names that `--sides` chooses from."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the command line: flag -> arguments of `add_argument`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of options that all benchmarks have."""
    begin: Callable[[Conditions, bool], Result] = lambda conditions, is_smoke: {}
    """Measures what belongs to the whole run; a smoke may leave it out."""
    remarks: Callable[[Result], list[str]] = no_facts
    """Of the machine, for the head of the table."""
    facts: Callable[[Result], list[str]] = no_facts
    """Lines above the table."""
    text: Callable[[Result], list[str]] | None = None
    """Writes what stands below the head where it is more than one table."""

    def render(self, result: Result) -> str:
        """Write a result as Markdown: the machine, what is known of the cases, the table."""
        lines = [*describe_run(result, *self.remarks(result)), ""]
        if facts := self.facts(result):
            lines += [*facts, ""]
        lines += self.text(result) if self.text else table(self.columns, self.rows(result), self.alignment)
        return "\n".join(lines)

    def rows(self, result: Result) -> Iterator[Row]:
        """Yield the rows of the table: cases, or the sides of all cases."""
        for name, case in result["cases"].items():
            if self.has_row_per_case:
                sides = {side: Row(found) for side, found in case["sides"].items()}
                yield Row(case | sides | {"case": name})
            else:
                yield from (Row({"case": name, "side": each} | case["sides"][each]) for each in case["sides"])


def main(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down; 2 tells of wrong usage."""
    try:
        options = parse(arguments)
        benchmark = options.benchmark
        result = read(options.output) if options.is_rendered else measure_all(benchmark, options)
        publish(benchmark.render(result), options.page, options.name)
    except ValueError as error:
        print(f"benchmark.py: {error}", file=sys.stderr)
        return 2
    return 0


def measure_all(benchmark: Benchmark, options: Namespace) -> Result:
    """Measure the cases that are asked for, and keep what each gives at once."""
    waits = options.waits_for_rest and not options.smoke
    conditions = Conditions(options.threads)
    result = begin_result(conditions, waits, rounds=options.rounds, is_smoke=options.smoke)
    result |= benchmark.begin(conditions, options.smoke) | {"cases": {}}
    for name in options.cases:
        case = benchmark.cases[name]
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        case = case.shrunk() if options.smoke else case
        result["cases"][name] = benchmark.measure(case, options, conditions, result)
        keep(options.output, result)
    return result


def load(name: str) -> Benchmark:
    """Import the benchmark of a name, or read the study."""
    return import_module("study").benchmark_of(name) if name in STUDIES else import_module(name).BENCHMARK


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line: a benchmark's name, and the options that it understands."""
    first = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter, add_help=False)
    names = (*BENCHMARKS, *STUDIES)
    first.add_argument("name", choices=names, metavar=f"{{{','.join(names)}}}")
    if not arguments or arguments[0] in ("-h", "--help"):
        first.print_help()
        raise SystemExit(2 if not arguments else 0)
    name = first.parse_args(arguments[:1]).name
    benchmark = load(name)
    parser = ArgumentParser(
        f"benchmark.py {name}",
        description=import_module("study" if name in STUDIES else name).__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--cases", nargs="+", choices=benchmark.cases, default=[*benchmark.cases], metavar="CASE")
    add("--rounds", type=int, default=5, help="passes of every side that count (%(default)s)")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--output", type=Path, default=RESULTS / f"{name}.json", help="where all numbers go, as JSON")
    add("--page", type=Path, help="Markdown page that has a place for the table")
    add("--render", dest="is_rendered", action="store_true", help="measure nothing: show what --output holds")
    add("--any-load", dest="waits_for_rest", action="store_false", help="do not wait until the machine rests")
    add("--smoke", action="store_true", help="tiny shapes, at any load: only to see that it runs")
    if benchmark.sides:
        add("--sides", nargs="+", choices=benchmark.sides, default=[*benchmark.sides], metavar="SIDE")
    for flag, more in benchmark.options.items():
        action = add(flag, **more)
        action.required = action.required and "--render" not in arguments
    parser.set_defaults(name=name, benchmark=benchmark, **benchmark.defaults)
    return parser.parse_args(arguments[1:])


if __name__ == "__main__":
    sys.modules["benchmark"] = sys.modules["__main__"]  # the benchmarks import it by its name
    sys.exit(main(sys.argv[1:]))
