"""The pretrained members are asked about a task that they were never taught: zero-, one- and few-shot."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..configs.recipe import load_recipe
from ..fewshot.output import PAGE, RESULTS
from ..fewshot.recipe import FewShotRecipe
from ..fewshot.run import fewshot
from ..reporting.blocks import Block, Heading, Prose, Table
from .teaching import ROWS

ASKED = "asked"
"""Folder of the evaluation."""


@dataclass(frozen=True)
class Asked:
    """What the members have answered."""

    results: Mapping[str, Any]
    """As prompting keeps them."""
    seconds: float

    @property
    def of_members(self) -> dict[str, Mapping[str, Any]]:
        """Give the results of each member, by the number of demonstrations."""
        return {model["member"]: model["shots"] for model in self.results["models"]}

    @property
    def in_one_line(self) -> str:
        """Say how the scores compare."""
        return "; ".join(
            f"{member}: " + ", ".join(f"K = {count} {own['mean']:.3f}" for count, own in shots.items())
            for member, shots in self.of_members.items()
        )


def load_prompting(overrides: Iterable[str] = ()) -> FewShotRecipe:
    """Read the shipped recipe."""
    return load_recipe(FewShotRecipe, "packages-asked-demo", overrides)


def ask(recipe: FewShotRecipe, models: Iterable[Path], folder: Path) -> Asked:
    """Ask models about the demonstration's rows.

    Args:
        recipe: How; rows and output are replaced by those of the demonstration.
        models: Folders of the pretrained members.
        folder: Of the demonstration.
    """
    began = time.perf_counter()
    recipe = replace(
        recipe,
        data=replace(recipe.data, folder=str(folder / ROWS)),
        models=tuple(map(str, models)),
        output=str(folder / ASKED),
    )
    results = json.loads((fewshot(recipe) / RESULTS).read_text(encoding="utf-8"))
    return Asked(results, time.perf_counter() - began)


def asking_chapter(asked: Asked) -> Iterator[Block]:
    """Tell what came of it, whatever it was."""
    baselines = asked.results["baselines"]
    yield Heading("Asked without training")
    yield Prose(
        "The same question, put to the pretrained members before they learned any task: which package is "
        f"this line about? All choose among the same names, {asked.results['items']} times; K true answers "
        "stand before the question (Brown et al., 2020). The decoder says how probable each name is behind "
        "it, the sequence-to-sequence model as a target, the encoder by hiding the name's tokens; how "
        "probable a name is without the line is divided out. In brackets the 95 % interval."
    )
    members = list(asked.of_members.values())
    counts = sorted({count for shots in members for count in shots}, key=int)
    rows = [
        [f"K = {count}", *(cell(shots[count]) if count in shots else "" for shots in members)]
        for count in counts
    ]
    rows += [[name, *(f"{100 * value:.1f}" for _ in asked.of_members)] for name, value in baselines.items()]
    yield Table(["accuracy in %", *asked.of_members], rows)
    verdicts = [verdict(member, shots) for member, shots in asked.of_members.items()]
    yield Prose(
        f"{' '.join(verdicts)} Models of this size that have read so little are not expected to learn from "
        f"a prompt; the same command asks larger ones. More in [its report]({ASKED}/{PAGE})."
    )


def cell(own: Mapping[str, Any]) -> str:
    """Write a score with its doubt."""
    low, high = own["interval"]
    return f"{100 * own['mean']:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def verdict(member: str, shots: Mapping[str, Any]) -> str:
    """Say whether demonstrations help a member, as far as the intervals tell."""
    none, *_, most = shots.values()
    count = list(shots)[-1]
    if most["interval"][0] > none["interval"][1]:
        return f"The {member} is better with {count} demonstrations than with none."
    if most["interval"][1] < none["interval"][0]:
        return f"The {member} is worse with {count} demonstrations than with none."
    return f"{count} demonstrations have no effect on the {member} that could be told from chance."
