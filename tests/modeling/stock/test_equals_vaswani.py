"""The Transformer of 2017: ours and PyTorch's own layers compute and learn the same from the same weights.

Shapes: B batch, S source positions, T target positions, C model width, V vocabulary.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tercet.modeling import TercetSeq2SeqForConditionalGeneration

TORCH = {
    "model.encoder.embeddings.embed_tokens.*": "embedding.*",
    "model.encoder.layers.#.self_attention.q_proj.*": ("encoder.#.self_attn.in_proj_*", 0),
    "model.encoder.layers.#.self_attention.k_proj.*": ("encoder.#.self_attn.in_proj_*", 1),
    "model.encoder.layers.#.self_attention.v_proj.*": ("encoder.#.self_attn.in_proj_*", 2),
    "model.encoder.layers.#.self_attention.o_proj.*": "encoder.#.self_attn.out_proj.*",
    "model.encoder.layers.#.self_attention_norm.*": "encoder.#.norm1.*",
    "model.encoder.layers.#.feed_forward.up_proj.*": "encoder.#.linear1.*",
    "model.encoder.layers.#.feed_forward.down_proj.*": "encoder.#.linear2.*",
    "model.encoder.layers.#.feed_forward_norm.*": "encoder.#.norm2.*",
    "model.decoder.layers.#.self_attention.q_proj.*": ("decoder.#.self_attn.in_proj_*", 0),
    "model.decoder.layers.#.self_attention.k_proj.*": ("decoder.#.self_attn.in_proj_*", 1),
    "model.decoder.layers.#.self_attention.v_proj.*": ("decoder.#.self_attn.in_proj_*", 2),
    "model.decoder.layers.#.self_attention.o_proj.*": "decoder.#.self_attn.out_proj.*",
    "model.decoder.layers.#.self_attention_norm.*": "decoder.#.norm1.*",
    "model.decoder.layers.#.cross_attention.q_proj.*": ("decoder.#.multihead_attn.in_proj_*", 0),
    "model.decoder.layers.#.cross_attention.k_proj.*": ("decoder.#.multihead_attn.in_proj_*", 1),
    "model.decoder.layers.#.cross_attention.v_proj.*": ("decoder.#.multihead_attn.in_proj_*", 2),
    "model.decoder.layers.#.cross_attention.o_proj.*": "decoder.#.multihead_attn.out_proj.*",
    "model.decoder.layers.#.cross_attention_norm.*": "decoder.#.norm2.*",
    "model.decoder.layers.#.feed_forward.up_proj.*": "decoder.#.linear1.*",
    "model.decoder.layers.#.feed_forward.down_proj.*": "decoder.#.linear2.*",
    "model.decoder.layers.#.feed_forward_norm.*": "decoder.#.norm3.*",
}
START = 2


class TorchTransformer(nn.Module):
    """The paper's model from PyTorch's layers, with its own embedding and shared output matrix."""

    def __init__(self, sizes: dict[str, int]):
        super().__init__()
        names = ("hidden_size", "num_attention_heads", "intermediate_size")
        width, heads, inner = (sizes[name] for name in names)
        options: dict[str, Any] = {
            "dropout": 0.0,
            "layer_norm_eps": 1e-6,
            "batch_first": True,
            "norm_first": False,
        }
        self.embedding = nn.Embedding(sizes["vocab_size"], width)
        self.encoder, self.decoder = (
            nn.ModuleList(kind(width, heads, inner, **options) for _ in range(sizes["num_hidden_layers"]))
            for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
        )

    def forward(self, source: Tensor, is_pad: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of what follows `target` (B, T), given `source` (B, S) with its pads."""
        x, y = self.embed(source), self.embed(target)
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=is_pad)
        is_future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        for layer in self.decoder:
            y = layer(y, x, tgt_mask=is_future, memory_key_padding_mask=is_pad)
        return y @ self.embedding.weight.T

    def embed(self, ids: Tensor) -> Tensor:
        """Section 3.4's scaled embedding and section 3.5's positions: (B, T) -> (B, T, C)."""
        width = self.embedding.embedding_dim
        waves = torch.zeros(ids.shape[1], width)
        for position in range(ids.shape[1]):
            for i in range(width // 2):
                angle = position / 10_000 ** (2 * i / width)
                waves[position, 2 * i] = math.sin(angle)
                waves[position, 2 * i + 1] = math.cos(angle)
        return self.embedding(ids) * math.sqrt(width) + waves


@pytest.fixture
def paper(beside, sizes):
    return beside(
        "vaswani-base",
        TercetSeq2SeqForConditionalGeneration,
        TorchTransformer(sizes),
        TORCH,
        decoder_start_token_id=START,
    )


@pytest.fixture
def batch(ragged) -> dict[str, Tensor]:
    return ragged(7, 9, 2, 5)


@pytest.fixture
def target(ragged) -> dict[str, Tensor]:
    """Targets: what the decoder reads, its mask, and the labels."""
    target = ragged(5, 3, 8, 1)
    labels = target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)
    start = torch.full_like(labels[:, :1], START)
    return {
        "decoder_input_ids": torch.cat((start, target["input_ids"][:, :-1]), dim=1),
        "decoder_attention_mask": target["attention_mask"],
        "labels": labels,
    }


def test_logits_equal_the_layers_of_pytorch(paper, batch, target, is_packed):
    paper.ours.train(is_packed)
    labels = target.pop("labels")
    ours = paper.ours(**batch, **target, use_cache=False).logits
    stock = paper.stock(batch["input_ids"], batch["attention_mask"] == 0, target["decoder_input_ids"])
    paper.assert_same(ours[labels != -100], stock[labels != -100])


def test_smoothed_loss_and_gradients_equal_the_layers_of_pytorch(paper, batch, target, is_packed):
    paper.ours.train(is_packed)
    ours = paper.ours(**batch, **target, label_smoothing=0.1).loss
    logits = paper.stock(batch["input_ids"], batch["attention_mask"] == 0, target["decoder_input_ids"])
    stock = cross_entropy(logits.flatten(0, 1), target["labels"].flatten(), label_smoothing=0.1)
    paper.assert_same(ours, stock)
    paper.assert_same_gradients(ours, stock)
