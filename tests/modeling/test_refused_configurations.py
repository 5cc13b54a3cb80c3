"""Configurations refuse what no model can be, and name the field, its value and the remedy."""

import math
import re
from dataclasses import fields
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError

from tercet.modeling import (
    TercetCharacterConfig,
    TercetDecoderConfig,
    TercetElmoConfig,
    TercetEncoderConfig,
    TercetRecurrentSeq2SeqConfig,
    TercetSeq2SeqConfig,
    TercetTaggerConfig,
    TercetWordVectorsConfig,
)

from ..architectures import CONFIGURATIONS

LONGER = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SLIDING = ["sliding_attention"] * 12
STRIDED = {"num_hidden_layers": 1, "layer_types": ["strided_attention"]}
BIG_BIRD = {"num_hidden_layers": 1, "layer_types": ["big_bird_attention"]}
STOCK_BIG_BIRD = {"num_hidden_layers": 1, "layer_types": ["stock_big_bird_attention"]}

ROTARY: list[tuple[dict[str, Any], list[str]]] = [
    ({"partial_rotary_factor": 0.01}, ["partial_rotary_factor (0.01) is 0", "a factor"]),
    ({"partial_rotary_factor": 1.5}, ["partial_rotary_factor (1.5) is 96", "at most 1"]),
    ({"rope_type": "longrope", "factor": 2.0}, ["rope_type is 'longrope'", "one of default, linear, "]),
    ({"rope_type": "yarn"}, ["'yarn' has []", "exactly ['factor']", "'beta_fast'"]),
    (
        {"factor": 2.0},
        [
            "has ['factor']: give exactly nothing beside rope_theta and",
            "another rope_type (default, linear, dynamic, ",
        ],
    ),
    ({"rope_type": "linear"}, ["'linear' has []", "exactly ['factor']"]),
    ({"rope_type": "linear", "factor": 2.0, "beta_fast": 3}, ["'beta_fast'", "exactly ['factor'] "]),
    (LONGER | {"beta_fast": 32}, ["'beta_fast'", "give exactly ['factor', "]),
    (LONGER | {"factor": "8"}, ["rope_parameters.factor is '8'", "choose a number above 0"]),
    (LONGER | {"factor": 0.5}, ["rope_parameters.factor is 0.5", "choose 1 or more"]),
    (LONGER | {"original_max_position_embeddings": 2.5}, ["embeddings is 2.5", "choose a whole number"]),
    (LONGER | {"high_freq_factor": 1.0}, ["high_freq_factor 1.0", "below"]),
    (LONGER | {"factor": math.inf}, ["rope_parameters.factor is inf", "choose a finite number"]),
    ({"rope_theta": 0}, ["rope_parameters.rope_theta is 0", "choose a number above 0"]),
    ({"rope_theta": -1.0}, ["rope_parameters.rope_theta is -1.0", "choose a number above 0"]),
    ({"rope_theta": math.nan}, ["rope_parameters.rope_theta is nan", "choose a finite number"]),
    (
        {"full_attention": {}, "sliding_attention": {"rope_theta": 0.0}},
        ["rope_parameters.sliding_attention.rope_theta is 0.0", "choose a number above 0"],
    ),
    ({"everywhere": {"rope_theta": 6.0}}, ["{'everywhere': ", "one dictionary for all layers, or"]),
    ({"full_attention": {}}, ["{'full_attention': ", "one each for full_attention and sliding_"]),
    ({"full_attention": {}, "rope_theta": 6.0}, ["'rope_theta'", "one dictionary for all layers, or"]),
    ({"full_attention": None, "sliding_attention": {}}, ["'full_attention': None", "one each for full_att"]),
    ({"full_attention": {}, "sliding_attention": 10_000.0}, ["'sliding_attention': 10000.0", "one each"]),
    ({"rope_theta": True}, ["rope_parameters.rope_theta is True", "choose a number above 0"]),
    ({"rope_type": "yarn", "factor": 2.0, "truncate": 3}, ["truncate is 3", "choose true or false"]),
]
"""What `rope_parameters` cannot be, and words of the refusal."""

REFUSED: dict[type, list[tuple[dict[str, Any], list[str]]]] = {
    TercetEncoderConfig: [
        *(({"rope_parameters": described}, words) for described, words in ROTARY),
        ({"rope_theta": 5.0}, ["rope_theta is 5.0: give it as rope_parameters={'rope_theta': 5.0}"]),
        ({"partial_rotary_factor": 0.5}, ["give it as rope_parameters={'partial_rotary_factor': 0.5}"]),
        ({"rope_scaling": {"factor": 2.0}}, ["give it as rope_parameters={'factor': 2.0}"]),
        (
            {"position_embedding_type": "learned", "rope_parameters": {"rope_theta": 6.0}},
            ["rope_parameters are {'rope_theta': 6.0}, but", "'learned': leave them out, or choose 'rotary'"],
        ),
        ({"hidden_size": 30, "num_attention_heads": 4}, ["(30)", "num_attention_heads (4)", "one of 1, 2"]),
        ({"num_attention_heads": 0}, ["num_attention_heads (0)", "one of 1, 2"]),
        ({"hidden_size": 10**15 + 1, "num_attention_heads": 4}, ["num_attention_heads (4)", "one of 1,"]),
        ({"num_key_value_heads": 5}, ["heads (12)", "num_key_value_heads (5)", "choose one of"]),
        ({"dropout": 1.5}, ["dropout is 1.5", "probability"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers is 0", "choose 1 or more"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers is 1,000,000,000", "choose 10,000 or fewer"]),
        ({"vocab_size": -1}, ["vocab_size is -1"]),
        ({"type_vocab_size": -1}, ["type_vocab_size is -1", "choose 0 or more"]),
        ({"hidden_size": 12, "num_attention_heads": 4}, ["is 3", "even head size"]),
        ({"head_dim": 0}, ["head_dim is 0", "choose 1 or more"]),
        ({"head_dim": 8, "num_attention_heads": 0}, ["num_attention_heads is 0"]),
        ({"norm_bias": True}, ["norm_bias=True", "layer_norm"]),
        ({"classifier_dropout": 2.0}, ["classifier_dropout is 2.0", "probability"]),
        ({"classifier_norm": True, "classifier_act": None}, ["classifier_norm=True", "set classifier_act"]),
        ({"first_norm": False}, ["first_norm=False", "embedding_norm=True"]),
        ({"first_norm": False, "embedding_norm": True, "norm_placement": "post"}, ["norm_placement='pre'"]),
        ({"sliding_window": 1}, ["sliding_window is 1", "sliding layers", "choose 2 or more"]),
        ({"layer_types": SLIDING}, ["sliding_window is None", "choose 2 or more"]),
        ({"layer_types": SLIDING, "sliding_window": 1}, ["sliding_window is 1", "choose 2 or more"]),
        ({"layer_types": SLIDING[:3], "sliding_window": 4}, ["3 entries", "num_hidden_layers is 12"]),
        ({"layer_types": ["chunked_attention"] * 12}, ["chunked_attention", "full_attention or sliding_"]),
        ({"hidden_size": "wide"}, ["hidden_size", "wide", "int"]),
        ({"hidden_act": "swish9"}, ["hidden_act", "swish9"]),
        ({"embedding_size": 0}, ["embedding_size is 0", "choose 1 or more"]),
        ({"embedding_size": 7, "position_embedding_type": "sinusoidal"}, ["embedding_size (7)", "even"]),
        ({"relative_attention_num_buckets": 2}, ["relative_attention_num_buckets is 2", "choose 4 or more"]),
        ({"relative_attention_max_distance": 16}, ["max_distance is 16", "half of", "(32)"]),
        ({"norm_eps": 0.0}, ["norm_eps is 0.0", "choose a number above 0"]),
        ({"norm_eps": -1e-6}, ["norm_eps is -1e-06", "choose a number above 0"]),
        ({"initializer_range": -0.1}, ["initializer_range is -0.1", "choose 0 or more"]),
        ({"position_embedding_type": "absolute"}, ["position_embedding_type", "absolute"]),
        ({"answer_head": "quadratic"}, ["'answer_head' expected one of"]),
        (
            STOCK_BIG_BIRD | {"attention_block_size": 0},
            ["attention_block_size is 0, but layer_types has stock"],
        ),
    ],
    TercetDecoderConfig: [
        (
            {"attention_score": "cosine"},
            ["attention_score is 'cosine': choose one of scaled_dot_product, dot"],
        ),
        ({"attention_gate": "open"}, ["attention_gate is 'open': choose one of none, headwise, elementwise"]),
        (STRIDED | {"attention_stride": 0}, ["attention_stride is 0"]),
        (BIG_BIRD | {"attention_block_size": 0}, ["attention_block_size is 0"]),
        (BIG_BIRD | {"attention_window_blocks": 0}, ["choose 1 or more"]),
        (BIG_BIRD | {"attention_random_blocks": -1}, ["choose 0 or more"]),
        (BIG_BIRD | {"attention_random_seed": -1}, ["choose 0 or more"]),
        (BIG_BIRD | {"attention_random_seed": 2**32}, ["but the largest is 4294967295"]),
        (BIG_BIRD | {"attention_global_tokens": -1}, ["choose 0 or more"]),
        (
            BIG_BIRD | {"attention_global_tokens": 9, "max_position_embeddings": 8},
            ["attention_global_tokens is 9", "max_position_embeddings=8 tokens: choose so many or fewer"],
        ),
        (STOCK_BIG_BIRD, ["has no causal form"]),
        ({"num_hidden_layers": 1, "layer_types": ["narrow_attention"]}, ["['narrow_attention']: choose"]),
    ],
    TercetSeq2SeqConfig: [
        ({"decoder_num_attention_heads": 7}, ["decoder_num_attention_heads (7)"]),
        ({"norm_placement": "parallel"}, ["norm_placement='parallel'", "choose 'pre' or 'post'"]),
        (
            {"decoder_num_hidden_layers": 2, "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3},
            ["decoder_layer_types has 3 entries, but decoder_num_hidden_layers is 2"],
        ),
        (STOCK_BIG_BIRD, ["decoder_layer_types has layers of type 'stock_big", "which has no causal form"]),
    ],
    TercetCharacterConfig: [
        ({"num_hidden_layers": 0}, ["num_hidden_layers is 0: choose 1 or more"]),
        ({"type_vocab_size": 2}, ["type_vocab_size is 2, which a character model has no use for: leave it"]),
        ({"embedding_norm": True}, ["embedding_norm is True, which a character model"]),
    ],
    TercetElmoConfig: [
        ({"hidden_size": 13}, ["hidden_size is 13: choose an even one"]),
        ({"hidden_size": 12, "lstm_cell_size": 6}, ["lstm_cell_size is 6, but is projected"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers is 0"]),
        ({"character_filters": [[60, 4]]}, ["entry [60, 4]: give pairs of a width from 1"]),
        ({"character_filters": []}, ["give pairs of a width"]),
        ({"tie_word_embeddings": True}, ["tie_word_embeddings is True, but ELMo has no token vectors"]),
        ({"mix_penalty": -1.0}, ["mix_penalty is -1.0: choose 0 or more"]),
    ],
    TercetRecurrentSeq2SeqConfig: [
        ({"hidden_size": 31}, ["hidden_size is 31: choose an even one"]),
        (
            {"hidden_size": 32, "num_attention_heads": 5},
            ["hidden_size (32) is not a multiple of num_attention_heads (5)"],
        ),
        ({"attention_score": "cosine"}, ["attention_score is 'cosine': choose one of ", ", none"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers is 0: choose 1 or more"]),
        ({"attention_dropout": 1.0}, ["attention_dropout is 1.0"]),
        ({"cell_type": "rnn"}, ["cell_type"]),
        (
            {"num_attention_heads": 2, "num_key_value_heads": 4},
            ["num_key_value_heads is 4, but a recurrent ", " (2): leave it out"],
        ),
    ],
    TercetWordVectorsConfig: [
        ({"num_words": 0}, ["num_words is 0"]),
        ({"vocab_size": 100}, ["vocab_size is 100"]),
        ({"longest_ngram": 2}, ["longest_ngram is 2: choose 3 or more"]),
    ],
    TercetTaggerConfig: [
        ({"hidden_size": 15}, ["hidden_size is 15: choose an even one"]),
        ({"word_dropout": 1.0}, ["word_dropout is 1.0"]),
        ({"embeddings": [{}]}, ["name at least one model"]),
    ],
}
"""Kind of configuration -> fields, and words that the refusal has."""


@pytest.mark.parametrize(
    ("kind", "given", "words"), [(kind, *row) for kind, rows in REFUSED.items() for row in rows]
)
def test_what_cannot_be_built_is_refused_with_field_value_and_remedy(kind, given, words):
    has_all = "".join(f"(?=.*{re.escape(each)})" for each in words)
    with pytest.raises(Exception, match=f"(?s){has_all}"):
        kind(**given)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_no_number_of_a_configuration_is_infinite_or_none(kind, value):
    names = [field.name for field in fields(kind) if "float" in str(field.type)]
    assert {"norm_eps", "initializer_range", "dropout"} <= {*names}
    for name in names:
        with pytest.raises(StrictDataclassError, match=rf"{name} is {value}: choose"):
            kind(**{name: value})
