"""The stock models beside ours: equal weights under other names, equal batches in another layout.

Shapes: B batch, T positions of the longest sequence, N packed tokens.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers.pytorch_utils import Conv1D

from tercet.data.steps.objective import IGNORE, Batch

RENAMES: Mapping[str, Mapping[str, str]] = {
    "bert-base": {
        "bert.embeddings.word_embeddings": "model.embeddings.embed_tokens",
        "bert.embeddings.position_embeddings": "model.embeddings.positions.embed_positions",
        "bert.embeddings.token_type_embeddings": "model.embeddings.token_types",
        "bert.embeddings.LayerNorm": "model.embeddings.norm",
        "bert.encoder.layer": "model.layers",
        "attention.self.query": "self_attention.q_proj",
        "attention.self.key": "self_attention.k_proj",
        "attention.self.value": "self_attention.v_proj",
        "attention.output.dense": "self_attention.o_proj",
        "attention.output.LayerNorm": "self_attention_norm",
        "intermediate.dense": "feed_forward.up_proj",
        "output.dense": "feed_forward.down_proj",
        "output.LayerNorm": "feed_forward_norm",
        "cls.predictions.transform.LayerNorm": "transform.norm",
        "cls.predictions.transform": "transform",
        "cls.predictions.bias": "lm_head.bias",
        "bert.pooler": "next_sentence_head",
        "cls.seq_relationship": "next_sentence_head.classifier",
    },
    "gpt2": {
        "transformer.wte": "model.embeddings.embed_tokens",
        "transformer.wpe": "model.embeddings.positions.embed_positions",
        "transformer.h": "model.layers",
        "ln_1": "self_attention_norm",
        "attn.c_proj": "self_attention.o_proj",
        "attn.c_attn": "self_attention.qkv_proj",
        "ln_2": "feed_forward_norm",
        "mlp.c_fc": "feed_forward.up_proj",
        "mlp.c_proj": "feed_forward.down_proj",
        "transformer.ln_f": "model.norm",
    },
    "bart-base": {
        "model.shared": "model.encoder.embeddings.embed_tokens",
        ".embed_positions": ".embeddings.positions.embed_positions",
        "layernorm_embedding": "embeddings.norm",
        "self_attn_layer_norm": "self_attention_norm",
        "encoder_attn_layer_norm": "cross_attention_norm",
        "self_attn.": "self_attention.",
        "encoder_attn.": "cross_attention.",
        "out_proj": "o_proj",
        "fc1": "feed_forward.up_proj",
        "fc2": "feed_forward.down_proj",
        "final_layer_norm": "feed_forward_norm",
    },
}
"""What to replace in a stock name, in this order, to get ours; by the preset that is the architecture."""


def copy_weights(stock: nn.Module, ours: nn.Module, preset: str) -> None:
    """Copy the stock model's weights into ours; each has all parameters of the other."""
    weights = dict(in_our_names(stock, preset))
    parameters = dict(ours.named_parameters())
    assert weights.keys() == parameters.keys(), weights.keys() ^ parameters.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def in_our_names(stock: nn.Module, preset: str, *, gradients: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Yield the stock model's parameters, or their gradients, with our names and shapes.

    GPT-2 keeps its matrices transposed, and those of queries, keys and values in one.
    """
    for name, parameter in stock.named_parameters():
        values = parameter.grad if gradients else parameter.detach()
        assert values is not None, name
        if values.dim() == 2 and isinstance(stock.get_submodule(name.rpartition(".")[0]), Conv1D):
            values = values.mT
        ours = renamed(name, preset)
        if "qkv_proj" in ours:
            for projection, third in zip(("q_proj", "k_proj", "v_proj"), values.chunk(3), strict=True):
                yield ours.replace("qkv_proj", projection), third
        else:
            yield ours, values


def renamed(name: str, preset: str) -> str:
    """Turn a stock parameter's name into ours."""
    for theirs, ours in RENAMES[preset].items():
        name = name.replace(theirs, ours)
    return name


def padded(batch: Batch, pad_token_id: int, multiple: int = 1) -> dict[str, Tensor]:
    """Lay a packed batch out as the stock models take it: rows (B, T), T the longest or a multiple."""

    def rows(stream: Tensor, side: str, filler: int) -> Tensor:
        lengths = batch[f"cu_seq_lens_{side}"].diff().tolist()
        found = pad_sequence(list(stream[0].split(lengths)), batch_first=True, padding_value=filler)
        return F.pad(found, (0, -found.shape[1] % multiple), value=filler)

    inputs = {
        "input_ids": rows(batch["input_ids"], "k", pad_token_id),
        "attention_mask": rows(torch.ones_like(batch["input_ids"]), "k", 0),
        "labels": rows(batch["labels"], "q", IGNORE),
    }
    if "token_type_ids" in batch:
        inputs["token_type_ids"] = rows(batch["token_type_ids"], "k", 0)
    if "next_sentence_label" in batch:
        inputs["next_sentence_label"] = batch["next_sentence_label"]
    return inputs
