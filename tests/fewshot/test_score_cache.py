"""Equal requests are computed once, and what a killed evaluation has left is replaced."""

import json
import signal
from dataclasses import replace

import pytest

from tercet.configs.recipe import recipe_data
from tercet.fewshot.prompts.request import Request, Score, Scorer
from tercet.fewshot.scoring.score_cache import ScoreCache

from ..reported import fewshot
from .conftest import read

KILLED = """
import json, os, signal, sys
from tercet.configs.recipe import parse_recipe
from tercet.fewshot import run
from tercet.fewshot.recipe import FewShotRecipe
run.require_counted = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
run.fewshot(parse_recipe(FewShotRecipe, json.loads(sys.argv[1])))
"""


def test_equal_requests_are_scored_once():
    asked = []

    class Counting(Scorer):
        def score(self, requests):
            asked.append(len(requests))
            yield from (
                (place, Score((float(-len(own.context)),), True)) for place, own in enumerate(requests)
            )

    short, long = Request((1,), (2,)), Request((1, 3), (2,))
    cache = ScoreCache(Counting())
    found = [cache.score_all(own) for own in ([short, long, short], [long], [long, short])]
    assert asked == [2]
    assert [[score.total for score in own] for own in found] == [[-1, -2, -1], [-2], [-2, -1]]


def test_killed_evaluation_is_replaced(recipe_of, saved, tmp_path, fork_server):
    recipe = recipe_of("classification", [saved("decoder")])
    expected = read(fewshot(replace(recipe, output=str(tmp_path / "straight"))))
    killed = fork_server.start(KILLED, json.dumps(recipe_data(recipe)))
    assert fork_server.wait(killed) == -signal.SIGKILL
    assert (recipe.folder / ".items.jsonl.partial").exists()
    with pytest.raises(ValueError, match=r"an earlier run \(.*\): replace it with --overwrite, or"):
        fewshot(recipe)
    results, items = read(fewshot(recipe, overwrite=True))
    assert results | {"recipe": None} == expected[0] | {"recipe": None}  # but for the folder
    assert items == expected[1]
    assert not (recipe.folder / ".items.jsonl.partial").exists()
