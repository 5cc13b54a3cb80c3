"""Demonstrations: never the row itself, the same for the same seed, balanced, in several orders."""

from collections import Counter

import pytest

from tercet.fewshot.boundary import Prompt
from tercet.fewshot.demonstrations import Demonstrations, require_labels
from tercet.fewshot.items import Item
from tercet.fewshot.recipe import PromptingRecipe

ITEMS = [
    Item(
        number,
        (Prompt(f"q{number}", (" a", " b")),),
        demonstration=f"q{number % 25} a",
        label=str(number % 3),
    )
    for number in range(30)
]


def texts(items):
    return [item.demonstration for item in items]


@pytest.mark.parametrize("draw", ["fixed", "per_example"])
def test_no_row_is_demonstrated_by_itself_or_its_like(draw):
    drawer = Demonstrations(ITEMS, PromptingRecipe(draw=draw), are_test=True)
    for seed in range(5):
        for item in ITEMS:
            drawn = drawer.draw(item, 20, seed)
            assert item.demonstration not in texts(drawn)
            assert len({each.number for each in drawn}) == 20


def test_more_demonstrations_begin_with_the_same_ones():
    drawer = Demonstrations(ITEMS, PromptingRecipe(), are_test=True)
    for item in ITEMS[:5]:
        assert texts(drawer.draw(item, 12, 3))[:4] == texts(drawer.draw(item, 4, 3))


def test_fixed_demonstrations_are_the_same_for_all_rows_but_those_shown():
    drawer = Demonstrations(ITEMS, PromptingRecipe(), are_test=False)
    draws = {tuple(texts(drawer.draw(Item(99, ()), 5, 0))) for _ in range(3)}
    assert len(draws) == 1
    others = {tuple(texts(drawer.draw(Item(99, ()), 5, seed))) for seed in range(6)}
    assert len(others) == 6
    per_example = Demonstrations(ITEMS, PromptingRecipe(draw="per_example"), are_test=False)
    assert len({tuple(texts(per_example.draw(Item(number, ()), 5, 0))) for number in range(6)}) == 6
    assert texts(per_example.draw(Item(4, ()), 5, 0)) == texts(per_example.draw(Item(4, ()), 5, 0))


def test_balanced_draws_show_all_answers_equally_often():
    skewed = [Item(n, (), demonstration=f"q{n}", label="rare" if n % 9 == 0 else "usual") for n in range(90)]
    drawer = Demonstrations(skewed, PromptingRecipe(balanced=True), are_test=False)
    for seed in range(5):
        for shots in (2, 4, 7):
            counts = Counter(each.label for each in drawer.draw(Item(99, ()), shots, seed))
            assert abs(counts["rare"] - counts["usual"]) <= 1
    with pytest.raises(ValueError, match="only fixed choices can be balanced"):
        require_labels([Item(0, ())], PromptingRecipe(balanced=True))


def test_orders_show_the_same_demonstrations_in_other_places():
    drawer = Demonstrations(ITEMS, PromptingRecipe(orders=3), are_test=False)
    draws = [texts(drawer.draw(Item(99, ()), 6, 0, order)) for order in range(3)]
    assert len(set(map(tuple, draws))) == 3
    assert len(set(map(frozenset, draws))) == 1


def test_rows_are_demonstrated_by_their_match_only():
    worlds = [Item(n, (), demonstration=f"q{n}", match=str(n % 2)) for n in range(12)]
    drawer = Demonstrations(worlds, PromptingRecipe(), are_test=True)
    assert {each.match for each in drawer.draw(worlds[0], 5, 0)} == {"0"}
    with pytest.raises(ValueError, match=r"row 1: prompting\.num_fewshot is 6, but there are 5 other rows"):
        drawer.draw(worlds[0], 6, 0)
