"""ModernBERT: ours and transformers' compute the same from the same weights, far beyond the window too."""

import pytest
import torch
from torch import Tensor
from transformers import ModernBertConfig, ModernBertForMaskedLM, ModernBertModel

from tercet.modeling import TercetEncoderForMaskedLM, TercetEncoderModel

MODERNBERT = {
    "embeddings.embed_tokens.*": "embeddings.tok_embeddings.*",
    "embeddings.norm.*": "embeddings.norm.*",
    "layers.#.self_attention_norm.*": "layers.#.attn_norm.*",
    "layers.#.self_attention.q_proj.*": ("layers.#.attn.Wqkv.*", 0),
    "layers.#.self_attention.k_proj.*": ("layers.#.attn.Wqkv.*", 1),
    "layers.#.self_attention.v_proj.*": ("layers.#.attn.Wqkv.*", 2),
    "layers.#.self_attention.o_proj.*": "layers.#.attn.Wo.*",
    "layers.#.feed_forward_norm.*": "layers.#.mlp_norm.*",
    "layers.#.feed_forward.gate_proj.*": ("layers.#.mlp.Wi.*", 0),
    "layers.#.feed_forward.up_proj.*": ("layers.#.mlp.Wi.*", 1),
    "layers.#.feed_forward.down_proj.*": "layers.#.mlp.Wo.*",
    "norm.*": "final_norm.*",
}
HEAD = {
    "transform.dense.*": "head.dense.*",
    "transform.norm.*": "head.norm.*",
    "lm_head.bias": "decoder.bias",
}
WITH_HEAD = HEAD | {
    f"model.{ours}": f"model.{place}" if isinstance(place, str) else (f"model.{place[0]}", place[1])
    for ours, place in MODERNBERT.items()
}
GLOBAL, LOCAL = "full_attention", "sliding_attention"
WINDOW = 2
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True}
IDS = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
KINDS = {
    "every third layer is global": ([GLOBAL, LOCAL, LOCAL, GLOBAL], {}),
    "the same with all biases": ([GLOBAL, LOCAL, LOCAL, GLOBAL], BIASES),
    "no layer is global": ([LOCAL, LOCAL], BIASES),
    "the last layer is global": ([LOCAL, GLOBAL], {}),
}


@pytest.fixture(params=KINDS)
def fields(request, sizes) -> dict:
    """Return what both configurations call by the same name."""
    layer_types, biases = KINDS[request.param]
    return sizes | IDS | biases | {"layer_types": layer_types, "num_hidden_layers": len(layer_types)}


def stock_model(model_class, fields: dict):
    config = ModernBertConfig(
        **fields, local_attention=2 * WINDOW, classifier_bias=fields.get("mlp_bias", False)
    )
    return model_class._from_config(config, attn_implementation="eager")


@pytest.fixture
def bare(beside, fields):
    stock = stock_model(ModernBertModel, fields)
    return beside("modernbert-base", TercetEncoderModel, stock, MODERNBERT, **fields, sliding_window=WINDOW)


@pytest.fixture
def modernbert(beside, fields):
    stock = stock_model(ModernBertForMaskedLM, fields)
    return beside(
        "modernbert-base", TercetEncoderForMaskedLM, stock, WITH_HEAD, **fields, sliding_window=WINDOW
    )


@pytest.fixture(params=["left", "right"])
def batch(request, ragged) -> dict[str, Tensor]:
    """One sequence is shorter than the window, one as long as both of its sides."""
    return ragged(14, 5, 9, 2, side=request.param)


def test_states_equal_modernbert(bare, batch, is_packed):
    bare.ours.train(is_packed)
    is_real = batch["attention_mask"] == 1
    ours, stock = bare.ours(**batch).last_hidden_state, bare.stock(**batch).last_hidden_state
    bare.assert_same(ours[is_real], stock[is_real])


def test_recorded_attentions_equal_modernbert(bare, batch):
    is_real = batch["attention_mask"] == 1
    ours = bare.ours.eval()(**batch, output_attentions=True).attentions
    stock = bare.stock(**batch, output_attentions=True).attentions
    for our_weights, stock_weights in zip(ours, stock, strict=True):
        of_queries = (weights.transpose(1, 2)[is_real] for weights in (our_weights, stock_weights))
        bare.assert_same(*of_queries)


def test_logits_equal_modernbert(modernbert, batch, is_packed):
    modernbert.ours.train(is_packed)
    is_real = batch["attention_mask"] == 1
    modernbert.assert_same(
        modernbert.ours(**batch).logits[is_real], modernbert.stock(**batch).logits[is_real]
    )


def test_loss_and_gradients_equal_modernbert(modernbert, batch, is_packed):
    modernbert.ours.train(is_packed)
    labels = batch["input_ids"].flip(-1)
    labels = labels.masked_fill((batch["attention_mask"] == 0) | (torch.arange(14) % 3 == 0), -100)
    ours, stock = modernbert.ours(**batch, labels=labels).loss, modernbert.stock(**batch, labels=labels).loss
    modernbert.assert_same(ours, stock)
    modernbert.assert_same_gradients(ours, stock)
