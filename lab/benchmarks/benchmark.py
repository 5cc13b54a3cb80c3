"""The harness: what a benchmark is, how its cases are measured, shown and kept, and its command line."""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from ..publishing import RESULTS, Result, describe_run, keep, read, summarize, table, write_between_marks
from .measuring import Conditions, begin_result, in_fresh_process, measure, wait_for_rest
from .sides import Side

Measure = Callable[[Any, Namespace, Conditions, Result], Result]
"""Gets a case, the options, the conditions and the result so far; `sides` of what it gives are rows."""


def nothing(*_: Any) -> Any:
    return []


@dataclass(frozen=True)
class Benchmark:
    """What is measured, and how it is shown."""

    about: str | None
    """What its `--help` says: the docstring of its module."""
    cases: Mapping[str, Any]
    measure: Measure
    columns: Mapping[str, str] = field(default_factory=dict)
    """Of the table: title -> what is shown of a row, which has `case`, `side` and the side's fields."""
    has_row_per_case: bool = False
    """Whether a row is a case instead, and has `case`, its fields and each side: `{tercet[seconds]}`."""
    alignment: str = "lr"
    is_timed: bool = True
    """Whether its figures count only where the machine had nothing else to do."""
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
        found = measure(case, sides, conditions, options.rounds)
        summarize(found, amount(case), speed, peers)
        told = {"case": asdict(case), "parity": parity, "sides": found}
        for name, side in found.items():
            side |= describe(name, side, told, result)
        return told

    return measure_case


Load = Callable[[str], Benchmark]


def main(arguments: Sequence[str], names: Sequence[str], load: Load, about: str | None = None) -> int:
    """Measure what the arguments ask for, print it, and write it down; 2 tells of wrong usage.

    Args:
        arguments: Of the command line.
        names: Of the program's benchmarks.
        load: Gives the benchmark of a name.
        about: What the program does.
    """
    options = parse(arguments, names, load, about)
    try:
        result = read(options.output) if options.is_rendered else measure_all(options.benchmark, options)
        text = options.benchmark.render(result)
        print(text)
        if options.page:
            write_between_marks(options.page, text, options.name)
    except ValueError as error:
        print(f"{options.name}: {error}", file=sys.stderr)
        return 2
    return 0


def parse(arguments: Sequence[str], names: Sequence[str], load: Load, about: str | None = None) -> Namespace:
    """Read the command line: a benchmark's name, and the options that it understands."""
    first = ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)
    first.add_argument("name", choices=names)
    name = first.parse_args(arguments[:1]).name
    benchmark = load(name)
    parser = ArgumentParser(
        f"{first.prog} {name}", description=benchmark.about, formatter_class=RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--cases", nargs="+", choices=benchmark.cases, default=[*benchmark.cases], metavar="CASE")
    add("--rounds", type=int, help="passes of every side that count")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--output", type=Path, help="where all numbers go, as JSON")
    add(
        "--page",
        type=Path,
        help="page that has a place for the table; the machine has to rest",
    )
    add("--render", dest="is_rendered", action="store_true", help="measure nothing: show what --output holds")
    add("--smoke", action="store_true", help="tiny shapes, one round: only to see that it runs")
    for flag, more in benchmark.options.items():
        add(flag, **more)
    defaults: dict[str, Any] = {"rounds": 5, "output": RESULTS / f"{name}.json", **benchmark.defaults}
    if "--smoke" in arguments:
        defaults |= {"rounds": 1, "output": Path("runs") / f"{name}.json"}
    parser.set_defaults(name=name, benchmark=benchmark, **defaults)
    return parser.parse_args(arguments[1:])


def measure_all(benchmark: Benchmark, options: Namespace) -> Result:
    """Measure the cases that are asked for, and keep what each gives at once."""
    conditions = benchmark.settle(options)
    if options.page and benchmark.is_timed and not options.smoke:
        wait_for_rest()
    result = begin_result(conditions, benchmark.is_timed, rounds=options.rounds, is_smoke=options.smoke)
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
