"""Results as JSON, as Markdown tables, and in their places on pages.

A page keeps a table between two marks that name its file in `results/`; a test makes all of them again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tercet.data.files.atomic_writes import replace_text

RESULTS = Path(__file__).parent / "results"

NOISY = "**The machine was busy when this began: measure again at rest.**"
SMOKE = "**Tiny shapes, only to see that everything runs: the figures mean nothing.**"

Result = dict[str, Any]


def keep(path: Path, result: Result) -> None:
    """Write all numbers down, after every case: what comes later may fail."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(result, indent=1) + "\n")


def read(path: Path) -> Result:
    """Read what `keep` has written."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: measure something first")
    return json.loads(path.read_text(encoding="utf-8"))


def marks_of(name: str) -> tuple[str, str]:
    """Return the lines of a page between which the table of `results/NAME.json` stands."""
    begin, end = (f"<!-- lab/results/{name}.json: {which} -->" for which in ("begin", "end"))
    return begin, end


def write_between_marks(page: Path, text: str, name: str) -> None:
    """Replace what stands between a result's two marks on a page."""
    first, last = marks_of(name)
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not end:
        raise ValueError(f"{page} has no place for the table: add the lines {first} and {last}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def spread(side: str, speed: str) -> str:
    """Return what a cell shows of a side in a row of all sides: its median speed and its range."""
    return f"{{{side}[{speed}]:,.0f}} ({{{side}[slowest]:,.0f}} to {{{side}[fastest]:,.0f}})"


def table(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]], alignment: str = "lr") -> list[str]:
    """Write rows as a Markdown table.

    Args:
        columns: Title -> what a cell shows, a format string of the fields; blanks tell equal titles apart.
        rows: Their fields. What needs a side or a figure that a row lacks is a dash.
        alignment: `l` or `r` for each column; the last letter holds for all that follow.
    """

    def cell(shown: str, row: Mapping[str, Any]) -> str:
        try:
            return shown.format_map(row)
        except KeyError:
            return "-"

    cells = ([cell(shown, row) for shown in columns.values()] for row in rows)
    return lines_of([title.strip() for title in columns], cells, alignment)


def lines_of(head: Sequence[str], rows: Iterable[Sequence[str]], alignment: str = "lr") -> list[str]:
    """Write cells as a Markdown table; `alignment` as in `table`."""
    rules = [{"l": "---", "r": "--:"}[each] for each in alignment.ljust(len(head), alignment[-1])]
    return [
        f"| {' | '.join(head)} |",
        f"|{'|'.join(rules)}|",
        *(f"| {' | '.join(cells)} |" for cells in rows),
    ]


def describe_run(result: Mapping[str, Any], *more: str) -> list[str]:
    """Describe when, where and with what was measured, and what `more` there is to know of the machine.

    A busy machine is of no account where no times are told (`is_timed` is false). A result without conditions
    names versions alone.
    """
    versions = ", ".join(f"{name} {number}" for name, number in result["machine"]["versions"].items())
    if "conditions" not in result:
        return [f"With {versions}."]
    machine, conditions = result["machine"], result["conditions"]
    remarks = [f"load average {machine['load_average']:.2f} at the start", *more]
    lines = [
        f"{result['date']}: {machine['gpu'] or machine['processor']} ({machine['instructions']}), "
        f"threads: {conditions['threads']}; Python {machine['python']}, {versions}.",
        f"Rounds: {result['rounds']}; {'; '.join(remarks)}.",
    ]
    lines += ["", NOISY] * (result["is_noisy"] and result.get("is_timed", True))
    return lines + ["", SMOKE] * result.get("is_smoke", False)


def summarize(
    sides: Mapping[str, dict[str, Any]], amount: float, speed: str, peers: Mapping[str, Sequence[str]]
) -> None:
    """Add to each side's `seconds` its speed, the slowest and the fastest one, and its ratios to other sides.

    Args:
        sides: What `measure` returned.
        amount: What is done in a pass: tokens, choices.
        speed: What the speed is called.
        peers: Name of a ratio -> the sides to whose fastest one the speed is related, if there is any.
    """
    for side in sides.values():
        speeds = [amount / seconds for seconds in side["seconds"]]
        side |= {speed: median(speeds), "slowest": min(speeds), "fastest": max(speeds)}
    for side in sides.values():
        for name, names in peers.items():
            if present := [sides[peer][speed] for peer in names if peer in sides]:
                side[f"ratio_to_{name}"] = side[speed] / max(present)
