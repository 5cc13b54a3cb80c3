"""Tables that the site has and the pages in docs/ do not: a page names the program that has measured one.

<!-- table: certificates -->    lab/benchmarks/certificates.py renders its file of lab/benchmarks/results/
"""

import re
import sys
from importlib import import_module

from .module_pages import ROOT

MARK = re.compile(r"^<!-- table: (\w+) -->$", re.MULTILINE)


def with_tables(page: str) -> str:
    """Put each table of a page in the place of the line that names it."""
    return MARK.sub(lambda mark: table(mark[1]), page)


def table(program: str) -> str:
    """Render the results that a program of lab/benchmarks/ has kept."""
    folder = str(ROOT / "lab/benchmarks")
    sys.path.insert(0, folder)  # the programs import each other by their names
    try:
        module = import_module(program)
    finally:
        sys.path.remove(folder)
    return module.render(module.read_results())
