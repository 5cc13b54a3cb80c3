"""Try what the libraries around can do with our models, and write down what works.

    python -m lab.compatibility.ecosystem     90 seconds on one core

`make docs` shows the table in docs/ecosystem.md. Each test of tests/ecosystem that bears the mark `ecosystem`
is a cell of the table, or a part of one. Each version of transformers has a file of results: run this with
another one installed, and the table shows both.
"""

import sys
from collections import defaultdict
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..publishing import RESULTS, keep, lines_of, read

ROOT = Path(__file__).parents[2]
NAME = "ecosystem-transformers-{}"

MEMBERS = ("encoder", "decoder", "hybrid", "seq2seq", "translator", "character model", "ELMo", "tagger")
"""The columns: of each library's table, those of the members that were tried with it."""
YES, NO = "yes", "**no**"


class Cells:
    """What came of the tests of each cell, by library, what was tried, and member. A plugin of pytest."""

    def __init__(self) -> None:
        self.cell_of: dict[str, tuple[str, str, str]] = {}
        self.outcomes: dict[tuple[str, str, str], list[str]] = defaultdict(list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find the cell of each test."""
        for item in items:
            mark = item.get_closest_marker("ecosystem")
            if mark is not None:
                library, what = mark.args
                self.cell_of[item.nodeid] = (library, what, member_of(item, mark))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended: in its call, or where that was never reached."""
        cell = self.cell_of.get(report.nodeid)
        if cell is None or (report.when != "call" and report.passed):
            return
        if report.skipped and isinstance(report.longrepr, tuple):
            self.outcomes[cell].append(report.longrepr[2].removeprefix("Skipped: "))
        else:
            self.outcomes[cell].append(YES if report.passed else NO)

    def verdicts(self) -> list[dict[str, str]]:
        """Return of each cell whether it works, or why that was not tried."""
        rows = []
        for (library, what, member), outcomes in self.outcomes.items():
            reasons = [outcome for outcome in outcomes if outcome != YES]
            verdict = NO if NO in reasons else reasons[0] if reasons else YES
            rows.append({"library": library, "what": what, "member": member, "verdict": verdict})
        return rows


def member_of(item: Any, mark: pytest.Mark) -> str:
    """Return the member that a test is about: that of its mark, or of its parameters."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return mark.kwargs.get("member") or parameters.get("member") or parameters["kind"]


def main() -> int:
    """Run the tests, and keep what came of them."""
    cells = Cells()
    status = pytest.main(["-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "ecosystem")], plugins=[cells])
    verdicts = cells.verdicts()
    installed = {canonicalize_name(each.name) for each in distributions()}
    libraries = dict.fromkeys(["tercet", "torch", *(row["library"] for row in verdicts)])
    versions = {name: version(name) for name in libraries if canonicalize_name(name) in installed}
    keep(RESULTS / f"{NAME.format(version('transformers'))}.json", {"versions": versions, "cells": verdicts})
    return int(status)


def read_results() -> list[dict[str, Any]]:
    """Read the results of all versions of transformers, the newest first."""
    results = [read(path) for path in RESULTS.glob(f"{NAME.format('*')}.json")]
    return sorted(results, key=lambda result: Version(result["versions"]["transformers"]), reverse=True)


def render(results: list[dict[str, Any]]) -> str:
    """Write one table for each library; a cell tells versions of transformers apart where they differ."""
    rows: dict[str, dict[str, dict[str, dict[str, str]]]] = defaultdict(lambda: defaultdict(dict))
    for result in results:
        for cell in result["cells"]:
            verdicts = rows[cell["library"]][cell["what"]].setdefault(cell["member"], {})
            verdicts[result["versions"]["transformers"]] = cell["verdict"]
    runs = (", ".join(f"{name} {number}" for name, number in each["versions"].items()) for each in results)
    parts = ["Tried with " + ", and with ".join(runs) + "."]
    for library, tried in rows.items():
        members = [each for each in MEMBERS if any(each in found for found in tried.values())]
        lines = ([what, *(text_of(found.get(each, {})) for each in members)] for what, found in tried.items())
        parts += ["", f"### {library}", "", *lines_of(["what", *members], lines, "l")]
    return "\n".join(parts)


def text_of(verdicts: dict[str, str]) -> str:
    """Write once what holds for all versions, and else what holds for which."""
    if len(set(verdicts.values())) <= 1:
        return next(iter(verdicts.values()), "")
    return "; ".join(f"{verdict} ({number})" for number, verdict in verdicts.items())


if __name__ == "__main__":
    sys.exit(main())
