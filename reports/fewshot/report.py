"""The report of a finished evaluation: scores with their doubt, against K and beside what needs no model.

Written as Markdown and as a page of HTML, from the same blocks as the reports of pretraining.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...configs.messages import counted
from ...configs.recipe import load_recipe, recipe_data, written
from ...data.files.atomic_writes import replace_text
from ...fewshot.output import ITEMS, RELIABILITY, SHOTS
from ...fewshot.recipe import FewShotRecipe
from ...fewshot.tasks.comparison import Comparison
from ...fewshot.tasks.task import Task
from ...training.run_folder import RECIPE, SCORES
from ..blocks import (
    Block,
    Card,
    Cards,
    Example,
    Examples,
    Figure,
    Heading,
    Line,
    Prose,
    Report,
    Run,
    Table,
    bars_of,
    first_block,
    name_of_model,
)
from ..charts import Band, draw_reliability, draw_shots
from ..finished_run import FinishedRun
from ..page import save
from ..scores import as_data as scores_as_data
from ..verdicts import (
    FEWEST_ROWS,
    Verdict,
    about_few_rows,
    as_data,
    difference_in_words,
    judge,
    missing_interval,
    outcome_of_difference,
)
from ..verdicts import shown as score_in_words
from .summary import about_models, scores_of, summarize, told

Results = Mapping[str, Any]

NAMES = {
    "accuracy": "accuracy",
    "exact_match": "exact match",
    "squad_exact_match": "exact match as in SQuAD",
    "f1": "F1 as in SQuAD",
    "bleu": "BLEU",
    "bits_per_byte": "bits per byte",
    "perplexity": "perplexity of the answer",
    "perplexity_per_word": "perplexity per word",
    "perplexity_per_token": "perplexity per token",
    "nats_per_token": "nats per token",
    "calibration_error": "calibration error",
} | {
    "accuracy_none": "accuracy, not normalized",
    **{f"accuracy_{name}": f"accuracy, by {name}" for name in ("token", "char", "pmi")},
    "accuracy_calibrated": "accuracy, calibrated",
}
"""Name of a score -> how it is shown."""

MOST_GROUPS = 100
"""Groups that a table still has room for."""


def write_report(run: FinishedRun) -> None:
    """Compute the scores of a finished evaluation, and write them and its report into its folder."""
    recipe = load_recipe(FewShotRecipe, str(run.folder / RECIPE))
    task = recipe.task.build()
    results = {"recipe": recipe_data(recipe), **summarize(run.folder, task)}
    results |= {"scores": scores_as_data(scores_of(results)), "told": [*told(results)]}
    results["verdicts"] = as_data(verdicts(results, is_higher_better=task.is_higher_better))
    replace_text(run.folder / SCORES, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    save(build_report(task, results, run.folder), run.folder)


def build_report(task: Task, results: Results, folder: Path) -> Report:
    """Build the report of the run in a folder, which the charts go into."""
    _, best = best_of(results["models"], is_higher_better=task.is_higher_better)
    name = Path(results["recipe"]["output"]).name
    return Report(
        f"{task.title}: {NAMES[task.metric]} {best['mean']:.3g}",
        f"{name}: {counted(results['items'], 'item')}, without training; number of "
        f"demonstrations: {', '.join(map(str, all_shots(results)))}.",
        [
            *first_block(results["verdicts"]),
            Cards(
                [
                    glance(model, results, is_higher_better=task.is_higher_better)
                    for model in results["models"]
                ]
            ),
            Prose(doubts(results)),
            *shots(results, folder),
            *other_scores(results),
            *calibration(results, folder),
            *groups(results),
            *contamination(results),
            *what_is_comparable(results, task),
            *some_items(task, folder),
            *models_and_prompts(results),
        ],
    )


GUESSES = {"random": "a random answer", "majority": "giving the most frequent answer"}
"""Name of a baseline -> what it does, in the words of a verdict."""

HELP = {"better": "bring a gain", "worse": "bring a loss", "unclear": "bring nothing measurable"}
HELPS = {"better": "brings a gain", "worse": "brings a loss", "unclear": "brings nothing measurable"}


def verdicts(results: Results, *, is_higher_better: bool) -> Iterator[Verdict]:
    """Judge the best score of every model, and what the most demonstrations that fitted bring."""
    if few := about_few_rows(results["items"]):
        yield few
        return
    for model in results["models"]:
        name, shots = label(model, results), model["shots"]
        yield from about_best(name, shots, is_higher_better=is_higher_better)
        yield from about_demonstrations(name, shots, is_higher_better=is_higher_better)
        for count, fitted in model["fitted"].items():
            if fitted["without"] == fitted["prompts"]:
                yield Verdict(f"{name}, K = {count}: no demonstration fitted.")
            elif few := about_few_rows(shots[count]["rows"], "rows with a demonstration"):
                yield Verdict(f"{name}, K = {count}: {few.text[0].lower()}{few.text[1:]}")


def about_best(name: str, shots: Mapping[str, Any], *, is_higher_better: bool) -> Iterator[Verdict]:
    """Judge the best score that has an interval beside the best guess on the same rows, if there is one."""
    choose = max if is_higher_better else min
    known = {count: own for count, own in shots.items() if own["interval"] is not None and own["baselines"]}
    if not known:
        return
    best = choose(known, key=lambda count: known[count]["mean"])
    own = known[best]
    rival: str = choose(own["baselines"], key=own["baselines"].__getitem__)
    difference = own["differences"].get(rival)
    yield judge(
        GUESSES.get(rival, rival),
        (own["mean"], tuple(own["interval"])),
        own["baselines"][rival],
        difference=None if difference is None else tuple(difference),
        subject=f"{name}, K = {best}",
        is_higher_better=is_higher_better,
    )


def about_demonstrations(name: str, shots: Mapping[str, Any], *, is_higher_better: bool) -> Iterator[Verdict]:
    """Judge the score with the most demonstrations that are comparable with none, on the same rows."""
    gains = {int(count): own["gain"] for count, own in shots.items() if own.get("gain") is not None}
    if not gains:
        return
    most = max(gains)
    gain, interval = gains[most], tuple(gains[most]["interval"])
    outcome = outcome_of_difference(interval, is_higher_better=is_higher_better)
    what = f"one demonstration {HELPS[outcome]}" if most == 1 else f"{most} demonstrations {HELP[outcome]}"
    scored = f"{score_in_words(gain['mean'])} against {score_in_words(gain['without'])}"
    on = f" on {gain['rows']:,} rows" if gain["rows"] < shots["0"]["rows"] else ""
    yield Verdict(f"{name}: {what} over none ({scored}{on}; {difference_in_words(interval)}).", outcome)


def all_shots(results: Results) -> list[int]:
    """List every K of which any model has a score."""
    return sorted({int(count) for model in results["models"] for count in model["shots"]})


def best_of(models: Sequence[Mapping[str, Any]], *, is_higher_better: bool) -> tuple[str, dict[str, Any]]:
    """Return the K with the best mean over models, and what is known of it: of few rows only if all are."""
    every = [each for model in models for each in model["shots"].items()]
    enough = [(count, own) for count, own in every if own["rows"] >= FEWEST_ROWS] or every
    return (max if is_higher_better else min)(enough, key=lambda each: each[1]["mean"])


def glance(model: Mapping[str, Any], results: Results, *, is_higher_better: bool) -> Card:
    """Show a model's score for every K beside what needs no model, on the rows of the best K."""
    count, best = best_of([model], is_higher_better=is_higher_better)
    values = {f"K = {count}": own["mean"] for count, own in model["shots"].items()} | best["baselines"]
    intervals = {f"K = {count}": own["interval"] for count, own in model["shots"].items()}
    bars = bars_of(values, f"K = {count}", intervals)
    on = f" on {best['rows']:,} of {results['items']:,} rows" if best["rows"] < results["items"] else ""
    about = f"{NAMES[results['criterion']]} with K = {count}{on}; {interval_in_words(best)}."
    return Card(f"{name_of_model(model['name'])} ({model['member']})", f"{best['mean']:.3g}", about, bars)


def interval_in_words(own: Mapping[str, Any]) -> str:
    """Write the interval of a score, or why there is none."""
    if own["interval"] is None:
        return f"no 95 % interval: {missing_interval(own['rows'])}"
    return "95 % interval {:.3g} to {:.3g}".format(*own["interval"])


def doubts(results: Results) -> str:
    """Describe what the numbers mean."""
    unchanged = all(model["weights_unchanged"] for model in results["models"])
    assert unchanged  # or there would be no report
    baselines = (
        "The baseline majority always gives the most frequent answer, and random a random one. "
        if results["baselines"]
        else ""
    )
    return (
        "The interval is a percentile bootstrap over rows (Efron and Tibshirani, 1993). The standard error "
        f"is over samples of demonstrations. {baselines}Equal hashes of all weights before and after show "
        "that the evaluation did not change them. Cards show the best number of demonstrations, which was "
        "chosen on the same rows: where there are several, its score is slightly optimistic."
    )


def shots(results: Results, folder: Path) -> Iterator[Block]:
    """Show the score against K."""
    criterion = results["criterion"]
    yield Heading("Score by number of demonstrations")
    bands = {label(model, results): band_of(model["shots"]) for model in results["models"]}
    if any(len(band.shots) > 1 for band in bands.values()):  # of one number, the table says it all
        title = f"{NAMES[criterion]}, with its 95 % interval over rows"
        drawing = draw_shots(bands, results["baselines"], title, folder / SHOTS)
        yield Figure(
            SHOTS,
            drawing,
            f"{NAMES[criterion]} against the number of demonstrations; baselines are of all rows",
        )
    rows = [
        [
            f"{label(model, results)}, K = {count}",
            f"{own['mean']:.4g}",
            "{:.4g} to {:.4g}".format(*own["interval"]) if own["interval"] else missing_interval(own["rows"]),
            f"{own['rows']:,}",
            "" if own["standard_error"] is None else f"{own['standard_error']:.2g}",
            f"{len(own['conditions'])}",
            f"{own['dropped']:,}",
            f"{own['cut']:,}",
        ]
        for model in results["models"]
        for count, own in model["shots"].items()
    ]
    heads = ["", NAMES[criterion], "95 % interval", "rows", "standard error", "draws", "dropped", "cut"]
    yield Table(heads, rows)
    yield from truncation(results, [label(model, results) for model in results["models"]])
    yield from ties(results)


def band_of(shots: Mapping[str, Any]) -> Band:
    """Return the scores to draw against K, with their intervals: those of few rows only if all are."""
    enough = {count: own for count, own in shots.items() if own["rows"] >= FEWEST_ROWS} or shots
    means = [own["mean"] for own in enough.values()]
    low, high = zip(*(own["interval"] or [own["mean"]] * 2 for own in enough.values()), strict=True)
    return Band([*map(int, enough)], means, low, high)


def ties(results: Results) -> Iterator[Block]:
    """Yield how often a correct and a wrong answer are equally likely."""
    found = {
        label(model, results): sum(own.get("ties", 0) for own in model["shots"].values())
        for model in results["models"]
    }
    if any(found.values()):
        counts = ", ".join(f"{count:,} ({name})" for name, count in found.items())
        yield Prose(
            f"Ties (a correct and a wrong answer are equally likely), which count as wrong: {counts}."
        )


def label(model: Mapping[str, Any], results: Results) -> str:
    """Name a model briefly, by its path where two share a name."""
    name = name_of_model(model["name"])
    names = [name_of_model(each["name"]) for each in results["models"]]
    return model["name"] if names.count(name) > 1 else name


def other_scores(results: Results) -> Iterator[Block]:
    """Show all scores of every K."""
    names = list(next(iter(results["models"][0]["shots"].values()))["scores"])
    if len(names) < 2:
        return
    yield Heading("All scores")
    heads, columns = [], []
    for model in results["models"]:
        for count, own in model["shots"].items():
            heads.append(f"{label(model, results)}, K = {count}")
            columns.append(own["scores"])
    rows = [
        [heads[number], *(shown(column.get(name)) for name in names)] for number, column in enumerate(columns)
    ]
    yield Table(["", *(NAMES[name] for name in names)], rows)
    yield from map(Prose, about_models(results))


def shown(value: float | None) -> str:
    """Write a number; what is none or not finite is left out."""
    return "" if value is None else f"{value:.4g}"


def calibration(results: Results, folder: Path) -> Iterator[Block]:
    """Show how confident and how accurate the models are, with the largest K."""
    tables = {}
    for model in results["models"]:
        count, own = list(model["shots"].items())[-1]
        if "reliability" in own:
            tables[f"{label(model, results)}, K = {count}"] = own["reliability"]
    if tables:
        yield Heading("Calibration")
        drawing = draw_reliability(tables, folder / RELIABILITY)
        yield Figure(RELIABILITY, drawing, "Accuracy against confidence")


def groups(results: Results) -> Iterator[Block]:
    """Show the score of every group, with the largest K."""
    last = [list(model["shots"].values())[-1]["groups"] for model in results["models"]]
    names = sorted({group for own in last for group in own})
    if not all(last) or len(names) > MOST_GROUPS:
        return
    yield Heading("By group")
    rows = [[group, *(f"{own[group]:.3f}" if group in own else "" for own in last)] for group in names]
    rows.append(["mean of the groups", *(f"{sum(own.values()) / len(own):.3f}" for own in last)])
    yield Table(["", *(label(model, results) for model in results["models"])], rows, strong=len(rows) - 1)


def contamination(results: Results) -> Iterator[Block]:
    """Yield the scores of items that stand in the corpus, and of those that do not."""
    found = results["contamination"]
    if found is None:
        return
    yield Heading("Contamination")
    yield Prose(
        f"{found['touched']:,} of {found['items']:,} items share {found['words']} consecutive words with "
        f"one of {found['documents']:,} documents; {found['short']:,} items are too short for this, and "
        f"count as clean."
    )
    rows = [
        [
            f"{label(model, results)}, K = {count}",
            *(shown(part["score"]) for part in own["contamination"].values()),
        ]
        for model in results["models"]
        for count, own in model["shots"].items()
    ]
    parts = next(iter(results["models"][0]["shots"].values()))["contamination"]
    yield Table(["", *(f"{name} ({part['items']:,})" for name, part in parts.items())], rows)


def what_is_comparable(results: Results, task: Task) -> Iterator[Block]:
    """Show what has to be the same for scores to be comparable."""
    yield Heading("Recipe")
    yield Prose(f"Scored: {task.scored}. The file [recipe.yaml]({RECIPE}) evaluates other models likewise.")
    parts = ((part, value) for part, value in results["recipe"].items() if value)
    yield Examples([Example([Line(part, [Run(written(value))]) for part, value in parts])])


def models_and_prompts(results: Results) -> Iterator[Block]:
    """Name models and prompts, so that others can tell whether theirs are the same."""
    yield Heading("Models and prompts")
    rows = [
        [
            model["name"],
            model["class"],
            f"{model['parameters']:,}",
            f"{model['max_length']:,} tokens",
            model["weights_sha256"][:16],
        ]
        for model in results["models"]
    ]
    yield Table(["model", "class", "parameters", "reads at most", "SHA-256 of the weights"], rows)
    rows = [
        [
            f"{label(model, results)}, K = {count}, seed {each['seed']}, order {each['order']}",
            each["prompt_sha256"][:16],
        ]
        for model in results["models"]
        for count, own in model["shots"].items()
        for each in own["conditions"]
    ]
    yield Table(["prompts", "SHA-256"], rows)


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
    """Yield what fitted, if not everything did."""
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
            f"of fewer rows; where others are of {FEWEST_ROWS} or more, those of fewer are neither drawn nor "
            "chosen as the best."
        )
    if any(own["cut"] for model in results["models"] for own in model["shots"].values()):
        yield Prose(CUT)


def fitted(name: str, count: str, own: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many demonstrations the prompts of one K held, if some did not fit."""
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


def some_items(task: Task, folder: Path) -> Iterator[Block]:
    """Show the first items of the first model with the fewest demonstrations, with their prompts."""
    with (folder / ITEMS).open(encoding="utf-8") as lines:
        first = [json.loads(line) for line, _ in zip(lines, range(NUM_EXAMPLES), strict=False)]
    yield Heading("Some items")
    yield Examples(
        [Example([Line("prompt", [Run(end_of(record))]), *lines_of(task, record)]) for record in first]
    )


def end_of(record: Mapping[str, Any]) -> str:
    """Return the end of a prompt."""
    prompt = (
        record["prompt"] if isinstance(record["prompt"], str) else record["prompt"][record.get("right", 0)]
    )
    return prompt if len(prompt) < 400 else f"... {prompt[-400:]}"


def lines_of(task: Task, record: Mapping[str, Any]) -> Iterator[Line]:
    """Lay out what a model has answered: a text beside the correct one, or answers with what is compared."""
    if "written" in record:
        role = "right" if record["exact_match"] else "wrong"
        yield Line("prediction", [Run(record["written"].strip() or "nothing", role)])
        yield Line("reference", [Run(record["references"][0].strip(), "truth")])
    elif isinstance(task, Comparison):
        choice = None if record["is_tied"] else record["choices"][task.normalization]
        yield from answer_lines(record, record["values"][task.normalization], choice)
    else:
        yield from answer_lines(record)


def answer_lines(
    record: Mapping[str, Any], values: Sequence[float] | None = None, choice: int | None = None
) -> Iterator[Line]:
    """Lay out the answers of a record.

    Args:
        values: By which the answers are compared; log-likelihoods if left out.
        choice: The answer that is chosen, if any.
    """
    for number, answer in enumerate(record.get("answers", [])):
        is_correct = number == record.get("right", 0)
        role = "truth" if is_correct and number != choice else "right" if is_correct else "wrong"
        run = Run(answer["text"].strip(), role if is_correct or number == choice else "plain")
        value = sum(answer["log_likelihoods"]) if values is None else values[number]
        yield Line(f"{value:.2f}", [run])
