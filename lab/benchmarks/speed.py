"""Measure speed beside stock models and other libraries: cases, each worked on by several sides in turns.

    python lab/benchmarks/speed.py pretraining                          all cases, ten minutes on two cores
    python lab/benchmarks/speed.py generation --cases 4x256 --rounds 9
    python lab/benchmarks/speed.py fewshot --page docs/performance.md   and put the table there
    python lab/benchmarks/speed.py fewshot --render                     the table of earlier figures
    python lab/benchmarks/speed.py fewshot --smoke --any-load           tiny shapes: only to see that it runs

Each benchmark is the module of this folder that has its name; `speed.py NAME --help` shows what it measures,
and all options. `measuring.py` explains how the time is taken. Let the machine rest meanwhile.
"""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from measuring import Conditions, begin_result
from publishing import RESULTS, Result, describe_run, keep, publish, read, table

NAMES = (
    "pretraining", "generation", "data_pipeline", "finetuning", "distillation", "fewshot", "long_texts",
    "translators",
)  # fmt: skip


def no_facts(*_: Any) -> list[str]:
    """Return nothing."""
    return []


class NotMeasured:
    """A side that a case lacks, in a table whose rows are cases."""

    def __getitem__(self, _: str) -> "NotMeasured":
        return self

    def __format__(self, _: str) -> str:
        return "-"


@dataclass(frozen=True)
class Benchmark:
    """What is measured, and how it is shown."""

    cases: Mapping[str, Any]
    measure: Callable[[Any, Namespace, Conditions, Result], dict[str, Any]]
    """Gets a case, the options, the conditions and the result so far; `sides` of what it gives are rows."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Of the table: title -> what is shown of a row, which has `case`, `side` and the side's fields."""
    has_row_per_case: bool = False
    """Whether a row is a case instead, and has `case` and the fields of each side: `{tercet[seconds]}`."""
    alignment: str = "llr"
    sides: Sequence[str] = ()
    """Names that `--sides` chooses from."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the command line: flag -> arguments of `add_argument`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of options that all benchmarks have."""
    begin: Callable[[Conditions], Result] = lambda conditions: {}
    """Measures what belongs to the whole run."""
    remarks: Callable[[Result], list[str]] = no_facts
    """Of the machine, for the head of the table."""
    facts: Callable[[Result], list[str]] = no_facts
    """Lines above the table."""
    draw: Callable[[Result, Path], None] | None = None
    """Draws the result into a PNG file."""
    text: Callable[[Result], str] | None = None
    """Writes the whole result where it is more than one table."""

    def render(self, result: Result) -> str:
        """Write a result as Markdown: the machine, what is known of the cases, the table."""
        if self.text:
            return self.text(result)
        facts = self.facts(result)
        lines = [*describe_run(result, *self.remarks(result)), "", *([*facts, ""] if facts else [])]
        return "\n".join([*lines, *table(self.columns, self.rows(result), self.alignment)])

    def rows(self, result: Result) -> list[Mapping[str, Any]]:
        """Return the rows of the table: cases, or the sides of all cases."""
        cases = result["cases"].items()
        if self.has_row_per_case:
            return [defaultdict(NotMeasured, case["sides"] | {"case": name}) for name, case in cases]
        return [
            {"case": name, "side": side} | found
            for name, case in cases
            for side, found in case["sides"].items()
        ]


def main(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down; 2 tells of wrong usage."""
    options = parse(arguments)
    benchmark = options.benchmark
    try:
        result = read(options.output) if options.is_rendered else measure_all(benchmark, options)
        picture = options.picture or (options.page or options.output).with_name(f"{options.name}.png")
        if benchmark.draw:
            benchmark.draw(result, picture)
        shown = picture if benchmark.draw and not options.picture else None
        publish(benchmark.render(result), options.page, options.name, shown)
    except ValueError as error:
        print(f"speed.py: {error}", file=sys.stderr)
        return 2
    return 0


def measure_all(benchmark: Benchmark, options: Namespace) -> Result:
    """Measure the cases that are asked for, and keep what each gives at once."""
    conditions = Conditions(
        options.threads, options.heap, not options.common_scheduler_group, tuple(options.cpus or ())
    )
    result = begin_result(conditions, options.waits_for_rest, rounds=options.rounds)
    result |= benchmark.begin(conditions) | {"cases": {}}
    for name in options.cases:
        case = benchmark.cases[name]
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        case = case.shrunk() if options.smoke else case
        result["cases"][name] = benchmark.measure(case, options, conditions, result)
        keep(options.output, result)
    return result


def load(name: str) -> Benchmark:
    """Import the benchmark of a name."""
    return import_module(name).BENCHMARK


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line: a benchmark's name, and the options that it understands."""
    first = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter, add_help=False)
    first.add_argument("name", choices=NAMES, metavar=f"{{{','.join(NAMES)}}}")
    if not arguments or arguments[0] in ("-h", "--help"):
        first.print_help()
        raise SystemExit(2 if not arguments else 0)
    name = first.parse_args(arguments[:1]).name
    module = import_module(name)
    benchmark: Benchmark = module.BENCHMARK
    parser = ArgumentParser(
        f"speed.py {name}", description=module.__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    add_common(parser, RESULTS / f"{name}.json")
    parser.add_argument(
        "--cases", nargs="+", choices=benchmark.cases, default=[*benchmark.cases], metavar="CASE"
    )
    parser.add_argument("--rounds", type=int, default=5, help="passes of every side that count (%(default)s)")
    parser.set_defaults(name=name, benchmark=benchmark, smoke=False)
    if all(hasattr(case, "shrunk") for case in benchmark.cases.values()):
        parser.add_argument("--smoke", action="store_true", help="tiny shapes: only to see that it runs")
    parser.add_argument("--heap", choices=("own", "default", "retained"), default="own", help=HEAP)
    parser.add_argument("--cpus", nargs="+", type=int, help="processors that all sides are bound to")
    if benchmark.sides:
        parser.add_argument(
            "--sides", nargs="+", choices=benchmark.sides, default=[*benchmark.sides], metavar="SIDE"
        )
    for flag, more in benchmark.options.items():
        action = parser.add_argument(flag, **more)
        action.required = action.required and "--render" not in arguments
    parser.set_defaults(**benchmark.defaults)
    return parser.parse_args(arguments[1:])


def add_common(parser: ArgumentParser, output: Path | None = None) -> None:
    """Add what studies understand as well: the conditions of a measurement, and the places of its result.

    Args:
        parser: Gets the options.
        output: Where all numbers go if `--output` is left out.
    """
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, default=output, help="where all numbers go, as JSON")
    parser.add_argument("--page", type=Path, help="Markdown page that has a place for the table")
    parser.add_argument(
        "--picture", type=Path, help="where the picture goes, if there is one; beside the page if left out"
    )
    parser.add_argument(
        "--render", dest="is_rendered", action="store_true", help="measure nothing: show what --output holds"
    )
    parser.add_argument(
        "--any-load",
        dest="waits_for_rest",
        action="store_false",
        help="do not wait until the machine is at rest",
    )
    parser.add_argument(
        "--common-scheduler-group", action="store_true", help="do not raise our sessions' priority"
    )


HEAP = "keep freed memory as each side does on its own (stock does not, the others do), on none, or on all"

if __name__ == "__main__":
    sys.modules["speed"] = sys.modules["__main__"]  # the benchmarks import it by its name
    sys.exit(main(sys.argv[1:]))
