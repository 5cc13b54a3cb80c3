"""The reference of the Python modules: a page for each folder, filled from the docstrings."""

import ast
from configparser import ConfigParser
from pathlib import Path

from tercet.commands import FUNCTIONS

ROOT = Path(__file__).parents[2]

OTHERS = ("tercet.calls.load_recipe", "tercet.results")
"""What the package itself offers its users besides the commands."""


def module_pages() -> dict[str, str]:
    """Write a page for each folder of the package, and one that lists them, by their path in the site."""
    pages = {f"reference/api/{folder}.md": folder_page(folder) for folder in folders()}
    commands = [
        f"::: {function.__module__}.{name}\n    options:\n      heading: tercet.{name}\n"
        for name, function in FUNCTIONS.items()
    ]
    pages["reference/api/tercet.md"] = "\n".join(
        ["# tercet", "", *commands, *(f"::: {name}\n" for name in OTHERS)]
    )
    lines = [
        "# Python API",
        "",
        "[The commands as functions](api/tercet.md), explained in [Python](../python.md).",
    ]
    lines += ["", "The folders of the package, from the models up:", ""]
    for folder in folders():
        about = first_line(path_of(folder) / "__init__.py")
        lines += [f"- [`tercet.{folder}`](api/{folder}.md): {about}"]
    return pages | {"reference/api.md": "\n".join([*lines, ""])}


def folders() -> list[str]:
    """Name the folders of the package, without the shell around them."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    packages = parser["options"]["packages"].split()
    return [package.partition(".")[2] for package in packages if "." in package]


def folder_page(folder: str) -> str:
    """Write the page of a folder: its modules, one after another."""
    path = path_of(folder)
    lines = [f"# tercet.{folder}", "", first_line(path / "__init__.py"), ""]
    for file in sorted(path.glob("[!_]*.py")):
        lines += [f"::: tercet.{folder}.{file.stem}", ""]
    return "\n".join(lines)


def path_of(folder: str) -> Path:
    return ROOT / folder.replace(".", "/")


def first_line(file: Path) -> str:
    """Return the first paragraph of a module's docstring, in one line."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())
