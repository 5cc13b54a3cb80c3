"""The report of a distillation is made of its folder: it can be made again, and may fail."""

import tercet

from ..reported import read_report, remove_report

SPEED = {"latency": 0.5, "throughput": 2.0, "memory": 10.0}


def test_reports_are_made_again_from_the_folder(recipe_of, monkeypatch):
    """What was measured once, and would be other seconds later, is among the facts."""
    speeds = {"teacher": SPEED, "student": SPEED}
    recipe = recipe_of("encoder", report={"without_teacher": True, "speed": True})
    with monkeypatch.context() as patch:
        patch.setattr("tercet.distill.facts.measure_speeds", lambda *arguments: speeds)
        tercet.distill(recipe)
    made, evaluation = read_report(recipe.folder), (recipe.folder / "evaluation.json").read_bytes()
    assert "scores.json" in made
    assert "1.00x as fast" in made["report.md"].decode()
    remove_report(recipe.folder)
    assert tercet.report(recipe.folder).folder == recipe.folder
    assert read_report(recipe.folder) == made
    assert (recipe.folder / "evaluation.json").read_bytes() == evaluation
