"""The head of ModernBERT: ours and transformers' compute the same from the same states and weights."""

import pytest
import torch
from torch.testing import assert_close
from transformers import ModernBertConfig, ModernBertForSequenceClassification
from transformers.modeling_outputs import BaseModelOutput

from tercet.modeling import TercetEncoderConfig
from tercet.modeling.heads.classification import SequenceClassificationHead
from tercet.modeling.heads.pooling import find_sequences

HEAD = {
    "transform.dense.weight": "head.dense.weight",
    "transform.norm.weight": "head.norm.weight",
    "out_proj.weight": "classifier.weight",
    "out_proj.bias": "classifier.bias",
}


@pytest.mark.parametrize(("stock_pooling", "pooling"), [("cls", "first"), ("mean", "mean")])
def test_the_head_equals_modernbert(stock_pooling, pooling, sizes, ragged, monkeypatch):
    config = ModernBertConfig(**sizes, num_labels=3, pad_token_id=0, classifier_pooling=stock_pooling)
    stock = ModernBertForSequenceClassification(config).eval()
    fields = {"norm_type": "layer_norm", "norm_eps": config.norm_eps, "classifier_pooling": pooling}
    fields |= {"classifier_act": "gelu", "classifier_norm": True, "classifier_bias": False}
    ours = SequenceClassificationHead(TercetEncoderConfig(**sizes, **fields), num_labels=3)
    weights = stock.state_dict()
    ours.load_state_dict({name: weights[place] for name, place in HEAD.items()})

    batch = ragged(7, 3, 9)
    states = torch.randn(3, 9, sizes["hidden_size"])
    monkeypatch.setattr(stock.model, "forward", lambda **_: BaseModelOutput(states))
    sequences = find_sequences(batch["input_ids"], batch["attention_mask"], None, None, None)
    assert_close(ours(states, sequences), stock(**batch).logits)
