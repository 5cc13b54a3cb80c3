"""What the bake-off has found: scores with their doubt, who is separable from whom, a table and a picture.

A score's 95 % interval joins two doubts, as independent ones: that over rows, by bootstrap, and that over
seeds, by Student's t. With one model of one seed, the latter is not known and left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib
from bake_off_judges import JUDGES, Judge
from matplotlib.figure import Figure
from publishing import describe_run
from scipy.stats import t as student

MEMBERS = ("encoder", "decoder", "seq2seq")

TRIAL = "**A trial: a few steps of tiny models, judged by a few rows. The scores mean nothing.**"

COLORS = dict(zip(MEMBERS, ("C0", "C1", "C2"), strict=True))


@dataclass(frozen=True)
class Estimate:
    """A score and half of its interval's width."""

    score: float
    half: float

    def meets(self, other: "Estimate") -> bool:
        """Return whether the intervals overlap, so that the two are not separable."""
        return abs(self.score - other.score) <= self.half + other.half


def estimate(judgements: Sequence[Mapping[str, Any]]) -> Estimate:
    """Join the judgements of the seeds of pretraining.

    Several of them are the samples over which scores spread. Of a single one, the seeds of its own task are.
    """
    of_models = [mean(each["values"]) for each in judgements]
    samples = of_models if len(judgements) > 1 else judgements[0]["values"]
    of_rows = mean((high - low) / 2 for low, high in (each["interval"] for each in judgements))
    of_seeds = 0.0
    if (num := len(samples)) > 1:
        of_seeds = float(student.ppf(0.975, num - 1)) * stdev(samples) / sqrt(num)
    return Estimate(mean(of_models), hypot(of_rows, of_seeds))


def estimates_of(standings: Sequence[Mapping[str, Any]], judge: str) -> dict[str, Estimate]:
    """Return the scores by one judge, by the labels of what has one."""
    return {
        label(each, standings): estimate(each["judgements"][judge])
        for each in standings
        if judge in each["judgements"]
    }


def label(standing: Mapping[str, Any], standings: Sequence[Mapping[str, Any]]) -> str:
    """Name an objective, with the reading if it has several."""
    is_only = sum(each["name"] == standing["name"] for each in standings) == 1
    return standing["name"] if is_only else f"{standing['name']} ({standing['reading']})"


def render(result: Mapping[str, Any]) -> str:
    """Write the table and, for every member, the verdicts."""
    standings = result["standings"]
    judges = [
        judge for name, judge in JUDGES.items() if any(name in each["judgements"] for each in standings)
    ]
    head = ["objective", "member", "parameters, millions", "tokens, millions"]
    head += ["minutes"] * result["is_timed"]
    heads = head + [judge.title for judge in judges]
    rows = [row_of(each, standings, judges, is_timed=result["is_timed"]) for each in standings]
    about = (
        f"Every objective has the same {result['same']}; models per objective: {result['rounds']}. "
        "± is half of the 95 % interval over rows"
        + (
            " and seeds."
            if result["rounds"] > 1
            else "; one model of each, so that its seed's part is not known."
        )
    )
    return "\n".join(
        [
            *describe_run(result),
            "",
            *([TRIAL, ""] if result["is_trial"] else []),
            about,
            "",
            line(heads),
            f"|---|---|{'--:|' * (len(heads) - 2)}",
            *map(line, [guesses(standings, judges, len(head)), *rows]),
            *(text for member in MEMBERS for text in verdicts(member, standings, judges)),
        ]
    )


def line(cells: Sequence[str]) -> str:
    """Write a row of a table."""
    return f"| {' | '.join(cells)} |"


def row_of(
    standing: Mapping[str, Any],
    standings: Sequence[Mapping[str, Any]],
    judges: Sequence[Judge],
    *,
    is_timed: bool,
) -> list[str]:
    """Write what is known of one reading of an objective."""
    return [
        label(standing, standings),
        standing["member"],
        f"{standing['parameters'] / 1e6:.1f}",
        f"{standing['tokens'] / 1e6:.1f}",
        *([f"{mean(standing['seconds']) / 60:.1f}"] if is_timed else []),
        *(
            shown(judge, estimate(standing["judgements"][judge.name]))
            if judge.name in standing["judgements"]
            else ""
            for judge in judges
        ),
    ]


def shown(judge: Judge, own: Estimate) -> str:
    """Write a score and its doubt."""
    return " ± ".join(judge.shown.format(judge.scale * value) for value in (own.score, own.half))


def guesses(standings: Sequence[Mapping[str, Any]], judges: Sequence[Judge], width: int) -> list[str]:
    """Write what needs no model, where that is known."""
    cells = []
    for judge in judges:
        own = next(
            each["judgements"][judge.name][0] for each in standings if judge.name in each["judgements"]
        )
        cells.append("" if own["guess"] is None else judge.shown.format(judge.scale * own["guess"]))
    return ["a guess", *[""] * (width - 1), *cells]


def verdicts(member: str, standings: Sequence[Mapping[str, Any]], judges: Sequence[Judge]) -> list[str]:
    """Say of every judge which objective of a member is best, and which are not separable from it."""
    own = [each for each in standings if each["member"] == member]
    if len({each["name"] for each in own}) < 2:
        return []
    lines, tops = [], dict[str, int]()
    for judge in judges:
        for suffix, group in comparable(judge, own).items():
            found = {name: each for name, each in estimates_of(own, judge.name).items() if name in group}
            if len(found) < 2:
                continue
            best, others = top_of(judge, found)
            for name in (best, *others):
                tops[name] = tops.get(name, 0) + 1
            lines.append(f"- {judge.title}{suffix}: {said(judge, found, best, others)}")
    if not lines:
        return []
    ranked = sorted(tops.items(), key=lambda each: -each[1])
    summary = ", ".join(f"{name} {count}" for name, count in ranked)
    return [
        "",
        f"**{member}**, best or not separable from the best, out of {len(lines)} comparisons: {summary}.",
        "",
        *lines,
    ]


def comparable(judge: Judge, standings: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return groups of labels whose scores by a judge mean the same, by what the group is called."""
    if not judge.is_of_one_reading:
        return {"": [label(each, standings) for each in standings]}
    groups: dict[str, list[str]] = {}
    for each in standings:
        group = " (masked)" if each["reading"] == "masked" else " (next tokens)"
        groups.setdefault(group, []).append(label(each, standings))
    return groups


def top_of(judge: Judge, found: Mapping[str, Estimate]) -> tuple[str, list[str]]:
    """Name the best score, and the others whose intervals overlap with its own."""
    choose = max if judge.is_higher_better else min
    best = choose(found, key=lambda name: found[name].score)
    return best, [name for name in found if name != best and found[name].meets(found[best])]


def said(judge: Judge, found: Mapping[str, Estimate], best: str, others: Sequence[str]) -> str:
    """Say who is best, and who is not separable from it."""
    text = f"{best} is best ({shown(judge, found[best])})"
    if not others:
        return f"{text}, separably from all others."
    if len(others) == len(found) - 1:
        return f"{text}, but none of the others is separable from it at this size."
    return f"{text}; not separable from it at this size: {', '.join(others)}."


def draw(result: Mapping[str, Any], file: Path) -> None:
    """Draw the scores with their intervals, one panel for each judge, in the order of the table."""
    standings = result["standings"]
    names = [label(each, standings) for each in standings]
    judges = [
        judge for name, judge in JUDGES.items() if any(name in each["judgements"] for each in standings)
    ]
    columns = min(len(judges), 4)
    rows = -(-len(judges) // columns)
    with matplotlib.rc_context({"font.size": 9, "svg.hashsalt": "tercet"}):
        figure = Figure(
            figsize=(2.2 + 2.6 * columns, 1.2 + rows * (0.5 + 0.22 * len(names))), layout="constrained"
        )
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for panel, judge in zip(panels.flat, judges, strict=False):
            for place, standing in enumerate(standings):
                if judge.name in standing["judgements"]:
                    own = estimate(standing["judgements"][judge.name])
                    panel.errorbar(
                        judge.scale * own.score, place, xerr=judge.scale * own.half,
                        fmt="o", markersize=4, color=COLORS[standing["member"]],
                    )  # fmt: skip
            panel.set_title(judge.title.replace(", ", ",\n"), fontsize=9)
            panel.grid(axis="x", alpha=0.3)
        for panel in panels.flat[len(judges) :]:
            panel.set_axis_off()
        panels[0, 0].set_yticks(range(len(names)), names)
        panels[0, 0].invert_yaxis()
        for member, color in COLORS.items():
            if any(each["member"] == member for each in standings):
                panels[0, 0].plot([], [], "o", color=color, label=member)
        figure.legend(loc="outside lower center", ncols=len(MEMBERS))
        figure.savefig(file, dpi=150)
