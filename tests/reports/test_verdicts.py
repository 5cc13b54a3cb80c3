"""Verdicts follow from intervals: of differences where there are pairs of rows, else of the score."""

from types import SimpleNamespace

import numpy as np
import pytest

from tercet.reports.distill.summary import about_teacher
from tercet.reports.distill.summary import verdicts as verdicts_of_students
from tercet.reports.fewshot.report import band_of, best_of, glance
from tercet.reports.fewshot.report import verdicts as verdicts_of_prompts
from tercet.reports.finetune.summary import compared
from tercet.reports.finetune.summary import verdicts as verdicts_of_tasks
from tercet.reports.pretraining.report import about_the_end, entropy, outcome_of_loss
from tercet.reports.pretraining.report import verdicts as verdicts_of_pretraining
from tercet.reports.verdicts import FEWEST_ROWS, judge, outcome_of_difference
from tercet.training.metrics.bootstrap import bootstrap_interval, bootstrap_scores, percentile_interval


@pytest.mark.parametrize(
    ("interval", "higher", "lower"),
    [
        ((0.01, 0.05), "better", "worse"),
        ((-0.05, -0.01), "worse", "better"),
        ((-0.01, 0.05), "unclear", "unclear"),
        ((0.0, 0.05), "unclear", "unclear"),
        ((0.0, 0.0), "unclear", "unclear"),
        ((float("nan"), 0.1), "unclear", "unclear"),
    ],
)
def test_an_interval_decides_if_it_excludes_zero(interval, higher, lower):
    assert outcome_of_difference(interval) == higher
    assert outcome_of_difference(interval, is_higher_better=False) == lower
    own = (0.5, (interval[0] + 0.5, interval[1] + 0.5))
    assert judge("a guess", own, 0.5).outcome == higher or 0.0 in interval
    verdict = judge("a guess", own, 0.3, difference=interval, is_higher_better=False)
    assert (verdict.outcome, "against 0.300; difference [" in verdict.text) == (lower, True)


def rows_of(share: float, number: int = 400) -> np.ndarray:
    return (np.arange(number) < share * number).astype(float)


def scores(rows: np.ndarray) -> np.ndarray:
    return bootstrap_scores(lambda drawn: float(rows[drawn].mean()), len(rows))


def test_pairs_decide_where_intervals_overlap():
    """One is right wherever the other is, and on 4 % more of the rows."""
    own, others = rows_of(0.54), rows_of(0.50)
    low, high = percentile_interval(scores(own))
    assert low < 0.50 < high
    found = compared(scores(own), {"other": scores(others)})["other"]
    assert outcome_of_difference(tuple(found["difference"])) == "better"
    assert found["interval"] == list(percentile_interval(scores(others)))


def test_the_same_predictions_are_a_tie():
    found = compared(scores(rows_of(0.7)), {"other": scores(rows_of(0.7))})["other"]
    assert found["difference"] == [0.0, 0.0]
    assert outcome_of_difference(tuple(found["difference"])) == "unclear"


def test_of_two_models_with_equal_scores_neither_is_better():
    """Five in a hundred differences may be found where there is none; 3 sigma more than this are not."""
    draw, trials = np.random.default_rng(0), 200
    clear = 0
    for _ in range(trials):
        difference = (draw.random(100) < 0.7).astype(float) - (draw.random(100) < 0.7)
        interval = bootstrap_interval(lambda rows, of=difference: float(of[rows].mean()), 100, resamples=200)
        clear += outcome_of_difference(interval) != "unclear"
    assert clear / trials < 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5 + 0.01


@pytest.mark.parametrize(
    ("interval", "beginning"),
    [
        ([0.90, 0.97], "Keeps 95.0% [90.0%, 97.0%] of the teacher's score: measurably worse"),
        ([0.90, 1.02], "Not measurably worse than the teacher"),
        ([1.01, 1.10], "Exceeds the teacher's score"),
    ],
)
def test_a_share_of_the_teachers_score_is_compared_with_all_of_it(interval, beginning):
    assert about_teacher({"share": 0.95, "interval": interval}, "").text.startswith(beginning)


@pytest.mark.parametrize(
    ("lead", "beginning"),
    [
        (
            [-0.01, 0.02],
            "The teacher brought nothing measurable over the same student without one (0.901 against",
        ),
        ([0.01, 0.03], "The teacher helped"),
        ([-0.03, -0.01], "The teacher did harm"),
    ],
)
def test_what_the_teacher_brought_follows_from_the_control(lead, beginning):
    student = {"score": 0.901, "share": 0.97, "interval": [0.95, 0.99]}
    told = {
        "kind": "classification",
        "criterion": "accuracy",
        "split": "test",
        "rows": {"test": 500},
        "drawn": {"number": 500, "unit": "rows"},
        "scores": {"student": student, "without-teacher": {"score": 0.899}, "teacher": {"score": 0.93}},
        "leads": {"without-teacher": lead},
        "is_higher_better": True,
    }
    teacher, control = verdicts_of_students({"task": told})
    assert (teacher.outcome, control.text.startswith(beginning)) == ("worse", True)


def shot(mean, interval, rows=500, **more) -> dict:
    known = {"baselines": {"random": 0.5, "majority": 0.55}, "differences": {"majority": [0.04, 0.26]}}
    return {"mean": mean, "interval": interval, "rows": rows} | known | more


def gain(without, mean, interval, rows=500) -> dict:
    return {"rows": rows, "mean": mean, "without": without, "interval": interval}


def prompted(**shots) -> dict:
    fitted = {count[1:]: {"prompts": 4, "without": 0} for count in shots if count != "k0"}
    return {"name": "gpt2", "shots": {key[1:]: own for key, own in shots.items()}, "fitted": fitted}


def told_of(model: dict) -> list[str]:
    results = {"items": 500, "models": [model], "baselines": {"random": 0.5, "majority": 0.55}}
    return [each.text for each in verdicts_of_prompts(results, is_higher_better=True)]


def test_prompted_models_are_judged_beside_the_best_guess_and_themselves():
    zero = shot(0.5, [0.45, 0.55])
    model = prompted(k0=zero, k4=shot(0.7, [0.6, 0.8], gain=gain(0.5, 0.7, [0.1, 0.3])))
    best, told = told_of(model)
    assert best == (
        "gpt2, K = 4: better than giving the most frequent answer (0.700 [0.600, 0.800] against 0.550; "
        "difference [+0.040, +0.260])."
    )
    assert told.startswith("gpt2: 4 demonstrations bring a gain over none (0.700 against 0.500; ")
    model = prompted(k0=zero, k1=shot(0.5, [0.45, 0.55], gain=gain(0.5, 0.5, [-0.1, 0.1])))
    assert "one demonstration brings nothing measurable over none" in told_of(model)[1]


def test_a_random_answer_is_known_exactly():
    baselines = {"baselines": {"random": 0.5}, "differences": {}}
    (told,) = told_of(prompted(k0=shot(0.6, [0.55, 0.65], **baselines)))
    assert told == "gpt2, K = 0: better than a random answer (0.600 [0.550, 0.650] against 0.500)."


def test_scores_of_few_rows_are_neither_best_nor_compared():
    """Five of 500 rows have room for a demonstration, and all five are right."""
    few = shot(1.0, None, rows=5, baselines={"random": 0.5, "majority": 0.2}, differences={}, gain=None)
    some = shot(0.6, [0.5, 0.7], rows=200, gain=gain(0.52, 0.6, [0.01, 0.15], rows=200))
    zero = shot(0.58, [0.55, 0.61])
    best, told, refused = told_of(prompted(k0=zero, k1=some, k4=few))
    assert best.startswith("gpt2, K = 1: better than giving the most frequent answer (0.600 [0.500, 0.700]")
    assert told == (
        "gpt2: one demonstration brings a gain over none (0.600 against 0.520 on 200 rows; "
        "difference [+0.010, +0.150])."
    )
    assert refused == (
        "gpt2, K = 4: too few rows with a demonstration to compare scores: 5, where at least 10 are needed."
    )
    model = prompted(k0=zero, k4=few) | {"member": "decoder"}
    assert best_of([model], is_higher_better=True) == ("0", zero)
    assert band_of(model["shots"]).shots == [0]
    results = {"items": 500, "criterion": "accuracy"}
    assert glance(model, results, is_higher_better=True).headline == "0.58"
    alone = prompted(k4=few) | {"member": "decoder"}
    assert glance(alone, results, is_higher_better=True).about == (
        "accuracy with K = 4 on 5 of 500 rows; no 95 % interval: fewer than 10 rows."
    )
    assert band_of(alone["shots"]).low == (1.0,)


def test_demonstrations_that_did_not_fit_are_told():
    model = prompted(k0=shot(0.5, [0.45, 0.6]))
    model["fitted"]["4"] = {"prompts": 4, "without": 4}
    assert told_of(model)[-1] == "gpt2, K = 4: no demonstration fitted."


@pytest.mark.parametrize("count", [1, FEWEST_ROWS - 1])
def test_few_rows_are_no_evidence(count):
    """The bootstrap interval of one row has no width, so that any difference would be certain."""
    expected = [f"Too few rows to compare scores: {count}, where at least {FEWEST_ROWS} are needed."]
    prompts = verdicts_of_prompts({"items": count}, is_higher_better=True)
    assert [each.text for each in prompts] == expected
    student = {"score": 1.0, "share": 1.0, "interval": [1.0, 1.0]}
    told = {
        "kind": "classification",
        "criterion": "accuracy",
        "split": "test",
        "drawn": {"number": count, "unit": "rows"},
    }
    told |= {"scores": {"student": student, "teacher": {"score": 1.0}}, "leads": {}}
    for step in ("task", "general"):
        assert [each.text for each in verdicts_of_students({step: told})] == expected
    summary = {
        "kind": "classification",
        "criterion": "accuracy",
        "split": "test",
        "drawn": {"number": count, "unit": "rows"},
    }
    assert [each.text for each in verdicts_of_tasks(None, summary)] == expected


@pytest.mark.parametrize(
    ("loss", "difference", "interval"),
    [
        (None, [float("nan")] * 2, [2.2, 2.4]),
        (float("inf"), [-np.inf] * 2, [2.2, 2.4]),
        (2.5, [np.nan] * 2, [2.2, 2.4]),
        (2.5, [-0.3, 0.1], None),
    ],
)
def test_nothing_is_compared_with_what_has_no_finite_score(loss, difference, interval):
    """0 would be the best of all losses."""
    summary = {
        "kind": "classification",
        "criterion": "loss",
        "split": "test",
        "drawn": {"number": 50, "unit": "rows"},
        "seeds": {"0": {"test": {"loss": 2.3}}},
        "best_seed": 0,
        "interval": interval,
        "baselines": {"before this run": {"loss": loss}},
        "compared": {"before this run": {"interval": difference, "difference": difference}},
    }
    (verdict,) = verdicts_of_tasks(SimpleNamespace(metrics={"loss": False}), summary)
    assert (verdict.outcome, verdict.text) == (
        "unclear",
        "Not compared with the same model before this run: not both have a finite loss (nats).",
    )


def test_losses_count_from_a_least_difference():
    assert [outcome_of_loss(loss, 6.0) for loss in (5.9, 5.99, 6.01, 6.1)] == [
        *("better", "unclear", "unclear", "worse")
    ]
    assert entropy(np.array([1, 1, 5, 5, 9, 9])) == pytest.approx(np.log(3))


def test_a_decoder_is_judged_beside_counting():
    """What has learned from context may still predict worse than a table of counts."""
    summary = {"scores": {"clm/loss": 4.45}, "without_context": {"clm": 6.5}, "trigram": {"clm": 4.17}}
    context, counting = verdicts_of_pretraining(summary, [])
    assert (context.outcome, counting.outcome) == ("better", "worse")
    assert counting.text.endswith("counted the training text: loss 4.450 against 4.170.")


def test_a_loss_that_rises_at_the_end_is_told():
    log = [{"step": step, "evaluation/loss": loss} for step, loss in ((10, 3.0), (20, 2.5), (30, 2.7))]
    (verdict,) = about_the_end(log)
    assert (verdict.outcome, "lowest after step 20" in verdict.text) == ("worse", True)
    assert [*about_the_end(log[:2])] == []


def test_the_weights_of_the_finished_model_are_judged_at_the_end():
    """The moving average still falls; a mean has no score before the end, and its last weights are named."""
    losses = ((10, 3.0, 3.1), (20, 2.5, 2.9), (30, 2.7, 2.6))
    log = [
        {"step": step, "evaluation/loss": last, "evaluation/ema/loss": ema, "evaluation/mean/loss": 2.6}
        for step, last, ema in losses
    ]
    summary = {"scores": {}, "without_context": {}, "trigram": {}}
    assert [*verdicts_of_pretraining(summary | {"weights": "ema"}, log)] == []
    log[-1]["evaluation/ema/loss"] = 3.2
    (of_average,) = verdicts_of_pretraining(summary | {"weights": "ema"}, log)
    (of_last,) = verdicts_of_pretraining(summary | {"weights": "last"}, log)
    (of_mean,) = verdicts_of_pretraining(summary | {"weights": "mean"}, log)
    assert "after step 20 (2.900), and is 3.200 at the end" in of_average.text
    assert "after step 20 (2.500), and is 2.700 at the end" in of_last.text
    assert of_mean.text == of_last.text.replace(
        "held-out loss", "held-out loss of the weights before averaging"
    )
