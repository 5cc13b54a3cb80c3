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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from measuring import Conditions, begin_result, in_fresh_process, measure
from publishing import RESULTS, Result, describe_run, keep, read, summarize, table, write_between_marks
from sides import Side

BENCHMARKS = ("pretraining", "generation", "data_pipeline", "finetuning", "distillation", "fewshot", "gpu")
STUDIES = tuple(sorted(path.stem for path in (Path(__file__).parent / "studies").glob("*.yaml")))

Measure = Callable[[Any, Namespace, Conditions, Result], Result]
"""Gets a case, the options, the conditions and the result so far; `sides` of what it gives are rows."""


def nothing(*_: Any) -> Any:
    return []


@dataclass(frozen=True)
class Benchmark:
    """What is measured, and how it is shown."""

    cases: Mapping[str, Any]
    measure: Measure
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
    settle: Callable[[Namespace], Conditions] = lambda options: Conditions(options.threads)
    """Readies the program, and returns the conditions of its processes."""
    begin: Callable[[Conditions, bool], Result] = lambda conditions, is_smoke: {}
    """Measures what belongs to the whole run; a smoke may leave it out."""
    at_once: int = 1
    """Cases that are measured at the same time."""
    keeps_others: bool = False
    """Whether cases that are not asked for keep their earlier figures."""
    remarks: Callable[[Result], list[str]] = nothing
    """Of the machine, for the head of the table."""
    facts: Callable[[Result], list[str]] = nothing
    """Lines above the table."""
    text: Callable[[Result], list[str]] | None = None
    """Writes what stands below the head where it is more than one table."""

    def render(self, result: Result) -> str:
        """Write a result as Markdown: the machine, what is known of the cases, the table."""
        lines = [*describe_run(result, *self.remarks(result)), ""]
        if facts := self.facts(result):
            lines += [*facts, ""]
        lines += self.text(result) if self.text else table(self.columns, self.rows(result), self.alignment)
        return "\n".join(lines).rstrip()

    def rows(self, result: Result) -> Iterator[Result]:
        """Yield the rows of the table: cases, or the sides of all cases."""
        for name, case in result["cases"].items():
            if self.has_row_per_case:
                yield case | case["sides"] | {"case": name}
            else:
                yield from ({"case": name, "side": each} | case["sides"][each] for each in case["sides"])


def side_by_side(
    sides: Mapping[str, Side],
    compare: Callable[[Any], Result],
    amount: Callable[[Any], float],
    peers: Mapping[str, Sequence[str]],
    speed: str = "tokens_per_second",
    describe: Callable[[str, Result, Result, Result], Result] = lambda *_: {},
) -> Measure:
    """Make what measures sides of a case in turns.

    Args:
        sides: Their names -> what they do, in the order of a round.
        compare: Shows that the sides of a case do the same, in a process of its own: the case's `parity`.
        amount: What a pass does: tokens, choices.
        peers: Name of a ratio -> the sides to whose fastest one speeds are related.
        speed: What the amount in a second is called.
        describe: Gets a side's name, its figures, the case's and those of the run; what else a side has.
    """

    def measure_case(case: Any, options: Namespace, conditions: Conditions, result: Result) -> Result:
        parity = in_fresh_process(conditions, compare, case)
        found = measure(case, {name: sides[name] for name in options.sides}, conditions, options.rounds)
        summarize(found, amount(case), speed, peers)
        told = {"case": asdict(case), "parity": parity, "sides": found}
        for name, side in found.items():
            side |= describe(name, side, told, result)
        return told

    return measure_case


def main(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down; 2 tells of wrong usage."""
    try:
        options = parse(arguments)
        result = read(options.output) if options.is_rendered else measure_all(options.benchmark, options)
        text = options.benchmark.render(result)
        print(text)
        if options.page:
            write_between_marks(options.page, text, options.name)
    except ValueError as error:
        print(f"benchmark.py: {error}", file=sys.stderr)
        return 2
    return 0


def measure_all(benchmark: Benchmark, options: Namespace) -> Result:
    """Measure the cases that are asked for, and keep what each gives at once."""
    conditions = benchmark.settle(options)
    result = begin_result(conditions, options.waits_for_rest, rounds=options.rounds, is_smoke=options.smoke)
    result |= benchmark.begin(conditions, options.smoke) | {"cases": {}}
    found = read(options.output)["cases"] if benchmark.keeps_others and options.output.exists() else {}
    writing = Lock()

    def measure_one(name: str) -> None:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        case = benchmark.cases[name].shrunk() if options.smoke else benchmark.cases[name]
        found[name] = benchmark.measure(case, options, conditions, result)
        with writing:
            result["cases"] = {each: found[each] for each in benchmark.cases if each in found}
            keep(options.output, result)

    with ThreadPoolExecutor(benchmark.at_once) as threads:
        several = threads.map if benchmark.at_once > 1 and not options.smoke else map
        list(several(measure_one, options.cases))
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
    add("--rounds", type=int, help="passes of every side that count")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--output", type=Path, help="where all numbers go, as JSON")
    add("--page", type=Path, help="Markdown page that has a place for the table")
    add("--render", dest="is_rendered", action="store_true", help="measure nothing: show what --output holds")
    add("--any-load", dest="waits_for_rest", action="store_false", help="do not wait until the machine rests")
    add("--smoke", action="store_true", help="tiny shapes, one round: only to see that it runs")
    if benchmark.sides:
        add("--sides", nargs="+", choices=benchmark.sides, default=[*benchmark.sides], metavar="SIDE")
    for flag, more in benchmark.options.items():
        action = add(flag, **more)
        action.required = action.required and "--render" not in arguments
    defaults: dict[str, Any] = {"rounds": 5, "output": RESULTS / f"{name}.json", **benchmark.defaults}
    if "--smoke" in arguments:
        defaults |= {"rounds": 1, "output": Path("runs") / f"{name}.json", "waits_for_rest": False}
    parser.set_defaults(name=name, benchmark=benchmark, **defaults)
    return parser.parse_args(arguments[1:])


if __name__ == "__main__":
    sys.modules["benchmark"] = sys.modules["__main__"]  # the benchmarks import it by its name
    sys.exit(main(sys.argv[1:]))
