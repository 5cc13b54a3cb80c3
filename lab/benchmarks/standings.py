"""What a study has found: scores with their doubt, who is separable from whom, and tables.

A score's 95 % interval joins two doubts, as independent ones: that over rows, by bootstrap, and that over
seeds, by Student's t. With one model of one seed, the latter is not known and left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import mean, stdev
from typing import Any

from publishing import lines_of
from scipy.stats import t as student
from study_file import Judge, Part, Study, Table

Standing = Mapping[str, Any]
"""A row of a result: its fields, what its training cost, and `judgements`, those of all seeds by judge."""


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


def values_of(judgements: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the scores of all seeds."""
    return [value for each in judgements for value in each["values"]]


def by_interval(judge: Judge, own: Sequence[Mapping[str, Any]], _: Sequence[Mapping[str, Any]]) -> str:
    """Write a score and its doubt."""
    return shown(judge, estimate(own))


def shown(judge: Judge, own: Estimate) -> str:
    """Write an estimate."""
    return " ± ".join(judge.shown.format(judge.scale * value) for value in (own.score, own.half))


def by_spread(judge: Judge, own: Sequence[Mapping[str, Any]], _: Sequence[Mapping[str, Any]]) -> str:
    """Write the mean over seeds, and its deviation if there are several."""
    values = [judge.scale * value for value in values_of(own)]
    numbers = [mean(values), *([stdev(values)] if len(values) > 1 else [])]
    return " ± ".join(map(judge.shown.format, numbers))


def by_difference(judge: Judge, own: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]]) -> str:
    """Write the same, and the difference of the mean from that of the first row."""
    text = by_spread(judge, own, first)
    difference = mean(values_of(own)) - mean(values_of(first))
    return text if own is first else f"{text} ({judge.shown.replace(':', ':+').format(difference)})"


def by_best(judge: Judge, own: Sequence[Mapping[str, Any]], _: Sequence[Mapping[str, Any]]) -> str:
    """Write mean ± deviation of the task's seeds, and in brackets the best seed's interval."""
    numbers = (own[0]["mean"], own[0]["deviation"], *own[0]["interval"])
    return "{} ± {} [{}, {}]".format(*(judge.shown.format(judge.scale * number) for number in numbers))


STYLES: dict[str, Callable[..., str]] = {
    "interval": by_interval,
    "spread": by_spread,
    "difference": by_difference,
    "best": by_best,
}
"""How a judge's scores are shown, by the name that a table has."""


def text_of(study: Study, result: Mapping[str, Any]) -> list[str]:
    """Write the tables of all parts that were measured and, where a part has them, the verdicts."""
    lines: list[str] = []
    settings = {**result, **result.get("settings", {})}
    for part in study.parts:
        if rows := result["cases"].get(part.name, {}).get("rows"):
            lines += ["", note_of(part.table, settings, rows[0])] if part.table.note else []
            lines += ["", *lines_of_rows(part, rows), *verdicts(part, rows)]
    return lines[1:]


def note_of(table: Table, settings: Mapping[str, Any], first: Standing) -> str:
    """Write a table's note; a list among the settings is shown as code."""
    doubt = "; one model of each, so that its seed's part is not known."
    about = {**settings, **first, "doubt": doubt if settings.get("rounds", 1) == 1 else " and seeds."}
    for name, value in settings.items():
        if isinstance(value, list):
            about[name] = ", ".join(f"`{each}`" for each in value) or "no change"
    return table.note.format(**about)


def judges_of(part: Part, rows: Sequence[Standing]) -> dict[str, Judge]:
    """Return the judges that have judged a row."""
    return {
        name: judge for name, judge in part.judges.items() if any(name in each["judgements"] for each in rows)
    }


def lines_of_rows(part: Part, rows: Sequence[Standing]) -> list[str]:
    """Write a line for each row: its columns, and its scores by all judges."""
    judges, table, first = judges_of(part, rows), part.table, rows[0]
    head, lines = [*table.columns], [cells_of(table.columns, each, rows) for each in rows]
    for name, judge in judges.items():
        head += [judge.title, *(["unseen words"] if judge.options.get("unseen") else [])]
        for cells, each in zip(lines, rows, strict=True):
            cells += scores_of(judge, table, each["judgements"].get(name), first["judgements"].get(name))
    if table.guess != "none":
        lines.insert(0, guesses(part, rows, len(head)))
    return lines_of(head, lines, table.alignment)


def scores_of(judge: Judge, table: Table, own: Any, first: Any) -> list[str]:
    """Write what a judge says of a row; nothing if it was not judged."""
    cells = [STYLES[table.style](judge, own, first) if own else ""]
    return cells + ([f"{100 * own[0]['unseen']:.1f}" if own else ""] if judge.options.get("unseen") else [])


def cells_of(columns: Mapping[str, str], row: Standing, rows: Sequence[Standing]) -> list[str]:
    """Write the columns of a row, from its fields."""
    about = {
        **row,
        "label": label(row, rows),
        "change": "<br>".join(f"`{each}`" for each in row.get("overrides", ())),
    }
    for name in ("parameters", "tokens"):
        about[f"{name}_in_millions"] = row.get(name, 0) / 1e6
    return [shown.format(**about) for shown in columns.values()]


def guesses(part: Part, rows: Sequence[Standing], width: int) -> list[str]:
    """Write what needs no model, where that is known, or what the best baseline reaches."""
    names, cells = [], []
    for name, judge in judges_of(part, rows).items():
        own = next(each["judgements"][name][0] for each in rows if name in each["judgements"])
        guess = own.get("guess")
        if part.table.guess == "best baseline":
            best, guess = max(own["baselines"].items(), key=lambda each: each[1])
            names.append(best.replace("_", " "))
        cells.append("" if guess is None else judge.shown.format(judge.scale * guess))
    line = [names[0] if names else "a guess", *[""] * (len(part.table.columns) - 1), *cells]
    return [*line, *[""] * (width - len(line))]


def label(standing: Standing, standings: Iterable[Standing]) -> str:
    """Return a row's name, with its reading if there are several of this name."""
    is_only = sum(each["name"] == standing["name"] for each in standings) == 1
    return (
        standing["name"]
        if is_only or "reading" not in standing
        else f"{standing['name']} ({standing['reading']})"
    )


def verdicts(part: Part, rows: Sequence[Standing]) -> list[str]:
    """Write the verdicts of each group of rows that has some."""
    field, *groups = part.table.verdicts or ("",)
    return [
        text
        for group in groups
        for text in verdicts_of(group, part, [each for each in rows if each[field] == group])
    ]


def verdicts_of(group: str, part: Part, rows: Sequence[Standing]) -> list[str]:
    """Write for every judge which row of a group is best, and which are not separable from it."""
    lines, tops = [], dict[str, int]()
    if len({each["name"] for each in rows}) < 2:
        return []
    for name, judge in judges_of(part, rows).items():
        for suffix, compared in comparable(judge, rows).items():
            found = {
                label(each, rows): estimate(each["judgements"][name])
                for each in compared
                if name in each["judgements"]
            }
            if len(found) < 2:
                continue
            best, others = top_of(judge, found)
            for top in (best, *others):
                tops[top] = tops.get(top, 0) + 1
            lines.append(f"- {judge.title}{suffix}: {verdict(judge, found, best, others)}")
    if not lines:
        return []
    summary = ", ".join(f"{name} {count}" for name, count in sorted(tops.items(), key=lambda each: -each[1]))
    head = f"**{group}**, best or not separable from the best, out of {len(lines)} comparisons: {summary}."
    return ["", head, "", *lines]


def comparable(judge: Judge, rows: Sequence[Standing]) -> dict[str, list[Standing]]:
    """Return groups of rows whose scores by a judge mean the same, by what the group is called."""
    if not judge.among:
        return {"": [*rows]}
    groups: dict[str, list[Standing]] = {}
    for each in rows:
        groups.setdefault(f" ({each[judge.among]})", []).append(each)
    return groups


def top_of(judge: Judge, found: Mapping[str, Estimate]) -> tuple[str, list[str]]:
    """Find the best score, and the others whose intervals overlap with its own."""
    choose = max if judge.is_higher_better else min
    best = choose(found, key=lambda name: found[name].score)
    return best, [name for name in found if name != best and found[name].meets(found[best])]


def verdict(judge: Judge, found: Mapping[str, Estimate], best: str, others: Sequence[str]) -> str:
    """Write who is best, and who is not separable from it."""
    text = f"{best} is best ({shown(judge, found[best])})"
    if not others:
        return f"{text}, separably from all others."
    if len(others) == len(found) - 1:
        return f"{text}, but none of the others is separable from it at this size."
    return f"{text}; not separable from it at this size: {', '.join(others)}."
