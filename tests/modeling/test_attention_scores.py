"""Attention scores: a new one is added in one place, and every kernel computes it."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tercet.modeling import TercetDecoderConfig
from tercet.modeling.attention_scores import SCORES, AttentionScore

CLOSE = {"rtol": 1e-4, "atol": 2e-5}


class BilinearScore(AttentionScore):
    """q^T W k with a learned matrix W (Luong et al., 2015, section 3.1)."""

    def __init__(self, config):
        super().__init__(config)
        self.scaling = config.head_dim**-0.5
        self.matrix = nn.Linear(config.head_dim, config.head_dim, bias=False)

    def forward(self, query, key):
        return self.matrix(query), key


@pytest.fixture
def bilinear(monkeypatch) -> dict:
    """Add a score, and give the field that chooses it."""
    monkeypatch.setitem(SCORES, "bilinear", BilinearScore)
    return {"attention_score": "bilinear"}


@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_a_new_score_is_the_same_whatever_the_kernel(member, bilinear, builder, batch):
    ids, mask = batch.padded()
    definition = builder(member, kernel="eager", **bilinear)(ids, mask).logits[mask.bool()]
    model = builder(member, **bilinear)
    assert_close(model(ids, mask).logits[mask.bool()], definition, **CLOSE)
    assert_close(model(**batch.packed()).logits[0], definition, **CLOSE)
    assert not torch.allclose(builder(member)(ids, mask).logits[mask.bool()], definition)


def test_a_new_score_is_the_same_with_a_cache(bilinear, builder, batch):
    model = builder("decoder", **bilinear)
    ids, mask = batch.padded("left")
    options = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 4, "pad_token_id": 0}
    assert torch.equal(model.generate(ids, **options), model.generate(ids, **options, use_cache=False))


def test_a_new_score_is_saved_and_the_usual_one_is_not_named(bilinear, builder, tmp_path):
    model = builder("decoder", **bilinear)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config.attention_score == "bilinear"
    assert_close(dict(again.named_parameters()), dict(model.named_parameters()))
    assert "attention_score" not in TercetDecoderConfig().to_dict()


def test_an_unknown_score_is_refused():
    with pytest.raises(Exception, match="attention_score is 'cosine': choose one of scaled_dot_product"):
        TercetDecoderConfig(attention_score="cosine")
