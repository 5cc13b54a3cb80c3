"""Zero-, one- and few-shot prompting of the pretrained members, on a task that they never learned."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..configs.recipe import load_recipe
from ..fewshot.output import RESULTS
from ..fewshot.recipe import FewShotRecipe
from ..fewshot.run import fewshot
from ..reporting.blocks import Block, Heading, Prose, Table
from ..training.run_folder import PAGE
from .finetuning import ROWS

PROMPTING = "prompting"
"""Folder of the evaluation."""


@dataclass(frozen=True)
class PromptingResult:
    """What the members have answered, and how long it took."""

    results: Mapping[str, Any]
    """Contents of `results.json`."""
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
    return load_recipe(FewShotRecipe, "packages-prompting-demo", overrides)


def prompt_members(recipe: FewShotRecipe, models: Iterable[Path], folder: Path) -> PromptingResult:
    """Prompt models on the demonstration's rows.

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
        output=str(folder / PROMPTING),
    )
    results = json.loads((fewshot(recipe) / RESULTS).read_text(encoding="utf-8"))
    return PromptingResult(results, time.perf_counter() - began)


def prompting_chapter(prompting: PromptingResult) -> Iterator[Block]:
    """Report the scores, whatever they are."""
    baselines = prompting.results["baselines"]
    yield Heading("Prompting, without training")
    yield Prose(
        "Before any fine-tuning, the members choose the package that a line documents: "
        f"{prompting.results['items']} lines, the same candidate names for all, with K labelled examples in "
        "the prompt (Brown et al., 2020). The decoder scores each name as a continuation, the "
        "sequence-to-sequence model as a target, the encoder by its pseudo-log-likelihood; the score of a "
        "name without the line is subtracted. In brackets the 95 % interval."
    )
    members = list(prompting.of_members.values())
    counts = sorted({count for shots in members for count in shots}, key=int)
    rows = [
        [f"K = {count}", *(cell(shots[count]) if count in shots else "" for shots in members)]
        for count in counts
    ]
    rows += [[name, *(f"{100 * value:.1f}" for _ in members)] for name, value in baselines.items()]
    yield Table(["accuracy in %", *prompting.of_members], rows)
    verdicts = [verdict(member, shots) for member, shots in prompting.of_members.items()]
    yield Prose(
        f"{' '.join(verdicts)} Models of this size that have read so little are not expected to learn from "
        f"a prompt; the same command evaluates larger ones. More in [its report]({PROMPTING}/{PAGE})."
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
    return f"{count} demonstrations have no significant effect on the {member}."
