"""What judges of studies compute themselves: the BLEU of rows whose sources have a similar length."""

from itertools import pairwise

import numpy as np
import pytest

from lab.comparisons import judges
from tercet.pretraining.translation_scores import score_translations


def test_groups_hold_every_row_once_and_keep_lengths_together():
    lengths = np.random.default_rng(0).integers(1, 30, 500)
    groups = judges.group_by_length(lengths, 6)
    assert sorted(np.concatenate(groups).tolist()) == [*range(500)]
    for one, other in pairwise(groups):
        assert lengths[one].max() < lengths[other].min()
    assert all(50 < len(rows) < 120 for rows in groups)


def test_rows_of_one_length_are_one_group():
    assert [rows.tolist() for rows in judges.group_by_length(np.array([4, 4, 4]), 5)] == [[0, 1, 2]]


def test_a_group_has_the_bleu_of_its_rows():
    words = [*"abcdefghijklmn"]
    lengths = np.array([3, 4, 9, 12] * 3)
    references = [" ".join(words[: length + 2]) for length in lengths]
    translations = [reference.replace("h", "z") for reference in references]
    short, long = judges.group_by_length(lengths, 2)
    assert lengths[short].max() == 4
    expected = score_translations([translations[row] for row in long], [references[row] for row in long])
    bleu, (low, high) = judges.score_rows(translations, references, long)
    assert bleu == pytest.approx(expected.bleu)
    assert low <= bleu <= high
    assert judges.score_rows(translations, references, short)[0] == pytest.approx(100)
