"""What an ability cannot answer is refused with a remedy."""

import re

import pytest

from tercet.tools.play.sessions import abilities_of

REFUSED = [
    ("encoder", "fill", ["The cat sat."], {}, "'The cat sat.' has no gap: write ___ for the missing word"),
    ("encoder", "fill", ["  "], {}, "is empty: write something there"),
    ("encoder", "fill", ["The cat ___ " * 40], {}, "but encoder reads at most 64: shorten the text"),
    *(
        ("encoder", "fill", ["The ___ sat."], {"top": top}, "choose a number from 1 to 50")
        for top in (0, 51, "many", None)
    ),
    ("encoder", "similar", ["a", "a\n" * 51], {}, "there are 51 texts: write at most 50 lines"),
    ("decoder", "continue", ["The cat sat on the roof of the house and" * 9], {}, "shorten"),
    ("chooser", "choose", ["The cat", "sat"], {}, "there are 1 choices"),
    ("spans", "restore", ["The cat sat."], {}, "has no gap"),
    ("spans", "restore", ["___ " * 9], {}, "has 9 gaps, but the model knows 8"),
]


@pytest.mark.parametrize(("model", "ability", "texts", "numbers", "message"), REFUSED)
def test_what_cannot_be_answered_is_refused(model, ability, texts, numbers, message, load):
    with pytest.raises(ValueError, match=re.escape(message)):
        abilities_of(load(model))[ability].answer(texts, numbers)
