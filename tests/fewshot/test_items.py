"""What is asked about a row: where the answer goes, and which one is right."""

import pytest

from tercet.fewshot.boundary import Prompt
from tercet.fewshot.items import Item
from tercet.fewshot.row_answers import place_of
from tercet.fewshot.task_recipes import ClozeRecipe
from tercet.fewshot.tasks import build_task

STARS = ["1", "2", "3", "4", "5"]


def cloze(text, row):
    """Fill in a cloze with two choices."""
    recipe = ClozeRecipe(kind="cloze", text=text, choices=("good", "bad"), target="'good'")
    return build_task(recipe).item(0, row)


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


def test_a_row_without_a_hole_is_refused():
    with pytest.raises(ValueError, match=r"has 0 holes ___ in this row: write it so that each row has one"):
        cloze("{% if said %}so ___{% endif %}", {"said": ""})


def test_a_right_answer_is_named_or_counted():
    assert [place_of(str(star), STARS, []) for star in range(1, 6)] == [0, 1, 2, 3, 4]
    assert [place_of(star, STARS, STARS) for star in range(1, 6)] == [0, 1, 2, 3, 4]
    assert [place_of(star, STARS, [], are_fixed=False) for star in range(5)] == [0, 1, 2, 3, 4]
    assert [place_of(number, ["0", "1"], []) for number in range(2)] == [0, 1]
    assert [place_of(number, ["yes", "no"], []) for number in (0, "1", "no")] == [0, 1, 1]


def test_a_right_answer_that_may_be_two_is_refused():
    with pytest.raises(ValueError, match=r"task.target gives 1, the number of one choice .* set task.labels"):
        place_of(1, STARS, [])
    with pytest.raises(ValueError, match=r"gives 5, but a number counts the 3 choices of a row, from 0: to"):
        place_of(5, ["5", "6", "7"], [], are_fixed=False)


def test_an_answer_that_reads_like_the_right_one_is_right():
    twice = Item(0, (Prompt("q", (" a", " b", " b")),), target=2)
    assert [twice.is_correct(choice) for choice in range(3)] == [False, True, True]
    contexts = Item(0, (Prompt("x", (" a",)), Prompt("y", (" a",)), Prompt("y", (" a",))), target=1)
    assert [contexts.is_correct(choice) for choice in range(3)] == [False, True, True]
