"""The same weights as another member: nothing but what a position sees changes, or the reading is refused."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetEncoderModel,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.tools.convert.members import convert, read_as

from ...saved_weights import require_same

SIZES = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "max_position_embeddings": 24}
IDS = torch.arange(4, 16)[None]
VARIANTS = {
    "defaults": {},
    "grouped keys, an untied head": {"num_key_value_heads": 2, "tie_word_embeddings": False},
    "GPT-2": {
        "position_embedding_type": "learned",
        "norm_type": "layer_norm",
        "norm_bias": True,
        "feed_forward_type": "plain",
        "mlp_bias": True,
        "attention_bias": True,
    },
    "BERT": {
        "position_embedding_type": "learned",
        "norm_type": "layer_norm",
        "norm_placement": "post",
        "embedding_norm": True,
        "type_vocab_size": 2,
        "head_transform": True,
        "head_bias": True,
    },
    "parallel, heads normalized": {"norm_placement": "parallel", "use_qk_norm": True},
    "ELECTRA": {"embedding_size": 16, "head_transform": True},
    "linear biases": {"position_embedding_type": "alibi"},
    "a window": {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]},
}


def randomized(model):
    """Give every weight a value that matters, also those that begin as ones and zeros."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def decoder_of(**fields):
    return randomized(TercetDecoderForCausalLM(TercetDecoderConfig(**SIZES | fields)))


def encoder_of(**fields):
    return randomized(
        TercetEncoderForMaskedLM(TercetEncoderConfig(**SIZES | {"type_vocab_size": 0} | fields))
    )


def seq2seq_of(**fields):
    config = TercetSeq2SeqConfig(**SIZES | fields)
    return randomized(TercetSeq2SeqForConditionalGeneration(config))


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_a_decoder_comes_back_from_an_encoder_bit_for_bit(fields):
    decoder = decoder_of(**fields)
    encoder = read_as(decoder, "encoder")
    assert isinstance(encoder.model, TercetEncoderForMaskedLM)
    assert (encoder.new, encoder.dropped) == ({}, {})
    assert sum(encoder.kept.values()) == decoder.num_parameters()
    back = read_as(encoder.model, "decoder")
    require_same(back.model.state_dict(), decoder.state_dict())
    assert torch.equal(back.model(IDS).logits, decoder(IDS).logits)
    assert back.model.config.sliding_window == decoder.config.sliding_window


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_an_encoder_comes_back_from_a_decoder_bit_for_bit(fields):
    encoder = encoder_of(**fields)
    back = read_as(read_as(encoder, "decoder").model, "encoder")
    require_same(back.model.state_dict(), encoder.state_dict())
    assert torch.equal(back.model(IDS).logits, encoder(IDS).logits)


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_only_what_a_position_sees_changes(fields):
    """The last position sees everything in both members, where no window ends and one layer mixes."""
    one_layer = {"num_hidden_layers": 1, "sliding_window": None, "layer_types": None}
    decoder = decoder_of(**fields | one_layer)
    encoder = read_as(decoder, "encoder").model
    ours, theirs = encoder(IDS).logits[0], decoder(IDS).logits[0]
    assert_close(ours[-1], theirs[-1])
    assert not torch.allclose(ours[:-1], theirs[:-1], atol=1e-3)


def test_a_window_shows_a_decoder_the_past_that_the_encoder_saw():
    encoder = encoder_of(sliding_window=3, num_hidden_layers=1)
    decoder = read_as(encoder, "decoder").model
    assert decoder.config.sliding_window == 4  # three earlier tokens, and the token itself
    assert_close(decoder(IDS).logits[0, -1], encoder(IDS).logits[0, -1])


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_an_encoder_of_a_windowed_decoder_is_its_own_reading_in_both_directions(implementation):
    decoder = decoder_of(**VARIANTS["a window"])
    encoder = read_as(decoder, "encoder").model
    for model in (decoder, encoder):
        model.set_attn_implementation(implementation)
    found = decoder(IDS, is_causal=False).logits
    assert_close(encoder(IDS).logits, found)
    assert_close(encoder(IDS, is_causal=True).logits, decoder(IDS).logits)
    bounds = {"cu_seq_lens_q": torch.tensor([0, 5, IDS.shape[1]]), "max_length_q": IDS.shape[1] - 5}
    assert_close(encoder(IDS, **bounds).logits, decoder(IDS, is_causal=False, **bounds).logits)
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), IDS], dim=1)
    mask = torch.ones_like(padded).index_fill_(1, torch.arange(3), 0)
    assert_close(decoder(padded, attention_mask=mask, is_causal=False).logits[:, 3:], found)


def test_a_window_that_no_layer_uses_forbids_no_reading():
    unused = {"layer_types": ["full_attention"] * 2}
    reading = read_as(encoder_of(sliding_window=64, **unused), "seq2seq")
    assert reading.model.config.types_of_layers == ["full_attention"] * 2
    assert read_as(decoder_of(sliding_window=2, **unused), "encoder").model.config.sliding_window == 2


def test_heads_of_tasks_are_dropped_and_a_missing_head_is_new():
    config = TercetEncoderConfig(**SIZES)
    reading = read_as(TercetEncoderForPreTraining(config), "decoder")
    assert {name.partition(".")[0] for name in reading.dropped} == {"next_sentence_head"}
    assert reading.new == {}
    untied = TercetEncoderConfig(**SIZES | {"tie_word_embeddings": False})
    reading = read_as(TercetEncoderModel(untied), "decoder")
    assert reading.new == {"lm_head.weight": 50 * 32}


def test_two_models_become_the_stacks_of_one():
    encoder, decoder = encoder_of(type_vocab_size=2), decoder_of(num_key_value_heads=2, num_hidden_layers=3)
    reading = read_as(encoder, "seq2seq", decoder)
    model = reading.model
    assert isinstance(model, TercetSeq2SeqForConditionalGeneration)
    assert_close(model.model.encoder(IDS).last_hidden_state, encoder.model(IDS).last_hidden_state)
    segments = "model.decoder.embeddings.token_types.weight"
    assert all("cross_attention" in name for name in reading.new if name != segments)
    assert not model.get_parameter(segments).any()
    # Without what cross-attention adds, the decoder is the decoder that it was.
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            layer.cross_attention.o_proj.weight.zero_()
    assert torch.equal(model(input_ids=IDS, decoder_input_ids=IDS).logits, decoder(IDS).logits)


@pytest.mark.parametrize("tie", [True, False])
def test_one_model_twice_shares_its_token_vectors(tie):
    decoder = decoder_of(tie_word_embeddings=tie)
    model = read_as(decoder, "seq2seq").model
    assert model.config.has_one_table
    table = model.get_encoder().get_input_embeddings().weight
    assert table is model.get_decoder().get_input_embeddings().weight
    assert (model.lm_head.weight is table) == tie
    assert torch.equal(model.lm_head.weight, decoder.lm_head.weight)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("positions", ["rotary", "relative_bias"])
def test_a_stack_of_a_seq2seq_is_read_alone(positions, share):
    source = seq2seq_of(
        position_embedding_type=positions, decoder_num_hidden_layers=1, share_encoder_decoder_embeddings=share
    )
    encoder, decoder = read_as(source, "encoder"), read_as(source, "decoder")
    states = source.model.encoder(IDS).last_hidden_state
    assert torch.equal(encoder.model.model(IDS).last_hidden_state, states)
    assert decoder.model.config.num_hidden_layers == 1
    assert any("cross_attention" in name for name in decoder.dropped)
    assert torch.equal(decoder.model.lm_head.weight, source.lm_head.weight)
    assert encoder.new == decoder.new == {}
    dropped = sum(decoder.dropped.values())
    assert dropped + sum(decoder.kept.values()) == source.num_parameters()


def test_new_weights_are_a_function_of_the_seed():
    decoder = decoder_of()
    first, again, other = (read_as(decoder, "seq2seq", seed=seed).model for seed in (0, 0, 1))
    name = "model.decoder.layers.0.cross_attention.q_proj.weight"
    assert torch.equal(first.get_parameter(name), again.get_parameter(name))
    assert not torch.equal(first.get_parameter(name), other.get_parameter(name))


@pytest.mark.parametrize("types", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
def test_a_pair_of_two_types_keeps_the_weights_of_both(types):
    encoder, decoder = (
        encoder_of(type_vocab_size=0).to(types[0]),
        decoder_of(num_hidden_layers=3).to(types[1]),
    )
    reading = convert(encoder, "seq2seq", decoder)
    assert reading.model.dtype == torch.float32
    for stack, source in (("encoder", encoder), ("decoder", decoder)):
        weight = reading.model.get_submodule(f"model.{stack}").layers[1].self_attention.q_proj.weight
        assert torch.equal(weight, source.model.layers[1].self_attention.q_proj.weight.float())


def test_the_type_of_the_weights_is_kept():
    assert read_as(decoder_of().to(torch.bfloat16), "encoder").model.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel", "Qwen3ForCausalLM"])
def test_a_stock_decoder_is_imported_first(stock, name):
    source = stock(name)
    reading = convert(source, "encoder")
    assert sum(reading.kept.values()) == source.num_parameters()
    decoder = read_as(reading.model, "decoder").model
    assert_close(decoder(IDS).logits, source(IDS).logits)


@pytest.mark.parametrize(
    ("build", "to", "message"),
    [
        (decoder_of, "decoder", "is of the member 'decoder' already: choose another one"),
        (seq2seq_of, "seq2seq", "is of the member 'seq2seq' already: choose another one"),
        (decoder_of, "bert", "--to is 'bert': choose one of encoder, decoder, seq2seq"),
        (partial(decoder_of, position_embedding_type="relative_bias"), "encoder",
         "no decoder can be read as an encoder; choose a model"),
        (partial(encoder_of, position_embedding_type="relative_bias"), "decoder",
         "no encoder can be read as a decoder"),
        (partial(decoder_of, sliding_window=2), "encoder", "sliding_window is 2, which would be 1"),
        (partial(decoder_of, norm_placement="parallel"), "seq2seq",
         "no seq2seq can have this configuration: .*parallel.* choose 'pre' or 'post'"),
        (partial(decoder_of, sliding_window=4), "seq2seq",
         r"differ in sliding_window \(3 and 4\).*without sliding"),
    ],
)  # fmt: skip
def test_what_the_other_member_cannot_have_is_refused(build, to, message):
    with pytest.raises(ValueError, match=message):
        read_as(build(), to)


@pytest.mark.parametrize(
    ("build", "to", "fields", "message"),
    [
        (encoder_of, "seq2seq", {"hidden_size": 64}, r"differ in hidden_size \(32 and 64\)"),
        (encoder_of, "seq2seq", {"norm_type": "layer_norm"}, "differ in norm_type"),
        (encoder_of, "seq2seq", {"position_embedding_type": "learned"}, r"\('rotary' and 'learned'\)"),
        (encoder_of, "seq2seq", {"vocab_size": 51}, r"differ in vocab_size \(50 and 51\)"),
        (decoder_of, "encoder", {}, "--decoder is given, but --to is 'encoder'"),
    ],
)
def test_stacks_that_make_no_pair_are_refused(build, to, fields, message):
    with pytest.raises(ValueError, match=message):
        read_as(build(), to, decoder_of(**fields))


def test_a_stack_without_windows_joins_one_that_has_them():
    model = read_as(encoder_of(sliding_window=3), "seq2seq", decoder_of()).model
    assert model.config.types_of_layers == ["sliding_attention"] * 2
    assert model.config.decoder_layer_types == ["full_attention"] * 2
