"""Rows that are held out are drawn at random, those with labels in proportion."""

from collections import Counter

import numpy as np
import pytest
from datasets import Dataset

from tercet.finetune.splits import split_off


@pytest.mark.parametrize(("share", "count"), [(0.1, 50), (0.5, 7), (0.01, 60)])
def test_a_share_is_held_out_at_random_and_nothing_lost(share, count):
    rows = Dataset.from_dict({"row": list(range(count))})
    rest, held_out = (rows.select(own) for own in split_off(rows, share, seed=0))
    assert len(held_out) == round(share * count)
    assert sorted(rest["row"][:] + held_out["row"][:]) == list(range(count))
    assert rest["row"][:] == sorted(rest["row"][:]), "what is left keeps its order"
    assert split_off(rows, share, seed=0)[1].tolist() == held_out["row"][:]
    if count == 50:
        assert split_off(rows, share, seed=1)[1].tolist() != held_out["row"][:]


@pytest.mark.parametrize(("share", "count"), [(0.1, 4), (0.99, 10), (0.1, 1)])
def test_a_share_that_leaves_nothing_is_refused(share, count):
    left = rf"data.validation_share = {share} of the rows \({count}\) leaves .* or add rows"
    with pytest.raises(ValueError, match=left):
        split_off(Dataset.from_dict({"row": list(range(count))}), share, seed=0)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.5])
def test_labels_are_held_out_in_proportion_and_none_is_lost(share):
    draw = np.random.default_rng(0)
    labels = [*draw.choice(list("abcd"), p=[0.6, 0.3, 0.09, 0.01], size=1000).tolist(), "once"]
    rows = Dataset.from_dict({"label": labels})
    rest, held_out = split_off(rows, share, 0, labels)
    assert sorted([*rest, *held_out]) == list(range(len(labels)))
    assert len(held_out) == round(share * 1001)
    counts = Counter(labels[row] for row in held_out)
    assert all(abs(counts[name] - share * count) < 1 for name, count in Counter(labels).items())
    assert {labels[row] for row in rest} == {*labels}
    assert split_off(rows, share, 0, labels)[1].tolist() == held_out.tolist()
    assert split_off(rows, share, 1, labels)[1].tolist() != held_out.tolist()


def test_no_label_is_preferred_where_not_all_can_be_held_out():
    labels = [str(row % 100) for row in range(200)]
    _, held_out = split_off(Dataset.from_dict({"label": labels}), 0.1, 0, labels)
    assert len({labels[row] for row in held_out}) == 20
    assert 3 <= sum(int(labels[row]) < 33 for row in held_out) <= 12
