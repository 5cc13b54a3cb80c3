"""The report: what the student keeps and what it saves, beside the published DistilBERT and its own controls.

Written as Markdown and as a page of HTML, from the same blocks as the other reports.
"""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...configs.recipe import load_recipe
from ...data.files.atomic_writes import replace_text
from ...data.identities import keep_texts
from ...distill.output import COMPARISON, GENERAL, RANDOM, STUDENT, TASK, TEACHER, WITHOUT_TEACHER
from ...distill.recipe import DistillationRecipe
from ...distill.steps import Prepared, prepare
from ...finetune.typed_rows import example_texts
from ...modeling.saved.model_folder import load_config
from ...modeling.stock.architectures import options_of_export
from ...pretraining.text import identify
from ...training.run_folder import CURVES, EVALUATION, MODEL, RECIPE, SCORES, TEXTS
from ...training.tracking import LOG, read_log
from ..blocks import (
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
from ..charts import draw_comparison
from ..curves import draw_log
from ..finetune.report import write_report as report_of_fine_tuning
from ..finetune.summary import called
from ..finished_run import FinishedRun, find_run
from ..next_steps import NextStep, after_learning_a_task, after_pretraining, next_steps
from ..next_steps import as_data as steps_as_data
from ..page import save
from ..scores import METRICS, metric_words, what_is_scored
from ..scores import as_data as scores_as_data
from ..verdicts import FEWEST_ROWS, missing_interval
from .summary import for_card, kept_of, score_name, scores_of, summarize, told

NAMES = {
    TEACHER: "teacher",
    STUDENT: "student",
    WITHOUT_TEACHER: "the same without a teacher",
    RANDOM: "the same from random weights",
}
"""Who is compared -> what the report calls them."""


PUBLISHED = {
    "kept": 77.0 / 79.5,
    "parameters": 66 / 110,
    "time": 410 / 668,
}
"""DistilBERT over BERT-base (Sanh et al., 2019): mean of GLUE (table 1), parameters in millions, and seconds
for STS-B's development set with batches of one on a CPU (table 3)."""


def write_report(run: FinishedRun) -> None:
    """Compare the students of a finished run with their teachers, and write that and the report.

    The steps on rows get reports of their own.
    """
    folder = run.folder
    recipe = load_recipe(DistillationRecipe, str(folder / RECIPE))
    with warnings.catch_warnings(action="ignore"):  # the run has told
        prepared = prepare(recipe)
    if prepared.general is not None:
        texts = identify(prepared.general.text.texts)
        keep_texts(folder / STUDENT / GENERAL / TEXTS, texts, goes_on=True, may_change=False)
    for student in prepared.students:
        place = folder / student.name
        if prepared.general is not None:
            draw_log(read_log(place / GENERAL / LOG), place / GENERAL / CURVES)
        if prepared.task is not None:
            report_of_fine_tuning(find_run(place / TASK))
    measured = json.loads((folder / EVALUATION).read_text(encoding="utf-8"))
    summary = summarize(prepared, folder, measured)
    summary["next_steps"] = steps_as_data(what_comes_next(recipe, prepared))
    summary |= {"scores": scores_as_data(scores_of(summary)), "told": [*told(summary)]}
    last = GENERAL if prepared.task is None else TASK
    facts = measured | json.loads((folder / STUDENT / last / EVALUATION).read_text(encoding="utf-8"))
    facts["scores"] |= for_card(summary)
    replace_text(folder / SCORES, json.dumps(summary, indent=2) + "\n")
    replace_text(folder / EVALUATION, json.dumps(facts, indent=2) + "\n")
    save(build_report(recipe, summary, folder), folder)


def what_comes_next(recipe: DistillationRecipe, prepared: Prepared) -> Iterator[NextStep]:
    """Yield what may be done with the student."""
    model = recipe.folder / MODEL
    export = options_of_export(load_config(model))
    if prepared.task is None:
        return after_pretraining(str(model), can_classify=False, export=export)
    task = prepared.task.task.recipe
    return after_learning_a_task(str(model), example_texts(task), task.input_columns, export)


def build_report(recipe: DistillationRecipe, summary: Mapping[str, Any], folder: Path) -> Report:
    """Build the report of the run in a folder, which the chart goes into."""
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
            figure(folder, summary),
            *scores_of_steps(summary),
            Heading("Size and speed"),
            size_table(summary),
            Prose(about_speed(summary)),
            *next_steps(summary),
        ],
    )


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
    return [shown_share(kept["share"]), shown_interval(kept["interval"])]


def shown_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def shown_interval(interval: Sequence[float] | None) -> str:
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
    return f"{format_score(told['mean'][metric])} ± {format_score(told['standard_deviation'][metric], 2)}"


def metrics_of(told: Mapping[str, Any]) -> list[str]:
    """Name the scores of a task that a reader knows."""
    return [name for name in told["scores"][STUDENT]["mean"] if name in metric_words(told["kind"])]


def times_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the student's time over the teacher's for one row, and for a row of 32."""
    own, theirs = summary["speeds"][STUDENT], summary["speeds"][TEACHER]
    return {
        "one alone": own["latency"] / theirs["latency"],
        "32 at once": theirs["throughput"] / own["throughput"],
    }


def size_table(summary: Mapping[str, Any]) -> Table:
    """Put sizes and times side by side, and both ways of saying what is saved."""
    sizes = summary["sizes"]
    labels = {"parameters": "parameters", "inner_parameters": "parameters in layers", "disk": "bytes on disk"}
    rows = [
        [
            label,
            *(f"{sizes[name][key]:,}" for name in (TEACHER, STUDENT)),
            f"{1 - share_of(sizes, key):.0%} fewer",
            "",
        ]
        for key, label in labels.items()
    ]
    if "speeds" in summary:
        rows += speed_rows(summary["speeds"])
    rows += [
        [
            "DistilBERT, published: million parameters",
            "110",
            "66",
            f"{1 - PUBLISHED['parameters']:.0%} fewer",
            "",
        ],
        ["DistilBERT, published: seconds", "668", "410", *saved_time(PUBLISHED["time"])],
    ]
    return Table(["", "teacher", "student", "saved", "in other words"], rows)


def speed_rows(speeds: Mapping[str, Mapping[str, float]]) -> Iterator[list[str]]:
    """Write latency, throughput and memory."""
    own, theirs = speeds[STUDENT], speeds[TEACHER]
    pairs = {
        "seconds for one alone": (theirs["latency"], own["latency"]),
        "seconds for one, 32 at once": (1 / theirs["throughput"], 1 / own["throughput"]),
    }
    for label, (before, after) in pairs.items():
        yield [label, f"{before:.4g}", f"{after:.4g}", *saved_time(after / before)]
    before, after = theirs["memory"], own["memory"]
    share = after / before if before > 0 else float("nan")
    yield ["memory, MiB", f"{before:,.0f}", f"{after:,.0f}", saved(share), ""]


def saved_time(share: float) -> list[str]:
    """Write in both ways how much faster something is that takes a share of the time."""
    return [f"{saved(share)} time", f"{1 / share:.2f}x as fast"]


def saved(share: float) -> str:
    """Return how much less, or more, something is of which a share is left.

    >>> saved(0.61), saved(1.1)
    ('39% less', '10% more')
    """
    return f"{1 - share:.0%} less" if share <= 1 else f"{share - 1:.0%} more"


def about_speed(summary: Mapping[str, Any]) -> str:
    """Describe how it was measured, and why both ways of saying it are given."""
    measured = (
        "Times are medians, teacher and student in turns, in float32. "
        if "speeds" in summary
        else "Times were not measured (report.speed is false). "
    )
    return measured + (
        "Less time and faster are the same fact: DistilBERT's 39 % less time is 1.63 times the speed, "
        "published as 60 % faster."
    )


def share_of(sizes: Mapping[str, Mapping[str, int]], key: str) -> float:
    """Return what is left of the teacher's size."""
    return sizes[STUDENT][key] / sizes[TEACHER][key]


def less(own: float, teachers: float) -> str:
    return f"{1 - own / teachers:.0%}"
