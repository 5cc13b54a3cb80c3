"""What sparse patterns cost: operations on the pairs of their blocks, and memory like the length."""

import pytest
import torch
from transformers import AutoModel

from tercet.objectives.base_recipe import FullSequence
from tercet.planning.model_costs import build_planned_model, count, count_flops, trace_kept

from .counting import bytes_kept
from .test_model_costs import SIZES, recipe_of

BLOCKS = {
    "attention_block_size": 4,
    "attention_window_blocks": 1,
    "attention_global_tokens": 0,
    "attention_random_blocks": 0,
}
TYPES = ["big_bird_attention", "full_attention"]
SPARSE = {
    "big_bird": {"layer_types": TYPES, "attention_block_size": 16, "attention_global_tokens": 8},
    "sliding": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 40},
}


@pytest.mark.parametrize(
    ("fields", "encoder_pairs", "decoder_pairs"),
    [
        ({}, 16 * 16, 16 * 16),
        ({"attention_window_blocks": 2}, (3 * 16 - 2) * 16, (2 * 16 - 1) * 16),
        # A block with a global token sees all, or all before it, and all others see it.
        ({"attention_global_tokens": 3}, (16 + 15 * 2) * 16, (1 + 15 * 2) * 16),
    ],
)
def test_a_sparse_layer_meets_the_pairs_of_its_blocks(fields, encoder_pairs, decoder_pairs):
    for kind, pairs in (
        ("masked_language_modeling", encoder_pairs),
        ("causal_language_modeling", decoder_pairs),
    ):
        sparse_fields = BLOCKS | fields | {"layer_types": TYPES}
        models = [build_planned_model(recipe_of(kind, **more)) for more in ({}, sparse_fields)]
        assert count(models[:1]) == count(models[1:])
        full, sparse = (count_flops(model, FullSequence(64, 0, 10)) for model in models)
        assert full - sparse == 6 * 2 * (64**2 - pairs) * SIZES["hidden_size"]
        full, sparse = (count_flops(model, FullSequence(3, 0, 3)) for model in models)
        assert full == sparse


def kept_of_stream(model, length, num_sequences):
    """Count the bytes that autograd keeps of packed sequences."""
    bounds = torch.arange(num_sequences + 1, dtype=torch.int32) * length
    ids = torch.zeros(1, num_sequences * length, dtype=torch.long)
    without_cache = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    return bytes_kept(model, lambda: model(input_ids=ids, cu_seq_lens_q=bounds, **without_cache))


@pytest.mark.parametrize("kind", ["masked_language_modeling", "causal_language_modeling"])
@pytest.mark.parametrize("pattern", SPARSE)
def test_long_sequences_keep_their_blocks(pattern, kind):
    """Within 6 %; full layers, which keep their length as well, do not change that."""
    config = build_planned_model(recipe_of(kind, max_position_embeddings=800, **SPARSE[pattern])).config
    config.attention_dropout = config.dropout = config.activation_dropout = 0.0
    model = AutoModel.from_config(config, attn_implementation="sdpa").train()
    planned = []
    for length in (400, 800):
        sequence = FullSequence(length, 0, length - 1)
        planned.append(trace_kept(config, sequence, precision="fp32", is_cpu=True).per_sequence)
        one, two = (kept_of_stream(model, length, number) for number in (1, 2))
        assert planned[-1] == pytest.approx(two - one, rel=0.06)
    assert planned[1] == pytest.approx(2 * planned[0], rel=0.01)
