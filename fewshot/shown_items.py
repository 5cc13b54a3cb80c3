"""Some items of an evaluation, for its report: what was asked, what was said, what is right."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..reporting.blocks import Block, Example, Examples, Heading, Line, Run
from .judging import way_of
from .output import ITEMS
from .recipe import FewShotRecipe

NUM_EXAMPLES = 6


def some_items(recipe: FewShotRecipe) -> Iterator[Block]:
    """Show the first items of the first model with the fewest demonstrations, as they were asked."""
    log, way = recipe.folder / ITEMS, way_of(recipe.task)
    if not log.exists():
        return
    with log.open(encoding="utf-8") as lines:
        first = [json.loads(line) for line, _ in zip(lines, range(NUM_EXAMPLES), strict=False)]
    yield Heading("Some items")
    yield Examples([Example([Line("asked", [Run(end_of(record))]), *said(record, way)]) for record in first])


def end_of(record: Mapping[str, Any]) -> str:
    """Give the end of a prompt."""
    prompt = (
        record["prompt"] if isinstance(record["prompt"], str) else record["prompt"][record.get("right", 0)]
    )
    return prompt if len(prompt) < 400 else f"... {prompt[-400:]}"


def said(record: Mapping[str, Any], way: str) -> Iterator[Line]:
    """Say what the model answered, and which answer it has chosen by the comparison that counts."""
    if "written" in record:
        is_right = bool(record["exact_match"])
        yield Line("written", [Run(record["written"].strip() or "nothing", "right" if is_right else "wrong")])
        yield Line("right", [Run(record["references"][0].strip(), "truth")])
        return
    chosen = None if record.get("is_tied") else record.get("choices", {}).get(way)
    values = record.get("values", {}).get(way)
    for number, answer in enumerate(record.get("answers", [])):
        is_right = number == record.get("right", 0)
        role = "truth" if is_right and number != chosen else "right" if is_right else "wrong"
        run = Run(answer["text"].strip(), role if is_right or number == chosen else "plain")
        value = sum(answer["log_likelihoods"]) if values is None else values[number]
        yield Line(f"{value:.2f}", [run])
