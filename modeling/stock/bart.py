"""BART (Lewis et al., 2020), mBART and Marian: sequence-to-sequence models with the layers of 2017.

mBART (Liu et al., 2020) has the norms before the sub-layers, and one behind the last. For a task its decoder
starts with the last token of the text. Ours starts with `decoder_start_token_id`, which is the same where
texts end in it. Marian (Junczys-Dowmunt et al., 2018) is the Transformer behind the OPUS-MT translators.
"""

import torch
from transformers import PreTrainedModel

from ..configuration_tercet import TercetSeq2SeqConfig
from .architecture import (
    BIASES,
    PLAIN_LAYERS,
    USUAL,
    Architecture,
    Counterpart,
    Field,
    named,
    projections,
    same,
)
from .task_heads import ANSWERS, AT_THE_END, DROPOUT, ENDED, HEAD_LABELS, TWICE, UNDROPPED
from .weights import AS_ONE_ROW, Dropped, IfNotZero

FIELDS = (
    USUAL
    | same("scale_embedding", "dropout", "attention_dropout", "activation_dropout")
    | {
        "hidden_size": "d_model",
        "intermediate_size": "encoder_ffn_dim",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "decoder_intermediate_size": "decoder_ffn_dim",
        "decoder_num_hidden_layers": "decoder_layers",
        "decoder_num_attention_heads": "decoder_attention_heads",
        "hidden_act": Field(
            lambda stock: {"swish": "silu"}.get(stock.activation_function, stock.activation_function),
            lambda config: {"activation_function": config.hidden_act},
        ),
        "initializer_range": "init_std",
    }
)
FIXED = PLAIN_LAYERS | BIASES | {"norm_eps": 1e-5}
LEARNED_POSITIONS = {"position_embedding_type": "learned", "position_offset": 2, "embedding_norm": True}
NAMES = "q_proj k_proj v_proj out_proj"


def stack(name: str) -> dict[str, str]:
    """Name the weights of the encoder or the decoder."""
    layer = f"{name}.layers.*."
    return {
        f"{name}.embed_tokens.weight": f"{name}.embeddings.embed_tokens.weight",
        **projections(f"{layer}self_attn.", f"{layer}self_attention.", NAMES),
        f"{layer}self_attn_layer_norm.*": f"{layer}self_attention_norm.*",
        **projections(f"{layer}encoder_attn.", f"{layer}cross_attention.", NAMES),
        f"{layer}encoder_attn_layer_norm.*": f"{layer}cross_attention_norm.*",
        f"{layer}fc1.*": f"{layer}feed_forward.up_proj.*",
        f"{layer}fc2.*": f"{layer}feed_forward.down_proj.*",
        f"{layer}final_layer_norm.*": f"{layer}feed_forward_norm.*",
    }


LAYERS = stack("encoder") | stack("decoder") | {"shared.weight": Dropped("both sides have their tables")}
EMBEDDINGS = {
    "encoder.embed_positions.weight": "encoder.embeddings.positions.embed_positions.weight",
    "decoder.embed_positions.weight": "decoder.embeddings.positions.embed_positions.weight",
    "encoder.layernorm_embedding.*": "encoder.embeddings.norm.*",
    "decoder.layernorm_embedding.*": "decoder.embeddings.norm.*",
}
HEAD = {"lm_head.weight": "lm_head.weight", "final_logits_bias": IfNotZero("lm_head.bias", AS_ONE_ROW)}


def has_head_bias(stock: PreTrainedModel) -> bool:
    """Return whether the bias of the vocabulary, which the configuration does not mention, says anything."""
    bias = dict(stock.named_buffers()).get("final_logits_bias", torch.zeros(()))
    return bool(bias.any())


BART = Architecture(
    model_type="bart",
    config=TercetSeq2SeqConfig,
    fields=FIELDS | DROPOUT,
    fixed=FIXED | LEARNED_POSITIONS | {"norm_placement": "post"},
    required={},
    weights=LAYERS | EMBEDDINGS,
    counterparts=named(
        "Bart",
        "TercetSeq2Seq",
        Counterpart("Model"),
        Counterpart("ForConditionalGeneration", HEAD),
        Counterpart("ForSequenceClassification", HEAD_LABELS, values=AT_THE_END, fields=ENDED | TWICE),
        Counterpart("ForQuestionAnswering", ANSWERS, values=UNDROPPED),
    ),
    prefix="model.",
    by_weights={"head_bias": has_head_bias},
)

STARTED_BY_THE_END = ENDED | {"decoder_start_token_id": Field(lambda stock: stock.eos_token_id)}

MBART = Architecture(
    model_type="mbart",
    config=TercetSeq2SeqConfig,
    fields=FIELDS | DROPOUT,
    fixed=FIXED | LEARNED_POSITIONS | {"norm_placement": "pre"},
    required={},
    weights=LAYERS
    | EMBEDDINGS
    | {"encoder.layer_norm.*": "encoder.norm.*", "decoder.layer_norm.*": "decoder.norm.*"},
    counterparts=named(
        "MBart",
        "TercetSeq2Seq",
        Counterpart("Model"),
        Counterpart("ForConditionalGeneration", HEAD),
        Counterpart(
            "ForSequenceClassification", HEAD_LABELS, values=AT_THE_END, fields=STARTED_BY_THE_END | TWICE
        ),
        Counterpart("ForQuestionAnswering", ANSWERS, fields=STARTED_BY_THE_END, values=UNDROPPED),
    ),
    prefix="model.",
    by_weights={"head_bias": has_head_bias},
)

COMPUTED = Dropped("sines and cosines, which ours computes")

MARIAN = Architecture(
    model_type="marian",
    config=TercetSeq2SeqConfig,
    fields=FIELDS
    | {
        "vocab_size": Field(
            lambda stock: stock.vocab_size,
            lambda config: {"vocab_size": config.vocab_size, "decoder_vocab_size": config.vocab_size},
        )
    },
    fixed=FIXED | {"position_embedding_type": "sinusoidal_split", "norm_placement": "post"},
    required={"share_encoder_decoder_embeddings": True},
    weights=LAYERS | {"encoder.embed_positions.weight": COMPUTED, "decoder.embed_positions.weight": COMPUTED},
    counterparts=named(
        "Marian",
        "TercetSeq2Seq",
        Counterpart("Model"),
        Counterpart("MTModel", HEAD, ours="ForConditionalGeneration"),
    ),
    prefix="model.",
    by_weights={"head_bias": has_head_bias},
)
