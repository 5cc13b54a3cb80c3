"""Uses of words in several senses, and whether the nearest use has the same one."""

import pytest
import torch

from tercet.metrics.word_senses import Use, nearest_is_alike, uses_by_tag

ROWS = [
    (["they", "order", "an", "order"], ["PRON", "VERB", "DET", "NOUN"]),
    (["Orders", ",", "order"], ["NOUN", "PUNCT", "NOUN"]),
    (["we", "ORDER", "and", "walk"], ["PRON", "VERB", "CCONJ", "VERB"]),
]


def test_uses_are_the_first_of_each_tag_and_lie_where_the_word_is():
    found = uses_by_tag(ROWS, ["NOUN", "VERB"], 2)
    assert list(found) == ["order"]
    assert [use.sense for use in found["order"]] == ["NOUN", "NOUN", "VERB", "VERB"]
    assert [use.sentence[use.first : use.last] for use in found["order"]] == ["order"] * 3 + ["ORDER"]
    assert found["order"][0] == Use("NOUN", "they order an order", 14, 19)
    assert uses_by_tag(ROWS, ["NOUN", "VERB"], 3) == {}
    assert uses_by_tag(ROWS, ["NOUN", "VERB"], 2, shortest=6) == {}


def test_each_layer_has_the_share_of_a_loop():
    torch.manual_seed(0)
    states, senses = torch.randn(8, 3, 5), list("aabbabab")
    expected = torch.zeros(3)
    for layer in range(3):
        for one in range(8):
            cosines = torch.cosine_similarity(states[one, layer], states[:, layer], dim=-1)
            cosines[one] = -2
            expected[layer] += senses[int(cosines.argmax())] == senses[one]
    torch.testing.assert_close(nearest_is_alike(states, senses), expected / 8)


def test_equal_vectors_are_as_good_as_chance():
    share = nearest_is_alike(torch.ones(16, 1, 4), ["a"] * 8 + ["b"] * 8)
    assert share.item() == pytest.approx(7 / 15)
    apart = torch.eye(2).repeat_interleave(8, 0)[:, None]
    assert nearest_is_alike(apart, ["a"] * 8 + ["b"] * 8).item() == 1
