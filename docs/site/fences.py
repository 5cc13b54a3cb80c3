"""The fences of a page, and whether a program printed what a page shows."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

SHRINKING = 25
"""How many times fewer steps the tests take than the pages."""


@dataclass
class Fence:
    """A fenced part of a page: its language, and the text inside."""

    language: str
    text: str


def fences(page: Path) -> list[Fence]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Fence(language, text) for language, text in found]


def shrunk(text: str) -> str:
    """Take fewer steps, in a recipe or on a command line."""
    counts = re.compile(r"(?<!\w)((?:steps|evaluate_every|log_every|warmup_steps)(?:=|: ))(\d+)")
    return counts.sub(lambda match: f"{match[1]}{ceil(int(match[2]) / SHRINKING)}", text)


def missing_lines(shown: str, printed: str) -> Iterator[str]:
    """Yield the lines that a page shows and a program did not print.

    Numbers may differ, and `...` stands for anything, as a line or inside a line.
    """
    real = [comparable(line) for line in re.split(r"[\n\r]", printed)]
    for line in map(comparable, shown.splitlines()):
        pattern = re.compile(re.escape(line).replace(re.escape("..."), ".*"))
        if line and not any(pattern.fullmatch(other) for other in real):
            yield line


def comparable(line: str) -> str:
    """Leave out of a line what may differ from run to run: numbers, labels and the widths of columns."""
    line = re.sub(r"\d[\d.,:e+-]*(?<=\d)", "#", line.replace("...", "\0")).replace("\0", "...")
    line = re.sub(r'"(class|function)"', '"label"', line)
    return " ".join(line.split())
