"""What a report shows of prompts: some of them, and what was dropped, left out and cut of those too long."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..reporting.blocks import Block, Example, Examples, Heading, Line, Prose, Run
from .output import ITEMS
from .recipe import FewShotRecipe
from .task import Task

NUM_EXAMPLES = 6

COLUMNS = (
    "Dropped are demonstrations that did not fit, cut are items whose own context did not, in all draws."
)

CUT = (
    "Of a context that is too long, the beginning is cut off behind what opens a text, once for all answers, "
    "by what the longest of them needs: all answers follow the same text. lm-evaluation-harness cuts for "
    "each answer by itself, and what opens a text as well. Where something is cut, log-likelihoods differ "
    "from its own for that reason, by up to 0.06 where that was measured."
)


def truncation(results: Mapping[str, Any], names: list[str]) -> Iterator[Block]:
    """Say what fitted, if not everything did.

    Args:
        results: Of the evaluation.
        names: What the report calls each model.
    """
    yield Prose(COLUMNS)
    told = [
        sentence
        for name, model in zip(names, results["models"], strict=True)
        for count, own in model["fitted"].items()
        for sentence in fitted(name, count, own)
    ]
    if told:
        yield Prose(
            " ".join(told)
            + " A row without a demonstration counts for no K above 0, so that such scores are "
            "of fewer rows."
        )
    if any(own["cut"] for model in results["models"] for own in model["shots"].values()):
        yield Prose(CUT)


def fitted(name: str, count: str, own: Mapping[str, Any]) -> Iterator[str]:
    """Say how many demonstrations the prompts of one K held, if some did not fit."""
    about = f"{name}, K = {count}:"
    if own["without"] == own["prompts"]:
        yield f"{about} not one demonstration fitted into any prompt, so that there is no such score."
    elif own["without"]:
        yield (
            f"{about} {own['without']:,} of {own['prompts']:,} prompts had room for no demonstration and are "
            f"left out; the others held {own['mean']:.2g} on average."
        )
    elif own["mean"] < int(count):
        yield f"{about} {own['mean']:.2g} demonstrations fitted on average, and at least one."


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
