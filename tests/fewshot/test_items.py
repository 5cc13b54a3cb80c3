"""Rows as items: where the answer goes, which one is right, and which rows demonstrate others.

No row demonstrates itself; draws are the same for the same seed, may be balanced, and come in several orders.
"""

from collections import Counter

import pytest

from tercet.fewshot.prompts.boundary import Prompt
from tercet.fewshot.prompts.items import Demonstrations, Item
from tercet.fewshot.prompts.prompting import Query
from tercet.fewshot.tasks.choices import ClozeRecipe, place_of

STARS = ["1", "2", "3", "4", "5"]

ITEMS = [
    Item(
        number,
        (Prompt(f"q{number}", (" a", " b")),),
        demonstration=f"q{number % 25} a",
        label=str(number % 3),
    )
    for number in range(30)
]


def cloze(text, row):
    recipe = ClozeRecipe(kind="cloze", text=text, choices=("good", "bad"), target="'good'")
    return recipe.build().item(0, row)


@pytest.mark.parametrize(
    ("text", "context", "answer", "suffix"),
    [
        ("{{ said }} It was ___ .", "a ___ b It was", " good", " ."),
        ('{{ said }}: "___"!', 'a ___ b: "', "good", '"!'),
        ("___ it is, {{ said }}", "", "good", " it is, a ___ b"),
        ("{{ said }}\n___", "a ___ b\n", "good", ""),
        ("{% if said %}so ___ {% endif %}{{ said }}", "so", " good", " a ___ b"),
    ],
)
def test_a_cloze_has_its_hole_where_the_template_says(text, context, answer, suffix):
    item = cloze(text, {"said": "a ___ b"})
    (prompt,) = item.prompts
    assert (prompt.context, prompt.answers[0], prompt.suffix) == (context, answer, suffix)
    assert item.demonstration == text.replace("___", "good").replace("{{ said }}", "a ___ b").replace(
        "{% if said %}", ""
    ).replace("{% endif %}", "")


@pytest.mark.parametrize(
    ("text", "suffix"), [("{{ said }} It was ___ .", " ."), ("___ news: {{ said }}", "")]
)
def test_answers_alone_have_nothing_of_the_row_behind_them(text, suffix):
    recipe = ClozeRecipe(kind="cloze", text=text, choices=("good", "bad"), target="'good'")
    task = recipe.build()
    item = task.item(0, {"said": "a long article"})
    (prompt,) = task.without_query(Query(item, item.prompts, [], []))
    assert (prompt.context, prompt.answers, prompt.suffix) == ("Answer:", item.answers, suffix)


def test_a_row_without_a_hole_is_refused():
    with pytest.raises(ValueError, match=r"has 0 blanks ___ in this row: change it so that each row has one"):
        cloze("{% if said %}so ___{% endif %}", {"said": ""})


def test_a_right_answer_is_named_or_counted():
    assert [place_of(str(star), STARS, []) for star in range(1, 6)] == [0, 1, 2, 3, 4]
    assert [place_of(star, STARS, STARS) for star in range(1, 6)] == [0, 1, 2, 3, 4]
    assert [place_of(place, ["9", "8", "0"], [], are_fixed=False) for place in (1, 2)] == [1, 2]
    assert [place_of(number, ["0", "1"], []) for number in range(2)] == [0, 1]
    assert [place_of(number, ["yes", "no"], []) for number in (0, "1", "no")] == [0, 1, 1]
    assert [place_of(label, ["yes", "no"], []) for label in ("no ", "\tyes", "no\u00a0")] == [1, 0, 1]
    assert place_of("a ", ["a", "a "], []) == 1, "as it is written, if it is one of the choices"


@pytest.mark.parametrize(
    ("target", "choices", "are_fixed", "message"),
    [
        (1, STARS, True, "task.target gives 1, which is the index .* set task.labels"),
        (5, ["5", "6", "7"], False, "gives 5, but an integer is the index .* from 0"),
        (1, ["3", "2", "1"], False,
         "gives 1, which is the index .* for the text, write task.target: .*string"),
        (2, ["yes", "no"], False, r"gives 2, which is none .*from 1, write task.target: \(TARGET\) - 1"),
    ],
)  # fmt: skip
def test_a_right_answer_that_may_be_two_is_refused(target, choices, are_fixed, message):
    with pytest.raises(ValueError, match=message):
        place_of(target, choices, [], are_fixed=are_fixed)


def test_an_answer_that_reads_like_the_right_one_is_right():
    twice = Item(0, (Prompt("q", (" a", " b", " b")),), target=2)
    assert [twice.is_correct(choice) for choice in range(3)] == [False, True, True]
    contexts = Item(0, (Prompt("x", (" a",)), Prompt("y", (" a",)), Prompt("y", (" a",))), target=1)
    assert [contexts.is_correct(choice) for choice in range(3)] == [False, True, True]


def texts(items):
    return [item.demonstration for item in items]


@pytest.mark.parametrize("draw", ["fixed", "per_example"])
def test_no_row_is_demonstrated_by_itself_or_its_like(draw):
    drawer = Demonstrations(ITEMS, draw, are_test=True)
    for seed in range(5):
        for item in ITEMS:
            drawn = drawer.draw(item, 20, seed)
            assert item.demonstration not in texts(drawn)
            assert len({each.number for each in drawn}) == 20


def test_more_demonstrations_begin_with_the_same_ones():
    drawer = Demonstrations(ITEMS, are_test=True)
    for item in ITEMS[:5]:
        assert texts(drawer.draw(item, 12, 3))[:4] == texts(drawer.draw(item, 4, 3))


def test_fixed_demonstrations_are_the_same_for_all_rows_but_those_shown():
    drawer = Demonstrations(ITEMS, are_test=False)
    draws = {tuple(texts(drawer.draw(Item(99, ()), 5, 0))) for _ in range(3)}
    assert len(draws) == 1
    others = {tuple(texts(drawer.draw(Item(99, ()), 5, seed))) for seed in range(6)}
    assert len(others) == 6
    per_example = Demonstrations(ITEMS, "per_example", are_test=False)
    assert len({tuple(texts(per_example.draw(Item(number, ()), 5, 0))) for number in range(6)}) == 6
    assert texts(per_example.draw(Item(4, ()), 5, 0)) == texts(per_example.draw(Item(4, ()), 5, 0))


def test_balanced_draws_show_all_answers_equally_often():
    skewed = [Item(n, (), demonstration=f"q{n}", label="rare" if n % 9 == 0 else "usual") for n in range(90)]
    drawer = Demonstrations(skewed, balanced=True, are_test=False)
    for seed in range(5):
        for shots in (2, 4, 7):
            counts = Counter(each.label for each in drawer.draw(Item(99, ()), shots, seed))
            assert abs(counts["rare"] - counts["usual"]) <= 1


def test_orders_show_the_same_demonstrations_in_other_places():
    drawer = Demonstrations(ITEMS, are_test=False)
    draws = [texts(drawer.draw(Item(99, ()), 6, 0, order)) for order in range(3)]
    assert len(set(map(tuple, draws))) == 3
    assert len(set(map(frozenset, draws))) == 1


def test_rows_are_demonstrated_by_their_match_only():
    worlds = [Item(n, (), demonstration=f"q{n}", match=str(n % 2)) for n in range(12)]
    drawer = Demonstrations(worlds, are_test=True)
    assert {each.match for each in drawer.draw(worlds[0], 5, 0)} == {"0"}
    with pytest.raises(
        ValueError, match=r"row 1: prompting\.num_fewshot is 6, but there are 5 different rows"
    ):
        drawer.draw(worlds[0], 6, 0)
