"""GPT-2 (Radford et al., 2019), and DistilGPT2, which has the same architecture."""

from ..modeling.configuration_tercet import TercetDecoderConfig
from .architecture import Architecture, Counterpart, Field
from .rearrangements import Chunked, FirstScaled, Place, Transposed
from .task_heads import ANSWERS, LABELS, LAST_TOKEN, PLAIN, SCORES, TOKEN_DROPOUT
from .weights import Via


def share_of_scores(place: Place) -> float:
    """Divide scores by the number of the layer, from 1, if the stock model does (Mistral's GPT-2, 2021)."""
    return 1 / (place.indices[0] + 1) if place.config.scale_attn_by_inverse_layer_idx else 1.0


GPT2 = Architecture(
    model_type="gpt2",
    config=TercetDecoderConfig,
    fields={
        "vocab_size": "vocab_size",
        "hidden_size": "n_embd",
        "intermediate_size": Field(
            lambda stock: stock.n_inner or 4 * stock.n_embd,
            lambda config: {"n_inner": config.intermediate_size},
        ),
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "norm_eps": "layer_norm_epsilon",
        "hidden_act": "activation_function",
        "dropout": Field(
            lambda stock: stock.resid_pdrop,
            lambda config: {"resid_pdrop": config.dropout, "embd_pdrop": config.dropout},
        ),
        "attention_dropout": "attn_pdrop",
        "tie_word_embeddings": "tie_word_embeddings",
        "initializer_range": "initializer_range",
    },
    fixed={
        "position_embedding_type": "learned",
        "norm_type": "layer_norm",
        "norm_placement": "pre",
        "norm_bias": True,
        "feed_forward_type": "plain",
        "attention_bias": True,
        "mlp_bias": True,
    },
    required={"scale_attn_weights": True, "add_cross_attention": False},
    weights={
        "wte.weight": "embeddings.embed_tokens.weight",
        "wpe.weight": "embeddings.positions.embed_positions.weight",
        "h.*.ln_1.*": "layers.*.self_attention_norm.*",
        "h.*.attn.c_attn.weight": Via(
            "layers.*.self_attention.{q_proj,k_proj,v_proj}.weight",
            Transposed(),
            Chunked(3),
            FirstScaled(share_of_scores),
        ),
        "h.*.attn.c_attn.bias": Via(
            "layers.*.self_attention.{q_proj,k_proj,v_proj}.bias", Chunked(3), FirstScaled(share_of_scores)
        ),
        "h.*.attn.c_proj.weight": Via("layers.*.self_attention.o_proj.weight", Transposed()),
        "h.*.attn.c_proj.bias": "layers.*.self_attention.o_proj.bias",
        "h.*.ln_2.*": "layers.*.feed_forward_norm.*",
        "h.*.mlp.c_fc.weight": Via("layers.*.feed_forward.up_proj.weight", Transposed()),
        "h.*.mlp.c_fc.bias": "layers.*.feed_forward.up_proj.bias",
        "h.*.mlp.c_proj.weight": Via("layers.*.feed_forward.down_proj.weight", Transposed()),
        "h.*.mlp.c_proj.bias": "layers.*.feed_forward.down_proj.bias",
        "ln_f.*": "norm.*",
    },
    counterparts=(
        Counterpart("GPT2Model", "TercetDecoderModel"),
        Counterpart("GPT2LMHeadModel", "TercetDecoderForCausalLM", {"lm_head.weight": "lm_head.weight"}),
        Counterpart(
            "GPT2ForSequenceClassification",
            "TercetDecoderForSequenceClassification",
            SCORES,
            values=LAST_TOKEN,
        ),
        Counterpart(
            "GPT2ForTokenClassification",
            "TercetDecoderForTokenClassification",
            LABELS,
            fields=TOKEN_DROPOUT,
            values=PLAIN,
        ),
        Counterpart("GPT2ForQuestionAnswering", "TercetDecoderForQuestionAnswering", ANSWERS, values=PLAIN),
    ),
    prefix="transformer.",
)
