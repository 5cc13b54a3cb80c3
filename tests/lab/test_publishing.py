"""Every table of a page is made again from its JSON, byte for byte."""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from docs.site.tables import MARK, with_tables
from lab import publishing
from lab.benchmarks.__main__ import NAMES, load
from lab.benchmarks.benchmark import parse
from lab.comparisons import comparison
from lab.comparisons.comparison import benchmark_of
from lab.compatibility import versions

ROOT = Path(__file__).parents[2]
RESULTS = publishing.RESULTS
MARKED = re.compile(
    r"<!-- lab/results/(\S+)\.json: begin -->\n(.*?)\n"
    r"<!-- lab/results/\1\.json: end -->",
    re.S,
)
TABLES = {
    name: shown
    for page in sorted((ROOT / "docs").glob("*.md"))
    for name, shown in MARKED.findall(page.read_text(encoding="utf-8"))
}
NAMED = sorted(
    name for page in (ROOT / "docs").glob("*.md") for name in MARK.findall(page.read_text(encoding="utf-8"))
)
"""Tables that the site alone has."""
COMMANDS = sorted(
    {
        (program, command.replace("\\\n", " "))
        for page in sorted((ROOT / "docs").glob("*.md"))
        for program, command in re.findall(
            r"python -m lab\.(benchmarks|comparisons) ((?:\\\n|[^`\n])*)", page.read_text(encoding="utf-8")
        )
    }
)


def rendered(name: str) -> str:
    """Render a committed result as the program does that has measured it."""
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    if name == "versions":
        return versions.render(result)
    return (benchmark_of if name in comparison.NAMES else load)(name).render(result)


@pytest.mark.parametrize("name", TABLES)
def test_a_page_shows_what_was_measured(name):
    assert rendered(name) == TABLES[name]


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_every_command_of_a_page_is_understood(program, command):
    arguments = shlex.split(command, comments=True)
    if program == "benchmarks":
        assert parse(arguments, NAMES, load)
    else:
        options = parse(arguments, comparison.NAMES, benchmark_of)
        assert comparison.load_comparison(options.name, options.settings)["parts"]


@pytest.mark.parametrize("name", NAMED)
def test_the_site_has_the_tables_that_pages_name(name):
    filled = with_tables(f"before\n\n<!-- table: {name} -->\n\nafter\n")
    program = import_module(f"lab.compatibility.{name}")
    assert filled == f"before\n\n{program.render(program.read_results())}\n\nafter\n"
    assert "\n|---|" in filled


def test_every_result_is_shown_on_a_page_and_every_comparison_has_one():
    kept = {path.stem for path in RESULTS.glob("*.json") if not path.stem.startswith("ecosystem")}
    assert kept == {*TABLES, *NAMED} - {"ecosystem"}
    assert {*comparison.NAMES} <= kept


def test_only_what_stands_between_the_marks_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    begin, end = publishing.marks_of("pretraining")
    page.write_text(f"a\n{begin}\nold\n{end}\nz\n")
    for text in ("new", "newer"):
        publishing.write_between_marks(page, text, "pretraining")
        assert page.read_text() == f"a\n{begin}\n{text}\n{end}\nz\n"


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no place for the table"):
        publishing.write_between_marks(page, "new", "pretraining")
    assert page.read_text() == "nothing"


def test_columns_are_format_strings_of_a_rows_fields():
    rows = [{"name": "a", "speed": 1234.5}, {"name": "b", "speed": 2.0}]
    columns = {"side": "{name}", "tokens/s": "{speed:,.0f}", "tokens/s ": "{speed:.1f}"}
    assert publishing.table(columns, rows) == [
        "| side | tokens/s | tokens/s |",
        "|---|--:|--:|",
        "| a | 1,234 | 1234.5 |",
        "| b | 2 | 2.0 |",
    ]


def test_speeds_are_related_to_the_fastest_peer():
    seconds = {"stock": [4.0, 2.0, 5.0], "tuned": [2.0] * 3, "compiled": [4.0], "tercet": [1.0] * 3}
    sides = {name: {"seconds": times} for name, times in seconds.items()}
    publishing.summarize(sides, 100, "speed", {"stock": ["stock"], "best": ["tuned", "compiled", "none"]})
    assert [sides["stock"][name] for name in ("speed", "slowest", "fastest")] == [25, 20, 50]
    assert [sides["tercet"][f"ratio_to_{peer}"] for peer in ("stock", "best")] == [4, 2]


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_busy_machine_is_named_where_times_count(is_timed):
    result = json.loads((RESULTS / "bake_off.json").read_text(encoding="utf-8"))
    lines = publishing.describe_run(result | {"is_timed": is_timed, "is_noisy": True})
    assert any("The machine was busy" in line for line in lines) == is_timed
