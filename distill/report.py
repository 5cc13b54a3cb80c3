"""The report: what the student keeps and what it saves, beside the published DistilBERT and its own controls.

Written as Markdown and as a page of HTML, from the same blocks as the other reports.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..finetune.summary import called
from ..reporting.blocks import (
    Bar,
    Block,
    Card,
    Cards,
    Figure,
    Heading,
    Prose,
    Report,
    Table,
    bars_of,
    first_block,
    format_score,
    name_of_model,
)
from ..reporting.charts import draw_comparison
from ..reporting.next_steps import next_steps
from ..reporting.verdicts import FEWEST_ROWS, missing_interval
from ..storage.scores import METRICS, what_is_scored
from .output import COMPARISON, GENERAL, RANDOM, STUDENT, TASK, TEACHER, WITHOUT_TEACHER
from .recipe import DistillationRecipe
from .size_and_speed import PUBLISHED, about_speed, less, saved_time, share_of, size_table, times_of

NAMES = {
    TEACHER: "teacher",
    STUDENT: "student",
    WITHOUT_TEACHER: "the same without a teacher",
    RANDOM: "the same from random weights",
}
"""Who is compared -> what the report calls them."""


def build_report(recipe: DistillationRecipe, summary: Mapping[str, Any]) -> Report:
    """Build the report; the chart goes into the run's folder."""
    kept = kept_of(summary)
    step = recipe.task if recipe.task is not None else recipe.general
    assert step is not None
    sizes = summary["sizes"]
    return Report(
        f"Distillation: {shown_share(kept[STUDENT]['share'])} kept with "
        f"{less(sizes[STUDENT]['parameters'], sizes[TEACHER]['parameters'])} fewer parameters",
        f"A student of {name_of_model(step.teacher)}, compared with it on the same held-out rows or texts.",
        [
            *first_block(summary["verdicts"]),
            Cards([*cards(summary)]),
            Prose(explanation(summary)),
            kept_table(summary),
            figure(recipe.folder, summary),
            *scores_of_steps(summary),
            Heading("Size and speed"),
            size_table(summary),
            Prose(about_speed(summary)),
            *next_steps(summary),
        ],
    )


def kept_of(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each model's deciding score and the share of the teacher's: of the last step.

    On raw text, that is BLEU where there are translations, and accuracy elsewhere.
    """
    if TASK in summary:
        return summary[TASK]["scores"]
    scores = summary[GENERAL]["scores"]
    return {name: scores[name].get("bleu", scores[name]["accuracy"]) for name in scores}


def cards(summary: Mapping[str, Any]) -> Iterator[Card]:
    """Show at a glance what is kept, what is saved and what it gains."""
    kept, sizes = kept_of(summary), summary["sizes"]
    shares = {NAMES[name]: each["share"] for name, each in kept.items() if name != TEACHER}
    shares["DistilBERT, published"] = PUBLISHED["kept"]
    intervals = {NAMES[name]: each.get("interval") for name, each in kept.items()}
    yield Card(
        "Kept of the teacher's score",
        shown_share(kept[STUDENT]["share"]),
        about_share(kept[STUDENT], **summary[TASK if TASK in summary else GENERAL]["drawn"]),
        bars_of(shares, NAMES[STUDENT], intervals, shown_share),
    )
    remaining = {
        "parameters": share_of(sizes, "parameters"),
        "in layers": share_of(sizes, "inner_parameters"),
        "on disk": share_of(sizes, "disk"),
        "DistilBERT, published": PUBLISHED["parameters"],
    }
    yield Card(
        "Fewer parameters",
        f"{1 - remaining['parameters']:.0%}",
        f"{sizes[STUDENT]['parameters']:,} instead of {sizes[TEACHER]['parameters']:,}.",
        [
            Bar(name, min(share, 1.0), f"{share:.0%} left", name == "parameters")
            for name, share in remaining.items()
        ],
    )
    if "speeds" in summary:
        times = times_of(summary) | {"DistilBERT, published": PUBLISHED["time"]}
        first = times["32 at once"]
        yield Card(
            "Less time",
            f"{1 - first:.0%}",
            f"{1 / first:.2f}x as fast, 32 at once.",
            [
                Bar(
                    name,
                    min(share, 1.0),
                    saved_time(share)[0].removesuffix(" time"),
                    name == "32 at once",
                )
                for name, share in times.items()
            ],
        )


def explanation(summary: Mapping[str, Any]) -> str:
    """Describe what the numbers mean."""
    controls = [name for name in summary["students"] if name != STUDENT]
    told = (
        "The share is the ratio of the student's score to the teacher's on the same rows. Its interval is a "
        "bootstrap over rows (Efron and Tibshirani, 1993), and does not cover other seeds."
    )
    if WITHOUT_TEACHER in controls:
        told += (
            " Without a teacher, the same student starts from the same weights and is trained for as many "
            "steps on labels and text alone."
        )
    if RANDOM in controls:
        told += " From random weights, it is distilled for as many steps from the same teacher."
    return told


def kept_table(summary: Mapping[str, Any]) -> Table:
    """Put all students beside the teacher and the published one."""
    kept = kept_of(summary)
    rows = [
        [
            NAMES[name],
            f"{kept[name]['score']:.4g}",
            *(kept_cells(kept[name]) if "share" in kept[name] else ["", ""]),
        ]
        for name in (TEACHER, *summary["students"])
    ]
    rows.append(["DistilBERT over BERT-base, published (GLUE)", "77.0", f"{PUBLISHED['kept']:.1%}", ""])
    return Table([score_name(summary), "score", "kept", "95 % interval"], rows, strong=1)


def kept_cells(kept: Mapping[str, Any]) -> list[str]:
    """Write a share and its interval."""
    return [shown_share(kept["share"]), shown_interval(kept["interval"])]


def shown_share(share: float | None) -> str:
    """Write a share, or a dash if there is none."""
    return "-" if share is None else f"{share:.1%}"


def shown_interval(interval: Sequence[float] | None) -> str:
    """Write an interval, or a dash if there is none."""
    return "-" if interval is None else "{:.1%} to {:.1%}".format(*interval)


def about_share(kept: Mapping[str, Any], number: int, unit: str) -> str:
    """Describe how sure a share is, or why there is none, by how many rows or other units were drawn."""
    if kept["share"] is None:
        return "No share: the teacher's score is not above 0, or one of the scores is not defined."
    if kept["interval"] is None and number < FEWEST_ROWS:
        return f"No interval: {missing_interval(number, unit)}."
    if kept["interval"] is None:
        return "No interval: on some bootstrap samples, the teacher's score is not above 0."
    return f"95 % interval {shown_interval(kept['interval'])}."


def score_name(summary: Mapping[str, Any]) -> str:
    """Describe which score decides."""
    if TASK in summary:
        told = summary[TASK]
        return f"{called(told['criterion'], told)} on {told['rows'][told['split']]:,} {told['split']} rows"
    told = summary[GENERAL]
    if "bleu" in told["scores"][STUDENT]:
        return f"{METRICS['bleu']} of greedy translations"
    return f"accuracy of {what_is_scored(told['term'])}"


def figure(folder: Path, summary: Mapping[str, Any]) -> Figure:
    """Draw the deciding scores, and where the student's may lie beside the teacher's."""
    kept = kept_of(summary)
    title = score_name(summary)
    teacher = kept[TEACHER]["score"]
    intervals = {
        NAMES[name]: tuple(teacher * end for end in each["interval"])
        for name, each in kept.items()
        if each.get("interval") and is_better_high(summary)
    }
    scores = {NAMES[name]: kept[name]["score"] for name in summary["students"]}
    drawing = draw_comparison(scores, teacher, intervals, title, folder / COMPARISON)
    return Figure(COMPARISON, drawing, title)


def is_better_high(summary: Mapping[str, Any]) -> bool:
    """Return whether more of the deciding score is better, so that a share is of the score itself."""
    return TASK not in summary or summary[TASK]["is_higher_better"]


def scores_of_steps(summary: Mapping[str, Any]) -> Iterator[Block]:
    """Show what each step has come to."""
    if GENERAL in summary:
        yield Heading("On raw text")
        told = summary[GENERAL]["scores"]
        metrics = [metric for metric in ("accuracy", "perplexity", "bleu") if metric in told[STUDENT]]
        rows = [
            [NAMES[name], *(f"{told[name][metric]['score']:.4g}" for metric in metrics)]
            for name in (TEACHER, *summary["students"])
        ]
        columns = [what_is_scored(summary[GENERAL]["term"]), *(METRICS[metric] for metric in metrics)]
        yield Table(columns, rows, strong=1)
        if "cache" in summary[GENERAL]:
            yield Prose(about_cache(summary[GENERAL]["cache"]["missing"]))
    if TASK in summary:
        told, names = summary[TASK], metrics_of(summary[TASK])
        yield Heading("On the task")
        rows = [
            [NAMES[name], *(mean_and_deviation(told["scores"][name], metric) for metric in names)]
            for name in summary["students"]
        ]
        yield Table(
            ["mean of the seeds ± deviation", *(called(name, told) for name in names)], rows, strong=0
        )


def about_cache(missing: Mapping[str, float]) -> str:
    """Describe what a cached teacher lacks of the live one."""
    told = " and ".join(f"{share:.3%} at temperature {at}" for at, share in missing.items())
    return (
        "The teacher's outputs were cached. The tokens that were not stored have this share of its "
        "probability: "
        f"{told or 'none that a loss uses'}, on average over all targets."
    )


def mean_and_deviation(told: Mapping[str, Any], metric: str) -> str:
    """Write a score's mean over the seeds, and its deviation."""
    return f"{format_score(told['mean'][metric])} ± {format_score(told['standard_deviation'][metric], 2)}"


def metrics_of(told: Mapping[str, Any]) -> list[str]:
    """Name the scores of a task that a reader knows."""
    return [name for name in told["scores"][STUDENT]["mean"] if name in METRICS]
