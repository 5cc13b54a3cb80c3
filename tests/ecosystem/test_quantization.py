"""Linear layers in eight bits: torch's dynamic quantization, of weights once, and of vectors as they come."""

import copy

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic

WORST = 0.2
"""Relative error that rounding may cause, in two layers of large random weights."""

pytestmark = [
    pytest.mark.skipif(torch.backends.quantized.engine == "none", reason="this torch cannot quantize"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def quantized(model: nn.Module) -> nn.Module:
    """Return a quantized copy."""
    return quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)


@pytest.mark.ecosystem("torch", "`quantize_dynamic`: int8 linear layers")
def test_every_linear_layer_is_quantized_and_little_is_lost(member, layout, build, batch_for):
    model, inputs = build(member, **layout), batch_for(member)
    small = quantized(model)
    assert not any(isinstance(module, nn.Linear) for module in small.modules())
    is_read = ... if member == "seq2seq" else inputs["attention_mask"].bool()
    with torch.no_grad():
        expected, logits = model(**inputs).logits[is_read], small(**inputs).logits[is_read]
    assert 0 < (logits - expected).norm() / expected.norm() < WORST


@torch.no_grad()
@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
@pytest.mark.ecosystem("torch", "`generate` of int8 models")
def test_quantized_models_write_what_their_own_steps_say(member, build, prompt):
    """How vectors are rounded depends on what is read at once: the definition, too, reads behind a cache."""
    model = quantized(build(member))
    generated = model.generate(prompt, do_sample=False, max_new_tokens=6, eos_token_id=None)
    is_decoder = member == "decoder"
    written = read = prompt if is_decoder else torch.zeros_like(prompt[:, :1])
    past = None
    for _ in range(6):
        inputs = {"input_ids": read} if is_decoder else {"input_ids": prompt, "decoder_input_ids": read}
        outputs = model(**inputs, past_key_values=past, use_cache=True)
        past, read = outputs.past_key_values, outputs.logits[:, -1:].argmax(-1)
        written = torch.cat((written, read), dim=1)
    assert torch.equal(generated, written)
