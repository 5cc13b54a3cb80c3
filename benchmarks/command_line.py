"""What all benchmarks understand on their command lines."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import torch


def benchmark_parser(description: str | None, results: Path) -> ArgumentParser:
    """Begin a parser with the conditions of a measurement and the places of its result.

    Args:
        description: Of the script: its docstring.
        results: Where all numbers go if `--output` is left out.
    """
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, default=results, help="where all numbers go, as JSON")
    parser.add_argument("--page", type=Path, help="Markdown page that has a place for the table")
    parser.add_argument(
        "--any-load", dest="waits_for_rest", action="store_false",
        help="do not wait until the machine is at rest: only to see that it runs",
    )  # fmt: skip
    parser.add_argument(
        "--common-scheduler-group", action="store_true", help="do not raise our sessions' priority"
    )
    return parser


def rounds_parser(description: str | None, results: Path) -> ArgumentParser:
    """Begin a parser for sides that take turns in rounds."""
    parser = benchmark_parser(description, results)
    parser.add_argument("--rounds", type=int, default=5, help="passes of every side that count")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes: only to see that it runs")
    return parser
