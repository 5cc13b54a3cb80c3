"""What students keep of a teacher's score, also where the teacher has none."""

import json
import warnings
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu

from tercet.distill.recipe import DistillationRecipe
from tercet.finetune.tasks.ranking import Ranking, RankingRecipe, Wanted
from tercet.reports.distill.comparison import (
    keep_of_examples,
    keep_of_predictions,
    keep_of_translations,
    lead_of_predictions,
)
from tercet.reports.distill.report import about_share, build_report, kept_table
from tercet.reports.distill.summary import for_card
from tercet.reports.text import as_markdown

SIZES = {
    "teacher": {"parameters": 100, "inner_parameters": 80, "disk": 400},
    "student": {"parameters": 60, "inner_parameters": 40, "disk": 240},
}
DRAWN = {"number": 50, "unit": "held-out examples"}


def rows(targets, losses, hits):
    return np.stack([np.full(len(hits), float(targets)), losses, hits], axis=1).astype(float)


def task(metric, is_better_high):
    """A task that is scored by the mean of its predictions."""
    return SimpleNamespace(
        metric_for_best_model="score",
        metrics={"score": is_better_high},
        drawn=lambda *rows: rows,
        score_of_rows=lambda predictions, references: lambda rows: metric(np.array(predictions)[rows]),
    )


def test_of_a_ranking_queries_are_drawn_however_many_rows_each_has():
    ranking, scores = Ranking(RankingRecipe("ranking")), (0.25, 0.5, 1.0) * 4

    def kept_and_lead(rows_of_query):
        own = [{"mrr": score} for score in scores for _ in range(rows_of_query)]
        wanted = [Wanted([], row == 0) for _ in scores for row in range(rows_of_query)]
        others = [{"mrr": 0.8}] * len(own)
        return [
            compare(ranking, own, others, wanted) for compare in (keep_of_predictions, lead_of_predictions)
        ]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept_and_lead(20) == kept_and_lead(1)
    assert kept_and_lead(20)[0].interval is not None


def test_shares_are_ratios_of_scores():
    teacher, own = rows(2, np.full(50, 2.0), np.full(50, 2)), rows(2, np.full(50, 4.0), np.full(50, 1))
    kept = keep_of_examples(own, teacher)
    assert kept["accuracy"].share == pytest.approx(0.5)
    assert kept["perplexity"].share == pytest.approx(np.exp(-1))
    assert kept["accuracy"].interval == pytest.approx((0.5, 0.5))


def test_of_a_teacher_that_knows_nothing_no_share_is_kept():
    """Not all of it, whether the student knows nothing either or something."""
    teacher = rows(2, np.full(50, 2.0), np.zeros(50))
    for hits in (np.zeros(50), np.ones(50)):
        kept = keep_of_examples(rows(2, np.full(50, 2.0), hits), teacher)
        assert (kept["accuracy"].share, kept["accuracy"].interval) == (None, None)
        assert kept["perplexity"].share == pytest.approx(1)


def test_a_share_without_interval_is_told_as_such():
    """The teacher has hit once: some draws miss that row."""
    teacher = rows(1, np.ones(20), np.eye(1, 20)[0])
    kept = keep_of_examples(rows(1, np.ones(20), np.eye(1, 20)[0]), teacher)["accuracy"]
    assert (kept.share, kept.interval) == (1, None)
    assert about_share(asdict(kept), 20, "held-out examples").startswith(
        "No interval: on some bootstrap samp"
    )


def test_few_rows_give_no_interval():
    """Where all are right, it would have no width."""
    kept, lead = (
        compare(task(np.mean, True), [1.0] * 9, [1.0] * 9, references=list(range(9)))
        for compare in (keep_of_predictions, lead_of_predictions)
    )
    assert (kept.share, kept.interval, lead) == (1, None, None)
    assert about_share(asdict(kept), 9, "rows") == "No interval: fewer than 10 rows."


@pytest.mark.parametrize(
    ("is_better_high", "own", "teachers", "expected"),
    [
        (True, 0.6, 0.8, 0.75),
        (True, 0.5, 0.0, None),
        (True, 0.5, -0.2, None),
        (True, -0.2, 0.8, -0.25),
        (False, 4.0, 3.0, 0.75),
        (False, 0.5, 0.0, None),
        (False, 0.0, 0.5, None),
    ],
)
def test_scores_of_tasks_have_shares_where_the_teachers_is_above_zero(
    is_better_high, own, teachers, expected
):
    kept = keep_of_predictions(
        task(np.mean, is_better_high), [own] * 10, [teachers] * 10, references=list(range(10))
    )
    assert kept.share == (None if expected is None else pytest.approx(expected))
    assert (kept.interval is None) == (expected is None)
    assert kept.score == pytest.approx(own)


def test_translations_keep_a_share_of_bleu():
    references = [f"ein hund läuft über die wiese nummer {number}" for number in range(30)]
    teachers = [
        text.replace("wiese", "straße") if number % 2 else text for number, text in enumerate(references)
    ]
    own = [text.replace("läuft über", "Läuft durch") for text in teachers]
    scores = [sacrebleu.corpus_bleu(texts, [references], lowercase=True).score for texts in (own, teachers)]
    kept = keep_of_translations(own, teachers, references, lowercase=True)
    assert kept.score == pytest.approx(scores[0])
    assert kept.share is not None
    assert kept.share == pytest.approx(scores[0] / scores[1])
    assert kept.interval is not None
    low, high = kept.interval
    assert low <= kept.share <= high < 1
    assert keep_of_translations(teachers, teachers, references, lowercase=True).interval == (1, 1)


def test_translators_are_judged_by_bleu(recipe_of, tmp_path):
    recipe = recipe_of("seq2seq")
    tmp_path.joinpath("run").mkdir()
    accuracy, bleu = (
        {"score": score, "share": share, "interval": [0.9, 1.0]}
        for score, share in ((0.5, 0.99), (30.0, 0.97))
    )
    scores = {"accuracy": accuracy, "perplexity": accuracy, "bleu": bleu}
    summary = {
        "students": ["student"],
        "sizes": SIZES,
        "verdicts": [],
        "general": {"term": "translation", "drawn": DRAWN, "scores": {"student": scores, "teacher": scores}},
    }
    page = as_markdown(build_report(recipe, summary, recipe.folder))
    assert "Distillation: 97.0% kept" in page
    assert "BLEU of greedy translations" in page
    assert for_card(summary)["distillation/retained"] == 0.97


def test_reports_and_cards_show_a_dash_and_no_number(tmp_path, recipe_of):
    recipe: DistillationRecipe = recipe_of("decoder")
    tmp_path.joinpath("run").mkdir()
    none = {"score": 0.0, "share": None, "interval": None}
    perplexity = {"score": 9.0, "share": 1.0, "interval": [1.0, 1.0]}
    summary = {
        "students": ["student"],
        "sizes": SIZES,
        "verdicts": [],
        "general": {
            "term": "clm",
            "drawn": DRAWN,
            "scores": {
                "student": {"accuracy": none, "perplexity": perplexity},
                "teacher": {"accuracy": {"score": 0.0}, "perplexity": {"score": 9.0}},
            },
        },
    }
    assert kept_table(summary).rows[1] == ["student", "0", "-", "-"]
    page = as_markdown(build_report(recipe, summary, recipe.folder))
    assert "Distillation: - kept with 40% fewer parameters" in page
    assert "No share: the teacher's score is not above 0" in page
    told = for_card(summary)
    assert list(told) == ["distillation/fewer_parameters"]
    assert "NaN" not in json.dumps(told)
