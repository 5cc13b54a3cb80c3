"""BART (Lewis et al., 2020)."""

import torch
from transformers import PreTrainedModel

from ..modeling.configuration_tercet import TercetSeq2SeqConfig
from .architecture import Architecture, Counterpart, Field
from .rearrangements import AsOneRow
from .task_heads import ANSWERS, AT_THE_END, DROPOUT, ENDED, HEAD_LABELS
from .weights import Dropped, IfNotZero

FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "intermediate_size": "encoder_ffn_dim",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "decoder_intermediate_size": "decoder_ffn_dim",
    "decoder_num_hidden_layers": "decoder_layers",
    "decoder_num_attention_heads": "decoder_attention_heads",
    "max_position_embeddings": "max_position_embeddings",
    "scale_embedding": "scale_embedding",
    "hidden_act": Field(
        lambda stock: {"swish": "silu"}.get(stock.activation_function, stock.activation_function),
        lambda config: {"activation_function": config.hidden_act},
    ),
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "tie_word_embeddings": "tie_word_embeddings",
    "initializer_range": "init_std",
}
FIXED = {
    "norm_type": "layer_norm",
    "norm_eps": 1e-5,
    "norm_bias": True,
    "feed_forward_type": "plain",
    "attention_bias": True,
    "mlp_bias": True,
}
LEARNED_POSITIONS = {"position_embedding_type": "learned", "position_offset": 2, "embedding_norm": True}


def stack(name: str) -> dict[str, str]:
    """Name the weights of the encoder or the decoder."""
    layer, ours = f"{name}.layers.*.", f"{name}.layers.*."
    return {
        f"{name}.embed_tokens.weight": f"{name}.embeddings.embed_tokens.weight",
        f"{layer}self_attn.q_proj.*": f"{ours}self_attention.q_proj.*",
        f"{layer}self_attn.k_proj.*": f"{ours}self_attention.k_proj.*",
        f"{layer}self_attn.v_proj.*": f"{ours}self_attention.v_proj.*",
        f"{layer}self_attn.out_proj.*": f"{ours}self_attention.o_proj.*",
        f"{layer}self_attn_layer_norm.*": f"{ours}self_attention_norm.*",
        f"{layer}encoder_attn.q_proj.*": f"{ours}cross_attention.q_proj.*",
        f"{layer}encoder_attn.k_proj.*": f"{ours}cross_attention.k_proj.*",
        f"{layer}encoder_attn.v_proj.*": f"{ours}cross_attention.v_proj.*",
        f"{layer}encoder_attn.out_proj.*": f"{ours}cross_attention.o_proj.*",
        f"{layer}encoder_attn_layer_norm.*": f"{ours}cross_attention_norm.*",
        f"{layer}fc1.*": f"{ours}feed_forward.up_proj.*",
        f"{layer}fc2.*": f"{ours}feed_forward.down_proj.*",
        f"{layer}final_layer_norm.*": f"{ours}feed_forward_norm.*",
    }


LAYERS = stack("encoder") | stack("decoder") | {"shared.weight": Dropped("both sides have their tables")}
EMBEDDINGS = {
    "encoder.embed_positions.weight": "encoder.embeddings.positions.embed_positions.weight",
    "decoder.embed_positions.weight": "decoder.embeddings.positions.embed_positions.weight",
    "encoder.layernorm_embedding.*": "encoder.embeddings.norm.*",
    "decoder.layernorm_embedding.*": "decoder.embeddings.norm.*",
}
HEAD = {"lm_head.weight": "lm_head.weight", "final_logits_bias": IfNotZero("lm_head.bias", AsOneRow())}


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
    counterparts=(
        Counterpart("BartModel", "TercetSeq2SeqModel"),
        Counterpart("BartForConditionalGeneration", "TercetSeq2SeqForConditionalGeneration", HEAD),
        Counterpart(
            "BartForSequenceClassification",
            "TercetSeq2SeqForSequenceClassification",
            HEAD_LABELS,
            values=AT_THE_END,
            fields=ENDED,
        ),
        Counterpart("BartForQuestionAnswering", "TercetSeq2SeqForQuestionAnswering", ANSWERS),
    ),
    prefix="model.",
    by_weights={"head_bias": has_head_bias},
)
