"""A run's folder of somebody else: what goes on there writes and waits nowhere else."""

import json
import os
from pathlib import Path

import pytest

from tercet.pretraining.output import run_folder
from tercet.reports.finished_run import report_on

from ...pretraining.conftest import unread_recipe

PLACES = ("log.jsonl", "curves.png", ".report.md.partial", "checkpoints", "seeds/0/curves.png")
"""Names in a run's folder under which something is written, or was in an earlier version."""


@pytest.fixture
def run(tmp_path) -> Path:
    """Make a finished run's folder, and a file of somebody's who has got it."""
    (tmp_path / "private.txt").write_text("private")
    folder = tmp_path / "run"
    (folder / "model").mkdir(parents=True)
    (folder / "seeds" / "0").mkdir(parents=True)
    (folder / "model" / "config.json").write_text("{}")
    for name in (".tercet.json", "evaluation.json"):
        (folder / name).write_text(json.dumps({"models": {}}))
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_no_report_is_made_through_a_link(place, run, tmp_path):
    (run / place).symlink_to(tmp_path / "private.txt")
    with pytest.raises(ValueError, match=rf"{Path(place).name} is a link to .*private.txt, outside of"):
        report_on(run, lambda found: pytest.fail("a report is made"))


def test_no_report_waits_for_a_pipe(run):
    os.mkfifo(run / "log.jsonl")
    with pytest.raises(ValueError, match=r"log.jsonl is no file but a pipe"):
        report_on(run, lambda found: pytest.fail("a report is made"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("resume", [False, True])
def test_no_run_goes_on_through_a_link(resume, place, run, tmp_path):
    """A fresh one may find what is hidden."""
    (run / place).symlink_to(tmp_path / "private.txt")
    recipe = unread_recipe("causal_language_modeling", {"preset": "decoder-tiny"}, output=str(run))
    with pytest.raises(ValueError, match=r"outside of" if resume else r"outside of|holds an earlier run"):
        run_folder(recipe).require_claimable(resume=resume, overwrite=False)


def test_links_within_a_run_are_followed(run):
    (run / "curves.png").symlink_to(run / "evaluation.json")
    made = []
    report_on(run, made.append)
    assert made[0].folder == run
