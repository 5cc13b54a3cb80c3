"""Tables that the site has and the pages in docs/ do not: a page names the program that has measured one.

<!-- table: certificates -->    lab/compatibility/certificates.py renders its file of lab/results/
"""

import re
from importlib import import_module

MARK = re.compile(r"^<!-- table: (\w+) -->$", re.MULTILINE)


def with_tables(page: str) -> str:
    """Put each table of a page in the place of the line that names it."""
    return MARK.sub(lambda mark: table(mark[1]), page)


def table(program: str) -> str:
    """Render the results that a program of lab/compatibility/ has kept."""
    module = import_module(f"lab.compatibility.{program}")
    return module.render(module.read_results())
