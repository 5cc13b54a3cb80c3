"""One set of weights in two readings: causal, and with masked tokens in both directions."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from tercet.modeling import TercetDecoderConfig, TercetDecoderForCausalLM, TercetDecoderForMaskedLM
from tercet.modeling.heads.losses import IGNORE

IDS = torch.arange(5, 23).view(2, 9)


def config(**changes) -> TercetDecoderConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return TercetDecoderConfig(**{"vocab_size": 50, "max_position_embeddings": 64} | sizes | changes)


@pytest.fixture
def causal() -> TercetDecoderForCausalLM:
    torch.manual_seed(0)
    return TercetDecoderForCausalLM(config()).eval()


@pytest.fixture
def masked(causal) -> TercetDecoderForMaskedLM:
    masked = TercetDecoderForMaskedLM(causal.config).eval()
    masked.load_state_dict(causal.state_dict())
    return masked


def test_both_auto_classes_load_what_either_has_saved(causal, tmp_path):
    causal.save_pretrained(tmp_path / "causal")
    masked = AutoModelForMaskedLM.from_pretrained(tmp_path / "causal")
    assert type(masked) is TercetDecoderForMaskedLM
    masked.save_pretrained(tmp_path / "masked")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "masked")
    assert type(again) is TercetDecoderForCausalLM
    for name, weight in causal.state_dict().items():
        assert torch.equal(masked.state_dict()[name], weight)
        assert torch.equal(again.state_dict()[name], weight)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_masked_token_is_predicted_by_the_state_before_it(causal, masked, implementation):
    causal.set_attn_implementation(implementation)
    masked.set_attn_implementation(implementation)
    logits = masked(IDS).logits
    torch.testing.assert_close(logits[:, 1:], causal(IDS, is_causal=False).logits[:, :-1])


@pytest.mark.parametrize("use_cache", [False, True, None])
def test_whoever_speaks_of_a_cache_gets_the_same_without_one(masked, use_cache):
    outputs = masked(IDS, use_cache=use_cache)
    assert torch.equal(outputs.logits, masked(IDS).logits)
    assert "past_key_values" not in outputs


@pytest.mark.parametrize("sliding_window", [None, 3])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_later_token_changes_earlier_states_in_one_reading_only(implementation, sliding_window):
    torch.manual_seed(0)
    causal = TercetDecoderForCausalLM(config(sliding_window=sliding_window)).eval()
    causal.set_attn_implementation(implementation)
    other = IDS.clone()
    other[:, 4] = 7
    for is_causal, changed in ((None, [4, 5, 6, 7, 8]), (False, [*range(9)])):
        difference = (
            causal(IDS, is_causal=is_causal).logits - causal(other, is_causal=is_causal).logits
        ).abs()
        assert torch.nonzero(difference.amax(dim=(0, 2)) > 1e-6).flatten().tolist() == changed


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_packed_sequences_equal_padded_ones_in_both_readings(causal, masked, implementation):
    causal.set_attn_implementation(implementation)
    masked.set_attn_implementation(implementation)
    packed = torch.cat([IDS[0, :6], IDS[1]])[None]
    bounds = torch.tensor([0, 6, 15], dtype=torch.int32)
    lengths = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": 9, "max_length_k": 9}
    alone = masked(IDS[:1, :6]).logits[0], masked(IDS[1:]).logits[0]
    found = masked(packed, **lengths).logits[0]
    torch.testing.assert_close(found[1:6], alone[0][1:])
    torch.testing.assert_close(found[7:], alone[1][1:])
    found = causal(packed, is_causal=False, **lengths).logits[0]
    torch.testing.assert_close(found[:6], causal(IDS[:1, :6], is_causal=False).logits[0])


def test_pads_on_either_side_change_nothing(masked):
    mask, short = torch.ones_like(IDS), masked(IDS[:1, :6]).logits[0, 1:]
    mask[0, 6:] = 0
    torch.testing.assert_close(masked(IDS, attention_mask=mask).logits[0, 1:6], short)
    left = IDS.clone()
    left[0, 3:] = IDS[0, :6]
    torch.testing.assert_close(masked(left, attention_mask=mask.flip(1)).logits[0, 4:], short)


def test_losses_of_both_classes_are_equal_in_training_and_evaluation(causal, masked):
    labels = torch.full_like(IDS, IGNORE)
    labels[:, [0, 3, 7]] = IDS[:, [0, 3, 7]]
    shifted = torch.full_like(IDS, IGNORE)
    shifted[:, [2, 6]] = IDS[:, [3, 7]]
    expected = causal(IDS, shift_labels=shifted, is_causal=False).loss
    for model in (masked, masked.train()):
        torch.testing.assert_close(model(IDS, labels=labels).loss, expected)
        torch.testing.assert_close(model(IDS, shift_labels=shifted).loss, expected)


def test_sequences_may_begin_at_any_position(causal, masked):
    packed, positions = IDS[:1, :7], torch.tensor([[5, 6, 7, 8, 57, 58, 59]])
    parts = [(packed[:, part], positions[:, part]) for part in (slice(4), slice(4, 7))]
    for model in (causal, masked, causal.train(), masked.train()):
        found = model(packed, position_ids=positions, labels=packed, reduction="sum").loss
        alone = [model(ids, position_ids=own, labels=ids, reduction="sum").loss for ids, own in parts]
        torch.testing.assert_close(found, sum(alone))
        one_by_one = model(packed, position_ids=7 - positions, labels=packed).loss  # each by itself
        assert one_by_one == 0


def test_gradients_pass_checkpointing(causal):
    shifted = IDS.roll(-1, dims=1)
    gradients = []
    for is_checkpointed in (False, True):
        causal.train().zero_grad()
        if is_checkpointed:
            causal.gradient_checkpointing_enable()
        (causal(IDS, shift_labels=shifted, is_causal=False).loss + causal(IDS, labels=IDS).loss).backward()
        gradients.append([parameter.grad.clone() for parameter in causal.parameters()])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)


def test_a_bias_of_one_direction_serves_no_other():
    model = TercetDecoderForCausalLM(config(position_embedding_type="relative_bias"))
    with pytest.raises(ValueError, match="is_causal=False, but a bias of relative positions is learned"):
        model(IDS, is_causal=False)


def test_a_bias_of_one_direction_is_loaded_as_one_reading_only(tmp_path):
    causal = TercetDecoderForCausalLM(config(position_embedding_type="relative_bias"))
    causal.save_pretrained(tmp_path)
    message = "is_causal=False, but a bias of relative positions is learned for is_causal=True: choose"
    with pytest.raises(ValueError, match=message):
        AutoModelForMaskedLM.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        TercetDecoderForMaskedLM(causal.config)
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path)(IDS).logits, causal.eval()(IDS).logits)


def test_a_bias_without_a_direction_is_loaded_as_both_readings(tmp_path):
    causal = TercetDecoderForCausalLM(config(position_embedding_type="alibi")).eval()
    causal.save_pretrained(tmp_path)
    masked = AutoModelForMaskedLM.from_pretrained(tmp_path)
    torch.testing.assert_close(masked(IDS).logits[:, 1:], causal(IDS, is_causal=False).logits[:, :-1])
