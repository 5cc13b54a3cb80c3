"""Configurations refuse what no model can be, and say what to do."""

import pytest
from transformers.cache_utils import DynamicCache

from tercet.modeling import TercetDecoderConfig, TercetEncoderConfig, TercetSeq2SeqConfig

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
        ({"vocab_size": -1}, ["vocab_size is -1"]),
        ({"type_vocab_size": -1}, ["type_vocab_size is -1", "choose 0 or more"]),
        ({"hidden_size": 12, "num_attention_heads": 4}, ["is 3", "even head width"]),
        ({"norm_bias": True}, ["norm_bias=True", "layer_norm"]),
        ({"first_norm": False}, ["first_norm=False", "embedding_norm=True"]),
        ({"first_norm": False, "embedding_norm": True, "norm_placement": "post"}, ["norm_placement='pre'"]),
        ({"sliding_window": 4}, ["sliding_window is 4", "layer_types is None", "which layers slide"]),
        ({"layer_types": SLIDING}, ["sliding_window is None", "choose 2 or more"]),
        ({"layer_types": SLIDING, "sliding_window": 1}, ["sliding_window is 1", "choose 2 or more"]),
        ({"layer_types": SLIDING[:3], "sliding_window": 4}, ["3 entries", "num_hidden_layers is 12"]),
        ({"layer_types": ["chunked_attention"] * 12}, ["chunked_attention", "full_attention or sliding_"]),
        ({"hidden_size": "wide"}, ["hidden_size", "wide", "int"]),
        ({"hidden_act": "swish9"}, ["hidden_act", "swish9"]),
        ({"position_embedding_type": "absolute"}, ["position_embedding_type", "absolute"]),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_with_field_value_and_remedy(fields, words):
    with pytest.raises(Exception, match="(?s)" + ".*") as refusal:
        TercetEncoderConfig(**fields)
    assert all(word in str(refusal.value) for word in words), refusal.value


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


def test_the_decoder_of_a_translation_is_checked_too():
    with pytest.raises(Exception, match=r"decoder_num_attention_heads \(7\)"):
        TercetSeq2SeqConfig(decoder_num_attention_heads=7)
