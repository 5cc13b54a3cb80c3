"""Heads and blocks are found in every model, by class or structure, and nothing else is taken for them."""

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    MambaConfig,
    MambaForCausalLM,
)

from tercet.tools.inspect.inspected_model import find_attention, find_blocks, untrained

from ...stock_models import SIZES
from .conftest import MODELS, build

TWO_STACKS = ("seq2seq", "bart", "t5")


@pytest.mark.parametrize("name", MODELS)
def test_all_heads_and_blocks_are_found(name):
    model = build(name)
    found = find_attention(model)
    kinds = [layer.kind for layer in found]
    if name in TWO_STACKS:
        assert {kind: kinds.count(kind) for kind in kinds} == {"encoder": 2, "decoder": 2, "cross": 2}
    else:
        assert kinds == ["self", "self"]
    assert all((layer.num_heads, layer.head_dim) == (4, 8) for layer in found)
    assert all(isinstance(model.get_submodule(layer.name), type(layer.module)) for layer in found)
    blocks = find_blocks(model)
    assert len(blocks) == 2
    inside = {id(module) for block in blocks for module in block.modules()}
    assert sum(id(layer.output) in inside for layer in found) == (4 if name in TWO_STACKS else 2)


def test_a_model_without_heads_is_refused():
    mamba = MambaForCausalLM(MambaConfig(vocab_size=9, hidden_size=8, state_size=4, num_hidden_layers=1))
    with pytest.raises(
        ValueError, match="no attention heads were found in MambaForCausalLM: give a Transformer"
    ):
        find_attention(mamba)


def test_layers_that_share_a_module_cannot_be_told_apart():
    config = AlbertConfig(vocab_size=9, embedding_size=8, **SIZES)
    model = AlbertForMaskedLM(config)
    assert len(find_attention(model)) == 1
    with pytest.raises(ValueError, match="are one module"):
        find_blocks(model)


def test_untrained_models_have_the_same_size_and_other_weights():
    model = build("bert", seed=5)
    state = torch.get_rng_state()
    first, again, other = (untrained(model, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    weights = [each.bert.encoder.layer[0].output.dense.weight for each in (model, first, again, other)]
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[1], weights[3])
    assert not torch.equal(weights[1], weights[0])
    assert float(weights[0].std() / weights[1].std()) == pytest.approx(1, abs=0.2)
