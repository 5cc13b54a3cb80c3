"""Studies in small: each comes to the verdict of the book, and to another one when it is broken."""

import json
from types import SimpleNamespace

import pytest
from torch.utils.flop_counter import FlopCounterMode

from lab.studies import lessons, networks, sizes
from lab.studies.book import KEPT
from lab.studies.running import run_study
from lab.studies.study import all_studies, find_study
from lab.studies.verdicts import judge_value, judged

STUDIES = all_studies()
SMALL = {
    "matrix-and-loop": {"lengths": (8, 24)},
    "scaled-scores": {"widths": (16, 1024), "num_pairs": 40_000},
    "sparse-patterns": {"lengths": (256, 512, 1024)},
    "layer-cost": {"sizes": (16, 32)},
    "path-length": {"distances": (8, 32)},
    "distilled-speed": {"depths": (4, 12)},
    "copying": {"steps": 600, "models": ("LSTM", "LSTM with attention", "rotary")},
    "ablation": {"parts": ("attention", "feed-forward")},
    "query-key-value": {"variants": ("three matrices", "tied queries and keys")},
    "maps-and-causes": {"steps": 500},
    "it-and-animal": {"steps": 150, "number": 20},
}
"""What is smaller than usual."""
SLOW = {"query-key-value", "heads", "residuals", "ablation", "copying"}
SLOW |= {"one-hot", "scaled-scores", "distilled-speed", "maps-and-causes", "it-and-animal"}
"""Studies that learn something, or measure much."""
SEEDS = {"residuals": 2, "ablation": 2, "copying": 2, "it-and-animal": 2}
"""Of slow ones, where two are enough; others have three."""
PLANTED = {"encoder-wiring", "data-hunger", "noam-and-cosine", "smoothed-calibration", "scaling"}
"""Studies whose numbers are planted in test_planted.py, since they learn too long for a test."""
UNSURE = {("it-and-animal", ""), ("maps-and-causes", "one-step")}
"""What so few seeds leave undecided."""
REFUTED_ANYWAY = {"copying"}
"""Of several wrong claims, of which a switch mends some: it changes the verdict of a value."""


def marked(name: str, *more: str):
    """Mark what takes long."""
    assert name not in PLANTED
    marks = [pytest.mark.slow] if name in SLOW else []
    return pytest.param(name, *more, marks=marks, id="-".join([name, *more]))


def small(name: str, switch: str = "") -> tuple[str, list[str]]:
    """Run a study in small, and return its verdict and those of its values."""
    study = find_study(name)
    seeds = SEEDS.get(name, 3) if name in SLOW else None
    return verdicts(name, run_study(study, switch, seeds, **SMALL.get(name, {})))


def of_the_book(name: str) -> tuple[str, list[str]]:
    """Return the verdict of the whole study, and those of its values."""
    if not (file := KEPT / f"{name}.json").exists():
        pytest.skip("the book has no result of it yet: python -m lab.studies.book " + name)
    return verdicts(name, json.loads(file.read_text(encoding="utf-8")))


def verdicts(name: str, found: dict) -> tuple[str, list[str]]:
    study = find_study(name)
    values = [judge_value(found["values"][value], bounds) for value, bounds in study.expected.items()]
    return judged(study, found), values


TINY = {name: {"steps": 2} for name in ("query-key-value", "heads", "one-hot", "residuals", "ablation")}
TINY["copying"] = {"steps": 2, "trained": 2, "models": ("LSTM", "LSTM with attention", "rotary")}
TINY |= {"maps-and-causes": {"steps": 2}, "it-and-animal": {"steps": 2, "number": 4}}
TINY |= {"encoder-wiring": {"steps": 1}, "smoothed-calibration": {"steps": 1}}


@pytest.mark.parametrize("name", TINY)
def test_a_study_that_learns_measures_what_its_claim_speaks_of(name):
    study = find_study(name)
    found = run_study(study, next(iter(study.switches)), seeds=2, **TINY[name])
    assert {*study.expected} <= {*found["values"]}
    assert all(line for panel in found["curves"] for line in panel["lines"].values())


@pytest.fixture(scope="module")
def learned():
    return {}


@pytest.fixture(autouse=True)
def copies_once(request, monkeypatch, learned):
    """Let models that copy learn once: what breaks that study changes only what they are asked."""

    def learn(model, *given, steps, seed, **options):
        key = model.config.to_json_string(), steps, seed
        if key not in learned:
            lessons.learn(model, *given, steps=steps, seed=seed, **options)
            learned[key] = model.state_dict()
        model.load_state_dict(learned[key])

    if "copying" in request.node.name:
        monkeypatch.setattr(networks, "learn", learn)


@pytest.fixture(autouse=True)
def operations_for_seconds(request, monkeypatch):
    """Count operations where blocks and heads are timed: other work on the machine changes their times."""
    if "distilled-speed" not in request.node.name:
        yield
        return
    with FlopCounterMode(display=False) as counter:
        monkeypatch.setattr(sizes, "time", SimpleNamespace(process_time=counter.get_total_flops))
        yield


SHRUNKEN = [name for name in STUDIES if name not in PLANTED]


@pytest.mark.parametrize("name", [marked(name) for name in SHRUNKEN if (name, "") not in UNSURE])
def test_a_small_study_comes_to_the_verdict_of_the_book(name):
    assert small(name)[0] == of_the_book(name)[0]


@pytest.mark.parametrize(
    ("name", "switch"),
    [
        marked(name, switch)
        for name in SHRUNKEN
        for switch in STUDIES[name].switches
        if (name, switch) not in UNSURE
    ],
)
def test_a_study_that_is_broken_comes_to_another_verdict(name, switch):
    of_all, values = of_the_book(name)
    verdict, changed = small(name, switch)
    assert changed != values
    assert verdict != of_all or name in REFUTED_ANYWAY
    assert verdict == "refuted" or of_all != "confirmed"
