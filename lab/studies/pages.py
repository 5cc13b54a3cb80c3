"""A study as a page: claim, prediction, what was measured, the verdict, a picture, and what it teaches.

One list of blocks serves the page of a single run and the terminal. The book of all studies has a page for
each subject, with the claim, the verdict, the values and the lesson of each study.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tercet.reports.blocks import Block, Figure, Heading, Note, Prose, Report, Table, Verdicts, format_score
from tercet.reports.line_charts import LinePanel, draw_lines
from tercet.reports.verdicts import Verdict

from .study import Study, studies_of
from .verdicts import interval_of, judge_value, judged

DIGITS = 3
"""Of what is shown of a value."""


def report_of(study: Study, result: Mapping[str, Any], folder: Path) -> Report:
    """Make the page of one study, and draw its picture into a folder."""
    return Report(study.title, about(study), blocks_of(study, result, figure_of(study, result, folder)))


def chapter(subject: str, results: Mapping[str, Mapping[str, Any]], folder: Path | None) -> Report:
    """Make the page of a subject's studies, measured or not; pictures go into a folder, if one is given."""
    title, _, summary = (import_module(f".{subject}", __package__).__doc__ or "").partition(": ")
    summary = " ".join(summary.split())
    blocks: list[Block] = []
    for study in studies_of(subject):
        blocks += [Heading(study.title), Prose(f"Claim: {study.claim} ({study.source})")]
        if (result := results.get(study.name)) is None:
            blocks += [Prose(f"Prediction: {study.predicted}. {study.because}"), Note("Not measured yet.")]
        else:
            stays = Figure(picture_of(study), "", study.picture)
            outcome = judged(study, result)
            said = outcome.capitalize() + (
                ", as predicted" if outcome == study.predicted else f"; predicted: {study.predicted}"
            )
            blocks += [
                Verdicts([Verdict(f"{said}.", outcome)]),
                values_of(study, result),
                figure_of(study, result, folder) if folder else stays,
                Prose(study.lesson),
            ]
        blocks.append(Prose(f"`tercet study {study.name}`"))
    return Report(f"Studies: {title.lower()}", summary[0].upper() + summary[1:], blocks)


def about(study: Study) -> str:
    """Name a study, and the items of the register that it serves."""
    return f"Study {study.name}, of {', '.join(study.items)} in the register."


def blocks_of(study: Study, result: Mapping[str, Any], figure: Figure) -> list[Block]:
    """List what is to be read of a study's run."""
    return [
        *opening(study, result["broken"]),
        Verdicts([verdict_of(study, result)]),
        table_of(study, result),
        figure,
        Prose(f"What it teaches: {study.lesson}"),
        Note(closing(study, result)),
    ]


def opening(study: Study, broken: str) -> list[Block]:
    """List what is known before a run: claim, prediction and method."""
    return [
        Prose(f"Claim: {study.claim} ({study.source})"),
        *([Prose(f"Broken on purpose by `{broken}`: {study.switches[broken]}")] if broken else []),
        Prose(f"Prediction: {study.predicted}. {study.because}"),
        Prose(f"Method: {study.about_method}"),
    ]


def verdict_of(study: Study, result: Mapping[str, Any]) -> Verdict:
    """Say in a sentence what the runs decide, and whether that was predicted."""
    outcome, wanted = judged(study, result), len(study.expected)
    kept = sum(
        judge_value(result["values"][name], bounds) == "confirmed" for name, bounds in study.expected.items()
    )
    said = f"The claim is {outcome}: {kept} of {wanted} values lie where it has them"
    if result["broken"]:
        return Verdict(f"{said}, with {result['broken']}.", outcome)
    return Verdict(f"{said}. Predicted: {study.predicted}.", outcome)


def table_of(study: Study, result: Mapping[str, Any], answers: Mapping[str, float] | None = None) -> Table:
    """Show each value: where the claim has it, its mean, its interval over seeds, and a reader's guess."""
    rows = []
    for name, values in result["values"].items():
        bounds = study.expected.get(name)
        row = [name, "" if bounds is None else str(bounds), measured(values)]
        row.append("" if bounds is None else judge_value(values, bounds))
        rows.append(row if answers is None else [*row, format_score(answers.get(name), DIGITS)])
    columns = ["value", "claimed", "measured [95 % interval]", "verdict"]
    return Table(columns if answers is None else [*columns, "you said"], rows)


def values_of(study: Study, result: Mapping[str, Any]) -> Table:
    """Show the same in the book, where the verdict is named for values that are not confirmed."""
    rows = []
    for name, bounds, found, verdict in table_of(study, result).rows:
        rows.append([name, bounds, found if verdict in ("", "confirmed") else f"{found}, {verdict}"])
    return Table(["value", "claimed", "measured"], rows)


def measured(values: Sequence[float]) -> str:
    """Write a value's mean and its interval over seeds, if they scatter."""
    mean, low, high = (format_score(end, DIGITS) for end in interval_of(values))
    return f"{mean} [{low}, {high}]" if low != high else mean


def closing(study: Study, result: Mapping[str, Any]) -> str:
    """Say how a run was made, and what breaks the claim."""
    found = result.get("verdicts_when_broken", {})
    switches = ". ".join(
        f"--break {name}: {what}{f' ({found[name]} then)' if name in found else ''}"
        for name, what in study.switches.items()
    )
    made = f"{result['seeds']} seeds; {result['processor_seconds']:g} s of one core's time"
    return f"{made}; torch {result['versions']['torch']}. {switches}."


def picture_of(study: Study) -> str:
    """Name the file of a study's picture."""
    return f"{study.name}.png"


def figure_of(study: Study, result: Mapping[str, Any], folder: Path) -> Figure:
    """Draw the picture of a run."""
    file = folder / picture_of(study)
    return Figure(file.name, draw_lines(panels_of(result["curves"]), file), study.picture)


def panels_of(curves: Sequence[Mapping[str, Any]]) -> list[LinePanel]:
    """Lay out a run's curves."""
    return [
        LinePanel(
            panel["title"],
            panel["x_label"],
            {name: [(x, mean) for x, mean, _, _ in points] for name, points in panel["lines"].items()},
            {name: [(low, high) for *_, low, high in points] for name, points in panel["lines"].items()},
        )
        for panel in curves
    ]
