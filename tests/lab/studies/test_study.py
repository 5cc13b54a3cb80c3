"""What a study says, the rule of its verdict, and how it is run."""

import dataclasses
import math

import pytest
import torch

from lab.studies import attention
from lab.studies.pages import blocks_of, figure_of, verdict_of
from lab.studies.running import run_study
from lab.studies.study import Bounds, Measured, all_studies, find_study, studies_of
from lab.studies.verdicts import interval_of, judge, judge_value, judged

STUDIES = all_studies()


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_complete(name):
    study = STUDIES[name]
    assert study.predicted in ("confirmed", "refuted", "undecided")
    assert study.expected
    assert study.switches
    assert study.seeds >= 2
    assert all(bounds.low <= bounds.high for bounds in study.expected.values())
    for text in (study.claim, study.because, study.lesson, study.picture):
        assert text[0].isupper() or text[0].isdigit()
        assert text.endswith(".")
    assert callable(study.method)
    assert study.about_method.endswith(".")


def test_names_are_those_of_one_study():
    assert len(STUDIES) == sum(len(studies_of(subject)) for subject in {s.subject for s in STUDIES.values()})


def test_an_unknown_study_is_refused_with_a_near_one():
    with pytest.raises(ValueError, match=r"unknown study 'scaled-score'; did you mean scaled-scores\?"):
        find_study("scaled-score")


def test_an_interval_covers_the_mean_as_often_as_it_says():
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(2000, 4, generator=generator, dtype=torch.float64).tolist()
    covered = sum(low <= 0 <= high for _, low, high in map(interval_of, drawn)) / len(drawn)
    assert abs(covered - 0.95) < 3 * math.sqrt(0.95 * 0.05 / len(drawn))


def test_an_interval_needs_two_seeds():
    with pytest.raises(ValueError, match="needs 2 seeds or more, not 1: choose more"):
        interval_of([1.0])


@pytest.mark.parametrize(
    ("values", "bounds", "verdict"),
    [
        ([2.0, 2.0], (2, 2), "confirmed"),
        ([2.0, 2.0], (2.1, math.inf), "refuted"),
        ([1.9, 2.0, 2.1], (1, 3), "confirmed"),
        ([1.9, 2.0, 2.1], (2, 3), "undecided"),
        ([1.9, 2.0, 2.1], (-math.inf, 1), "refuted"),
        ([math.nan, 2.0], (0, 3), "undecided"),
    ],
)
def test_a_value_is_judged_by_its_interval(values, bounds, verdict):
    assert judge_value(values, Bounds(*bounds)) == verdict


def test_a_claim_is_refuted_by_one_value_and_confirmed_by_all():
    study = dataclasses.replace(find_study("noam"), expected={"a": Bounds(0, 1), "b": Bounds(0, 1)})
    inside, outside, between = [0.5, 0.5], [2.0, 2.0], [0.5, 1.5]
    assert judge(study, {"a": inside, "b": inside}) == "confirmed"
    assert judge(study, {"a": between, "b": outside}) == "refuted"
    assert judge(study, {"a": inside, "b": between}) == "undecided"


def test_a_run_has_the_values_of_each_seed_and_draws_as_it_did_before(monkeypatch):
    def method(seed: int, broken: str = "", size: int = 1) -> Measured:
        values = dict.fromkeys(find_study("look-up").expected, size * torch.rand(()).item() + seed)
        return Measured(values, {("height", "place"): {"line": [(0, seed), (1, 2.0)]}})

    monkeypatch.setattr(attention, "look_up", method)
    result = run_study(find_study("look-up"), "one-match", 2, size=0)
    assert all(values == [0.0, 1.0] for values in result["values"].values())
    assert result["curves"][0]["lines"]["line"][0][:2] == [0, 0.5]
    assert result["curves"][0]["lines"]["line"][1] == [1, 2.0, 2.0, 2.0]
    again = [run_study(find_study("look-up"), seeds=2)["values"] for _ in range(2)]
    assert again[0] == again[1]


def test_a_switch_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="noam has no switch 'scale'; choose one of: exponential"):
        run_study(find_study("noam"), "scale")


def test_a_page_says_the_claim_the_prediction_and_the_verdict(tmp_path):
    study = find_study("noam")
    result = run_study(study, "exponential")
    assert judged(study, result) == "refuted"
    assert verdict_of(study, result).outcome == "refuted"
    figure = figure_of(study, result, tmp_path)
    text = str(blocks_of(study, result, figure))
    for words in (study.claim, study.because, "Broken on purpose", "2 of 4 values"):
        assert words in text
    assert (tmp_path / "noam.png").stat().st_size > 5000
    assert "steps, in warm-ups" in figure.drawing
