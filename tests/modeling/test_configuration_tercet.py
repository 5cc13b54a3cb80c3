"""Configurations refuse what no model can be, and say what to do."""

import math

import pytest
from transformers.cache_utils import DynamicCache

from tercet.modeling import TercetDecoderConfig, TercetEncoderConfig, TercetSeq2SeqConfig

LONGER = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SLIDING = ["sliding_attention"] * 12


@pytest.mark.parametrize(
    ("fields", "words"),
    [
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
        ({"partial_rotary_factor": 0.01}, ["partial_rotary_factor (0.01) is 0", "a factor"]),
        ({"partial_rotary_factor": 1.5}, ["partial_rotary_factor (1.5) is 96", "at most 1"]),
        ({"rope_scaling": {"rope_type": "longrope"}}, ["rope_type 'longrope'", "default, linear, dynamic, "]),
        ({"rope_scaling": {"rope_type": "yarn"}}, ["'yarn' has []", "exactly ['factor']", "'beta_fast'"]),
        ({"rope_scaling": {"factor": 2.0}}, ["rope_type 'None'", "one of default, linear, dynamic, "]),
        ({"rope_scaling": {"rope_type": "linear"}}, ["'linear' has []", "exactly ['factor']"]),
        ({"rope_scaling": LONGER | {"beta_fast": 32}}, ["'beta_fast'", "give exactly ['factor', "]),
        ({"rope_scaling": LONGER | {"factor": "8"}}, ["factor '8'", "number above 0"]),
        ({"rope_scaling": LONGER | {"high_freq_factor": 1.0}}, ["high_freq_factor 1.0", "below"]),
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
        ({"rope_theta": 0}, ["rope_theta is 0", "choose a number above 0"]),
        ({"local_rope_theta": -1.0}, ["local_rope_theta is -1.0", "choose a number above 0"]),
        ({"local_rope_theta": 0.0}, ["local_rope_theta is 0.0", "choose a number above 0"]),
        ({"rope_parameters": {"rope_theta": 0}}, ["rope_theta is 0", "choose a number above 0"]),
        ({"rope_parameters": {"rope_theta": math.nan}}, ["rope_theta is nan", "choose a finite number"]),
        ({"rope_scaling": LONGER | {"factor": math.inf}}, ["rope_scaling is inf", "choose a finite number"]),
        ({"position_embedding_type": "absolute"}, ["position_embedding_type", "absolute"]),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_with_field_value_and_remedy(fields, words):
    with pytest.raises(Exception, match="(?s)" + ".*") as refusal:
        TercetEncoderConfig(**fields)
    assert all(word in str(refusal.value) for word in words), refusal.value


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (
            TercetDecoderConfig,
            {"attention_score": "cosine"},
            "attention_score is 'cosine': choose one of scaled_dot_product, dot",
        ),
        (
            TercetDecoderConfig,
            {"attention_gate": "open"},
            "attention_gate is 'open': choose one of none, headwise, elementwise",
        ),
        (TercetEncoderConfig, {"answer_head": "quadratic"}, "'answer_head' expected one of"),
        (TercetSeq2SeqConfig, {"decoder_num_attention_heads": 7}, r"decoder_num_attention_heads \(7\)"),
        (
            TercetSeq2SeqConfig,
            {"norm_placement": "parallel"},
            "norm_placement='parallel' .* choose 'pre' or 'post'",
        ),
    ],
    ids=["score", "gate", "answers", "heads of the decoder", "parallel beside an encoder"],
)
def test_every_member_names_the_values_that_it_takes(kind, fields, message):
    with pytest.raises(Exception, match=message):
        kind(**fields)


def test_later_assignments_are_checked_too():
    config = TercetDecoderConfig()
    with pytest.raises(Exception, match="num_hidden_layers"):
        config.num_hidden_layers = "many"


def test_both_stacks_follow_the_plain_fields():
    config = TercetSeq2SeqConfig(
        num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, intermediate_size=64
    )
    decoder = config.decoder_config()
    assert (decoder.num_hidden_layers, decoder.num_attention_heads) == (3, 6)
    assert (decoder.num_key_value_heads, decoder.intermediate_size) == (2, 64)


def test_the_decoder_may_differ():
    config = TercetSeq2SeqConfig(
        num_hidden_layers=6, decoder_num_hidden_layers=2, decoder_num_attention_heads=4
    )
    assert config.encoder_config().num_hidden_layers == 6
    assert config.decoder_config().num_hidden_layers == 2
    assert config.decoder_config().num_key_value_heads == 4


def test_the_layers_of_a_decoder_may_slide_alone():
    config = TercetSeq2SeqConfig(
        num_hidden_layers=3,
        decoder_num_hidden_layers=2,
        layer_types=["full_attention"] * 3,
        decoder_layer_types=["sliding_attention", "full_attention"],
        sliding_window=4,
    )
    assert config.encoder_config().types_of_layers == ["full_attention"] * 3
    assert config.decoder_config().types_of_layers == ["sliding_attention", "full_attention"]
    assert DynamicCache(config=config).is_sliding == [True, False]
    with pytest.raises(
        Exception, match="decoder_layer_types has 3 entries, but decoder_num_hidden_layers is 2"
    ):
        TercetSeq2SeqConfig(
            num_hidden_layers=3, decoder_num_hidden_layers=2, layer_types=["full_attention"] * 3
        )


def test_caches_find_the_decoder():
    config = TercetSeq2SeqConfig(num_hidden_layers=6, decoder_num_hidden_layers=2)
    assert config.get_text_config(decoder=True).num_hidden_layers == 2


def test_heads_share_the_width_unless_they_are_told_theirs():
    assert TercetEncoderConfig(hidden_size=96, num_attention_heads=4).head_dim == 24
    assert TercetEncoderConfig(hidden_size=100, num_attention_heads=3, head_dim=8).head_dim == 8


@pytest.mark.parametrize(("given", "expected"), [(None, (8, 16)), (6, (6, 6))])
def test_each_stack_has_its_width_of_heads(given, expected):
    config = TercetSeq2SeqConfig(
        hidden_size=32, num_attention_heads=4, decoder_num_attention_heads=2, head_dim=given
    )
    assert (config.encoder_config().head_dim, config.decoder_config().head_dim) == expected
    assert config.get_text_config(decoder=True).head_dim == expected[1]  # where static caches look


def test_the_last_bias_of_attention_follows_the_others():
    assert TercetDecoderConfig(attention_bias=True).attention_out_bias is True
    assert TercetDecoderConfig(attention_bias=True, attention_out_bias=False).attention_out_bias is False


def test_what_every_layer_adds_begins_small_where_the_norm_comes_before(builder):
    blocks = {
        placement: builder("decoder", norm_placement=placement) for placement in ("pre", "post", "parallel")
    }
    scales = {name: model.model.layers[0].self_attention.o_proj.init_scale for name, model in blocks.items()}
    assert scales == {"pre": 0.5, "post": 1.0, "parallel": 0.5}
    norms = {name: type(model.model.norm) for name, model in blocks.items()}
    assert norms["pre"] is norms["parallel"] is not norms["post"]


def test_each_member_labels_sequences_as_its_classic_does():
    fields = ("classifier_pooling", "classifier_act", "classifier_bias")
    heads = {
        TercetEncoderConfig: ("first", "tanh", True),
        TercetDecoderConfig: ("last", None, False),
        TercetSeq2SeqConfig: ("last", "tanh", True),
    }
    for config_class, head in heads.items():
        config = config_class()
        assert tuple(getattr(config, name) for name in fields) == head
