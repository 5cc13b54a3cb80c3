"""Configurations of Transformers: what a field means for both stacks, and what follows from others."""

import pytest
from transformers.cache_utils import DynamicCache

from tercet.modeling import TercetDecoderConfig, TercetEncoderConfig, TercetSeq2SeqConfig


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
