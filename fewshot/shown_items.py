"""Some items of an evaluation, for its report: the prompt, the prediction, the reference."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..reporting.blocks import Block, Example, Examples, Heading, Line, Run
from .output import ITEMS
from .recipe import FewShotRecipe
from .task import Task

NUM_EXAMPLES = 6


def some_items(recipe: FewShotRecipe, task: Task) -> Iterator[Block]:
    """Show the first items of the first model with the fewest demonstrations, with their prompts."""
    log = recipe.folder / ITEMS
    if not log.exists():
        return
    with log.open(encoding="utf-8") as lines:
        first = [json.loads(line) for line, _ in zip(lines, range(NUM_EXAMPLES), strict=False)]
    yield Heading("Some items")
    yield Examples([Example([Line("prompt", [Run(end_of(record))]), *task.show(record)]) for record in first])


def end_of(record: Mapping[str, Any]) -> str:
    """Give the end of a prompt."""
    prompt = (
        record["prompt"] if isinstance(record["prompt"], str) else record["prompt"][record.get("right", 0)]
    )
    return prompt if len(prompt) < 400 else f"... {prompt[-400:]}"
