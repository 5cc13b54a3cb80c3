"""How a race ended: who reached the target when, as a Markdown table and as curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from tercet.reporting.curves import FIRST, INK, LOOK, QUIET, SECOND, THIRD

HEAD = """\
| race | side | parameters | steps | tokens | total time | final loss | time to target | speed-up |
|---|---|--:|--:|--:|--:|--:|--:|--:|"""


def time_to(target: float, curve: Sequence[dict[str, float]]) -> float | None:
    """Give the seconds until the first judgement that is as good as the target; `None` if there is none."""
    return next((point["seconds"] for point in curve if point["loss"] <= target), None)


def render(result: dict[str, Any]) -> str:
    """Write the races' result as Markdown: the machine, the trials of the rates, the table."""
    machine, conditions = result["machine"], result["conditions"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        f"{result['date']}: {machine['processor']} ({machine['instructions']}), threads: "
        f"{conditions['threads']}; Python {machine['python']}, {versions}; load average "
        f"{machine['load_average']:.2f} at the start.",
    ]
    if result["is_noisy"]:
        lines += ["", "**The machine was busy when this began: measure again at rest.**"]
    lines += ["", *(_pilots(name, race) for name, race in result["contests"].items())]
    lines += ["", HEAD]
    lines += [row for name, race in result["contests"].items() for row in _rows(name, race)]
    return "\n".join(lines)


def draw(result: dict[str, Any], file: Path) -> None:
    """Draw every race's curves into a PNG file, time on a logarithmic axis."""
    with rc_context(LOOK):
        figure = Figure(figsize=(10, 3.8), layout="constrained")
        races = result["contests"].items()
        for axes, (name, race) in zip(figure.subplots(1, len(races), squeeze=False)[0], races, strict=True):
            axes.set_title(f"{name}: held-out loss over minutes", loc="left", fontsize=10.5, color=INK)
            axes.axhline(race["target"], color=SECOND, linewidth=1.2, linestyle=(0, (4, 3)))
            for (side, run), colour in zip(race["sides"].items(), (THIRD, FIRST), strict=True):
                minutes = [point["seconds"] / 60 for point in run["curve"]]
                losses = [point["loss"] for point in run["curve"]]
                axes.plot(minutes, losses, color=colour, linewidth=2, label=side)
                if run["seconds"] is not None:
                    axes.plot(run["seconds"] / 60, race["target"], "o", color=colour)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(axis="y")
            axes.legend(frameon=False, labelcolor=QUIET, fontsize=9)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=160, facecolor="white")


def _pilots(name: str, race: dict[str, Any]) -> str:
    """Tell the target, and what the stock side's rates had led to when it chose."""
    trials = ", ".join(f"{rate}: {last['loss']:.3f}" for rate, last in race["pilots"].items())
    minutes = f"{race['pilot_minutes']:g} minute{'s' if race['pilot_minutes'] != 1 else ''}"
    chosen = f"; the stock side's rates after {minutes}: {trials}" if trials else ""
    return f"- {name}: the target is {race['target']:.3f} nats{chosen}."


def _rows(name: str, race: dict[str, Any]) -> list[str]:
    slowest = next(iter(race["sides"].values()))["seconds"]
    rows = []
    for side, run in race["sides"].items():
        last = run["curve"][-1]
        reached = run["seconds"]
        cells = [
            name,
            side,
            f"{run['parameters']:,}",
            f"{last['step']:,}",
            f"{last['tokens']:,}",
            f"{last['seconds'] / 60:.1f} min",
            f"{last['loss']:.3f}",
            "not reached" if reached is None else f"{reached / 60:.1f} min",
            "" if reached is None else f"{slowest / reached:.1f}x",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows
