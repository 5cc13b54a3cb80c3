"""`rope_parameters`, transformers' name for all that describes rotary positions, is what our fields say."""

import copy

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from tercet.modeling import TercetDecoderConfig, TercetDecoderForCausalLM, TercetSeq2SeqConfig
from tercet.stock.models import from_stock

KINDS = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
        "rope_theta": 500.0,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 500.0},
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "rope_theta": 500.0,
    },
}
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 37,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}
LENGTH = 24
"""Of the longest sequence: more than `max_position_embeddings`."""


@pytest.fixture(params=KINDS)
def pair(request):
    """Give a stock model, every other one a Qwen3, and ours with its weights."""
    is_qwen = request.param in ("yarn", "linear")
    config_class, model_class = (
        (Qwen3Config, Qwen3ForCausalLM) if is_qwen else (LlamaConfig, LlamaForCausalLM)
    )
    torch.manual_seed(0)
    fields = SIZES | {"head_dim": 8, "rope_parameters": dict(KINDS[request.param])}
    stock = model_class(config_class(**fields)).eval()
    return stock, from_stock(stock).eval()


def batch(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw ids (B, T) and their mask, padded on the left."""
    mask = torch.stack([torch.arange(LENGTH) >= LENGTH - length for length in lengths]).long()
    return torch.randint(3, 61, mask.shape, generator=torch.Generator().manual_seed(0)), mask


@torch.no_grad()
def test_scaled_models_equal_stock_ones_padded_and_packed(pair):
    stock, ours = pair
    assert ours.config.rope_parameters["rope_type"] == stock.config.rope_parameters["rope_type"]
    ids, mask = batch(LENGTH, 11)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = stock(ids, attention_mask=mask, position_ids=positions).logits
    real = mask.bool()
    assert_close(ours(ids, attention_mask=mask).logits[real], expected[real], rtol=1e-4, atol=1e-5)
    packed = ours(ids[real][None], position_ids=positions[real][None]).logits
    assert_close(packed[0], expected[real], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_scaled_models_write_what_stock_ones_do(pair):
    stock, ours = pair
    ids, mask = batch(12, 7)
    ids, mask = ids[:, -12:], mask[:, -12:]
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    options |= {"output_logits": True, "return_dict_in_generate": True}
    theirs, written = (m.generate(ids, attention_mask=mask, **options) for m in (stock, ours))
    assert torch.equal(written.sequences, theirs.sequences)
    assert_close(written.logits[-1], theirs.logits[-1], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_dynamic_wavelengths_do_not_remember_longer_batches():
    config = TercetDecoderConfig(**SIZES, rope_parameters=dict(KINDS["dynamic"]))
    model = TercetDecoderForCausalLM(config).eval()
    ids, _ = batch(LENGTH)
    before = model(ids[:, :18]).logits
    model(ids)
    assert torch.equal(model(ids[:, :18]).logits, before)


@pytest.mark.parametrize("name", KINDS)
def test_both_ways_to_say_it_are_one(name, tmp_path):
    described = dict(KINDS[name])
    config = TercetDecoderConfig(rope_parameters=described, partial_rotary_factor=0.5)
    assert config.rope_theta == 500.0
    numbers = {key: value for key, value in described.items() if key != "rope_theta"}
    assert config.rope_scaling == (None if name == "default" else numbers)
    ours = TercetDecoderConfig(rope_theta=500.0, rope_scaling=config.rope_scaling, partial_rotary_factor=0.5)
    assert config.rope_parameters == ours.rope_parameters
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert loaded.rope_parameters == config.rope_parameters
    assert "rope_parameters" not in config.to_dict()  # a file says everything once


def test_what_is_changed_later_takes_effect():
    config = TercetDecoderConfig(**SIZES)
    config.rope_theta = 7.0
    assert config.rope_parameters is not None
    assert config.rope_parameters["rope_theta"] == 7.0
    config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 9.0}
    assert (config.rope_theta, config.rope_scaling) == (9.0, {"rope_type": "linear", "factor": 2.0})
    config.rope_parameters.update(factor=5.0)
    model = TercetDecoderForCausalLM(copy.deepcopy(config))
    assert model.model.embeddings.positions.rotary_emb.scaling.factor == 5.0
    assert AutoConfig.for_model(**config.to_dict()).rope_scaling["factor"] == 5.0


def test_types_of_layers_may_have_their_own_base():
    kinds = {"full_attention": {"rope_theta": 500.0}, "sliding_attention": {"rope_theta": 50.0}}
    fields = {"layer_types": [*kinds], "sliding_window": 4, "num_hidden_layers": 2}
    config = TercetDecoderConfig(**SIZES | fields, rope_parameters=kinds)
    assert (config.rope_theta, config.local_rope_theta) == (500.0, 50.0)
    assert {kind: one["rope_theta"] for kind, one in config.rope_parameters.items()} == {
        "full_attention": 500.0,
        "sliding_attention": 50.0,
    }


def test_both_stacks_of_seq2seq_are_scaled():
    config = TercetSeq2SeqConfig(rope_parameters=dict(KINDS["yarn"]))
    for part in (config.encoder_config(), config.decoder_config()):
        assert part.rope_parameters == config.rope_parameters


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rope_theta": 5.0, "rope_parameters": {"rope_theta": 6.0}}, "rope_theta is 5.0, but by rope_"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_theta": 6.0}},
            "rope_scaling is .* it is None: give one of the two",
        ),
        ({"position_embedding_type": "learned", "rope_parameters": {"rope_theta": 6.0}}, "choose 'rotary'"),
        ({"rope_parameters": {"everywhere": {"rope_theta": 6.0}}}, "one dictionary for all layers"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "rope_type 'longrope': choose one"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "beta_fast": 3}}, "give exactly"),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 2.0},
                    "sliding_attention": {"rope_type": "default"},
                }
            },
            "must have the same scaling",
        ),
    ],
)
def test_contradictions_are_refused(fields, words):
    with pytest.raises(Exception, match="(?s)" + words):
        TercetDecoderConfig(**fields)


def test_a_field_that_is_not_ours_is_told(caplog, monkeypatch):
    told = []
    monkeypatch.setattr("tercet.modeling.configuration_neural.logger.warning_once", told.append)
    TercetDecoderConfig(**SIZES, rope_thetta=5.0)
    assert told == [
        "TercetDecoderConfig has no field 'rope_thetta': it is kept, but changes nothing (did you mean "
        "'rope_theta'?)"
    ]
    TercetDecoderConfig(**TercetDecoderConfig(num_labels=3).to_dict() | {"torch_dtype": "float32"})
    assert len(told) == 1


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_the_length_of_the_first_training_stays_when_more_positions_are_allowed(kind, tmp_path):
    unsaid = ("rope_theta", "original_max_position_embeddings")
    scaling = {key: value for key, value in KINDS[kind].items() if key not in unsaid}
    fresh, given_later = TercetDecoderConfig(**SIZES, rope_scaling=scaling), TercetDecoderConfig(**SIZES)
    given_later.rope_scaling = scaling
    fresh.save_pretrained(tmp_path)
    for config in (fresh, given_later, TercetDecoderConfig.from_pretrained(tmp_path)):
        assert config.rope_parameters == TercetDecoderConfig.from_pretrained(tmp_path).rope_parameters
        config.max_position_embeddings = 64
        model = TercetDecoderForCausalLM(config)
        assert (model.config.rope_scaling or {})["original_max_position_embeddings"] == 16
