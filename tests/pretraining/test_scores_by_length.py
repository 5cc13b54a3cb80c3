"""BLEU by length: groups hold every row once, and each has the BLEU of its rows."""

from itertools import pairwise

import numpy as np
import pytest

from tercet.pretraining.scores_by_length import bleu_by_length, group_by_length
from tercet.pretraining.translation_scores import score_translations


def test_groups_hold_every_row_once_and_keep_lengths_together():
    lengths = np.random.default_rng(0).integers(1, 30, 500)
    groups = group_by_length(lengths, 6)
    assert sorted(np.concatenate(groups).tolist()) == [*range(500)]
    for one, other in pairwise(groups):
        assert lengths[one].max() < lengths[other].min()
    assert all(50 < len(rows) < 120 for rows in groups)


def test_rows_of_one_length_are_one_group():
    assert [rows.tolist() for rows in group_by_length(np.array([4, 4, 4]), 5)] == [[0, 1, 2]]


def test_a_group_has_the_bleu_of_its_rows():
    text = "a quick brown fox jumps over the lazy dog and runs away now again"
    words = text.split()
    sources = [" ".join(words[:length]) for length in (3, 4, 9, 12)] * 3
    references = [" ".join(words[: len(source.split()) + 2]) for source in sources]
    translations = [reference.replace("lazy", "sleepy") for reference in references]
    groups = bleu_by_length(sources, translations, references, num_groups=2)
    assert [(each.shortest, each.longest, each.num_rows) for each in groups] == [(3, 4, 6), (9, 12, 6)]
    rows = [number for number, source in enumerate(sources) if len(source.split()) >= 9]
    expected = score_translations([translations[row] for row in rows], [references[row] for row in rows])
    assert groups[1].bleu == pytest.approx(expected.bleu)
    assert groups[0].bleu == pytest.approx(100)
    assert groups[1].interval[0] <= groups[1].bleu <= groups[1].interval[1]


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="there are 1 sources, 2 translations and 1 references"):
        bleu_by_length(["a"], ["a", "b"], ["a"])
