"""A larger model gives the logits of a smaller one; what could not is refused."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from tercet.conversion.growth import grow, grow_into
from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetEncoderForReplacedTokenDetection,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)

SMALL: dict[str, Any] = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "max_position_embeddings": 24}
IDS = torch.arange(4, 16)[None]
SEGMENTS = torch.tensor([[0] * 7 + [1] * 5])

WIDER = {"hidden_size": 64, "num_attention_heads": 8}
SIZES: dict[str, dict[str, Any]] = {
    "wider": WIDER,
    "three times as wide": {"hidden_size": 96, "num_attention_heads": 12},
    "more neurons": {"intermediate_size": 73},
    "deeper": {"num_hidden_layers": 5},
    "everything": WIDER | {"intermediate_size": 100, "num_hidden_layers": 3, "max_position_embeddings": 32},
    "wider with the same heads": {"hidden_size": 64, "head_dim": 8},
    "more heads": {"num_attention_heads": 8, "head_dim": 8},
}
"""What grows."""

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "an untied head": {"tie_word_embeddings": False},
    "GPT-2": {
        "position_embedding_type": "learned",
        "norm_type": "layer_norm",
        "norm_bias": True,
        "feed_forward_type": "plain",
        "hidden_act": "gelu_new",
        "mlp_bias": True,
        "attention_bias": True,
    },
    "parallel": {"norm_placement": "parallel", "use_qk_norm": True, "head_bias": True},
    "gates of heads": {"attention_gate": "headwise", "hidden_act": "relu2", "attention_bias": True},
    "gates of channels": {"attention_gate": "elementwise", "attention_bias": True},
    "relative bias": {"position_embedding_type": "relative_bias", "scale_embedding": True},
    "a head with a transform": {"head_transform": True, "embedding_norm": True, "first_norm": False},
    "narrow token vectors": {"embedding_size": 16, "head_transform": True, "scale_embedding": True},
    "windows": {"sliding_window": 3},
}
"""What stays."""

POST = {
    "position_embedding_type": "learned",
    "norm_type": "layer_norm",
    "norm_bias": True,
    "norm_placement": "post",
    "embedding_norm": True,
    "head_transform": True,
    "mlp_bias": True,
}


def small(model_class, **fields):
    """Build a model whose weights all matter."""
    torch.manual_seed(1)
    model = model_class(model_class.config_class(**SMALL | fields)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
            if parameter.ndim == 1:
                parameter.add_(0.7)
    return model


def grown(model, noise: float = 0.0, **sizes):
    """Let a model grow, with what follows from a size left to the configuration."""
    fields = model.config.to_dict()
    for name in ("num_key_value_heads", "head_dim", "layer_types", "attention_out_bias"):
        fields.pop(name, None)
        fields.pop(f"decoder_{name}", None)
    for name in SMALL:
        fields.pop(f"decoder_{name}", None)
    for name in ("model_type", "architectures", "transformers_version", "dtype"):
        fields.pop(name, None)
    if "num_key_value_heads" not in sizes:
        groups = model.config.num_attention_heads // model.config.num_key_value_heads
        sizes["num_key_value_heads"] = (
            sizes.get("num_attention_heads", model.config.num_attention_heads) // groups
        )
    return grow(model, type(model.config)(**fields | sizes), noise=noise)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_a_larger_decoder_gives_equal_logits(fields, sizes):
    model = small(TercetDecoderForCausalLM, **fields)
    larger = grown(model, **sizes)
    assert larger.num_parameters() > model.num_parameters()
    assert_close(larger(IDS).logits, model(IDS).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_attention_heads": 8, "num_key_value_heads": 4},
        {"num_attention_heads": 8, "num_key_value_heads": 2},
        {"num_attention_heads": 16, "num_key_value_heads": 8},
        {"num_attention_heads": 12, "num_key_value_heads": 6},
        {"num_attention_heads": 8, "num_key_value_heads": 8},
    ],
)
def test_shared_keys_grow_as_well(sizes):
    model = small(TercetDecoderForCausalLM, num_key_value_heads=2)
    larger = grown(model, hidden_size=64, head_dim=8, **sizes)
    assert_close(larger(IDS).logits, model(IDS).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("fields", [{}, {"head_transform": True}, {"tie_word_embeddings": False}])
def test_a_larger_encoder_gives_equal_logits(fields, sizes):
    model = small(TercetEncoderForMaskedLM, **fields)
    ours, theirs = (each(IDS, token_type_ids=SEGMENTS).logits for each in (grown(model, **sizes), model))
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("transform", [True, False])
@pytest.mark.parametrize("sizes", [WIDER, WIDER | {"intermediate_size": 80}])
def test_a_wider_bert_gives_equal_logits_and_judgements(sizes, transform):
    model = small(TercetEncoderForPreTraining, **POST | {"head_transform": transform})
    ours, theirs = (each(IDS, token_type_ids=SEGMENTS) for each in (grown(model, **sizes), model))
    assert_close(ours.prediction_logits, theirs.prediction_logits, atol=1e-5, rtol=1e-5)
    assert_close(ours.seq_relationship_logits, theirs.seq_relationship_logits, atol=1e-5, rtol=1e-5)


def test_a_larger_discriminator_gives_equal_logits():
    model = small(TercetEncoderForReplacedTokenDetection)
    assert_close(grown(model, **SIZES["everything"])(IDS).logits, model(IDS).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "sizes", [WIDER, SIZES["deeper"], SIZES["everything"] | {"decoder_num_hidden_layers": 4}]
)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": True},
        {"share_encoder_decoder_embeddings": False, "scale_embedding": True},
        {"position_embedding_type": "relative_bias"},
    ],
)
def test_a_larger_seq2seq_gives_equal_logits(fields, sizes):
    model = small(TercetSeq2SeqForConditionalGeneration, **fields)
    ours, theirs = (
        each(input_ids=IDS, decoder_input_ids=IDS.flip(1)[:, :8]).logits
        for each in (grown(model, **sizes), model)
    )
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_wider_classic_seq2seq_gives_equal_logits():
    model = small(TercetSeq2SeqForConditionalGeneration, **POST | {"head_transform": False})
    larger = grown(model, **WIDER)
    ours, theirs = (each(input_ids=IDS, decoder_input_ids=IDS).logits for each in (larger, model))
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_generated_texts_are_equal():
    model = small(TercetDecoderForCausalLM)
    larger = grown(model, **SIZES["everything"])
    ours, theirs = (each.generate(IDS, max_new_tokens=8, do_sample=False) for each in (larger, model))
    assert torch.equal(ours, theirs)


def test_copies_have_equal_gradients():
    """Which is why a wider model learns no more than the narrow one, unless something parts its copies."""
    larger = grown(small(TercetDecoderForCausalLM), **WIDER)
    larger(IDS, labels=IDS).loss.backward()
    gradient = larger.model.layers[0].feed_forward.down_proj.weight.grad
    assert_close(gradient[:32], gradient[32:])
    assert gradient.any()


def test_noise_parts_the_copies_and_keeps_the_function():
    model = small(TercetDecoderForCausalLM)
    larger = grown(model, noise=0.5, **WIDER | {"intermediate_size": 96})
    assert_close(larger(IDS).logits, model(IDS).logits, atol=1e-5, rtol=1e-5)
    larger(IDS, labels=IDS).loss.backward()
    layer = larger.model.layers[0]
    for gradient in (layer.feed_forward.down_proj.weight.grad, layer.self_attention.q_proj.weight.grad):
        assert (gradient[:32] - gradient[32:]).abs().max() > 0.01 * gradient.abs().max()


def test_new_layers_learn_at_once():
    """Their last projections are zero, and have gradients."""
    larger = grown(small(TercetDecoderForCausalLM), num_hidden_layers=4)
    larger(IDS, labels=IDS).loss.backward()
    new = larger.model.layers[1]
    assert not new.self_attention.o_proj.weight.any()
    assert new.self_attention.o_proj.weight.grad.any()
    assert new.feed_forward.down_proj.weight.grad.any()
    assert torch.equal(new.self_attention.q_proj.weight, larger.model.layers[0].self_attention.q_proj.weight)


def test_token_vectors_as_wide_as_the_model_grow_with_it():
    source = small(TercetDecoderForCausalLM, embedding_size=32, scale_embedding=True)
    assert_close(grown(source, embedding_size=None, **WIDER)(IDS).logits, source(IDS).logits)


def test_the_same_size_is_a_copy_bit_for_bit():
    model = small(TercetDecoderForCausalLM, **VARIANTS["GPT-2"])
    same = grow(model, model.config)
    for name, tensor in model.state_dict().items():
        assert torch.equal(same.state_dict()[name], tensor)


def test_what_the_smaller_model_does_not_have_is_named():
    source = small(TercetEncoderForMaskedLM)
    model = TercetEncoderForPreTraining(TercetEncoderConfig(**SMALL | WIDER))
    fresh = grow_into(model, source)
    assert {name.partition(".")[0] for name in fresh} == {"next_sentence_head"}
    assert_close(model.eval()(IDS).prediction_logits, source(IDS).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "sizes", "message"),
    [
        (
            {},
            {"hidden_size": 48, "num_attention_heads": 6},
            "hidden_size is 48, .* multiple of 32.* choose 64",
        ),
        ({}, {"hidden_size": 64}, "head_dim is 16, but 8 in the smaller model"),
        ({}, {"num_attention_heads": 6, "head_dim": 8}, "num_attention_heads is 6, .*multiple of 4"),
        (
            {"position_embedding_type": "alibi"},
            WIDER,
            "num_attention_heads is 8, but 4 .*'alibi' biases each head by its number",
        ),
        ({}, {"intermediate_size": 40}, "intermediate_size is 40, less than 48"),
        ({}, {"num_hidden_layers": 1}, "num_hidden_layers is 1, less than 2"),
        (POST, {"num_hidden_layers": 3}, "norm_placement='post' a new layer normalizes its input again"),
        ({"position_embedding_type": "sinusoidal"}, WIDER, "sinusoidal positions are computed for a width"),
        ({}, {"norm_eps": 1e-5}, r"norm_eps is 1e-05, but 1e-06 .* set it to 1e-06"),
        ({}, {"vocab_size": 60}, "vocab_size is 60, but 50 in the smaller model"),
        ({}, {"tie_word_embeddings": False}, "tie_word_embeddings is False, but True"),
        ({}, {"embedding_size": 32, "head_transform": True}, "head_transform is True, but False"),
        (VARIANTS["narrow token vectors"], {"embedding_size": 32}, "but 16 and 32 .* no projection"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            {"max_position_embeddings": 48},
            "rope_scaling depends on it; keep it",
        ),
    ],
)
def test_what_could_not_be_equal_is_refused(fields, sizes, message):
    with pytest.raises(ValueError, match=message):
        grown(small(TercetDecoderForCausalLM, **fields), **sizes)


def test_types_of_old_layers_are_kept():
    kinds = ["sliding_attention", "full_attention"]
    model = small(TercetDecoderForCausalLM, sliding_window=3, layer_types=kinds)
    types = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    larger = grown(model, num_hidden_layers=4, layer_types=types)
    assert_close(larger(IDS).logits, model(IDS).logits, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="layer_types says 'full_attention' for layer 0, which takes over"):
        grown(model, num_hidden_layers=4, layer_types=types[::-1][1:] + types[:1])


def test_another_member_is_refused():
    with pytest.raises(
        ValueError, match=r"a tercet_encoder cannot grow from a tercet_decoder: .*tercet convert"
    ):
        grow_into(TercetEncoderForMaskedLM(TercetEncoderConfig(**SMALL)), small(TercetDecoderForCausalLM))


def test_a_tensor_without_a_rule_is_refused():
    model = small(TercetDecoderForCausalLM)
    larger = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL))
    for each in (model, larger):
        each.model.layers[0].register_parameter("gate", torch.nn.Parameter(torch.ones(32)))
    with pytest.raises(ValueError, match=r"no rule by which model.layers.0.gate could grow"):
        grow_into(larger, model)


def test_a_seq2seq_names_the_fields_of_its_decoder():
    model = small(TercetSeq2SeqForConditionalGeneration)
    fields = SMALL | {"decoder_intermediate_size": 40}
    with pytest.raises(ValueError, match="decoder_intermediate_size is 40, less than 48"):
        grow(model, TercetSeq2SeqConfig(**fields))
