"""Growth keeps the function of every kind of model, or is refused."""

from itertools import product
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch.testing import assert_close

from tercet.conversion.growth import grow
from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetEncoderForMaskedLM,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.attention.patterns import PATTERNS
from tercet.modeling.attention.scores import GATES, SCORES
from tercet.modeling.layers.positions import POSITIONS

from ..corners import corners

MEMBERS: dict[str, Any] = {
    "encoder": TercetEncoderForMaskedLM,
    "decoder": TercetDecoderForCausalLM,
    "seq2seq": TercetSeq2SeqForConditionalGeneration,
}
SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "head_dim": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}
OF_PATTERNS: dict[str, Any] = {
    "sliding_window": 4,
    "attention_stride": 3,
    "attention_block_size": 2,
    "attention_global_tokens": 1,
    "attention_random_blocks": 1,
}
PLACEMENTS: dict[str, dict[str, Any]] = {
    "pre": {"norm_placement": "pre"},
    "post": {"norm_placement": "post"},
    "parallel": {"norm_placement": "parallel"},
    "without a first norm": {"norm_placement": "pre", "embedding_norm": True, "first_norm": False},
}
SIZES: dict[str, dict[str, Any]] = {
    "more key heads": {"num_key_value_heads": 4},
    "more heads": {"num_attention_heads": 8},
    "more of both": {"num_attention_heads": 8, "num_key_value_heads": 4},
    "wider": {"hidden_size": 64},
    "deeper": {"num_hidden_layers": 5},
    "more neurons": {"intermediate_size": 48},
    "longer": {"max_position_embeddings": 64},
    "all": {
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
    },
}
REFUSALS = (
    "biases each head by its number",
    "sinusoidal positions are computed for a width",
    "a new layer normalizes its input again",
    "no rule by which",
)
"""What may be said instead of a larger model that is equal."""

IDS = torch.randint(3, 50, (2, 32), generator=torch.Generator().manual_seed(0))


USUAL = ("decoder", "rotary", "scaled_dot_product", "full_attention", "none", "pre")


def num_unusual(*point: str) -> int:
    """Count in how many ways a model is no decoder of today."""
    return sum(one != usual for one, usual in zip(point, USUAL, strict=True))


POINTS = product(MEMBERS, POSITIONS, SCORES, PATTERNS, GATES, PLACEMENTS)


@pytest.mark.parametrize(
    "point",
    corners(
        [point for point in POINTS if num_unusual(*point) <= 2], keep=lambda point: num_unusual(*point) <= 1
    ),
    ids="-".join,
)
def test_a_grown_model_is_equal_or_refused(point):
    member, positions, score, pattern, gate, placement = point
    fields = {"position_embedding_type": positions, "attention_score": score, "attention_gate": gate}
    model_class = MEMBERS[member]

    def config(**sizes):
        own = SMALL | OF_PATTERNS | fields | PLACEMENTS[placement] | sizes
        return model_class.config_class(**own, layer_types=[pattern] * own["num_hidden_layers"])

    try:
        small = config()
    except StrictDataclassError:
        return  # there is no such model
    torch.manual_seed(0)
    model = model_class(small).eval()
    inputs = {"input_ids": IDS} | ({"decoder_input_ids": IDS.flip(1)} if member == "seq2seq" else {})
    with torch.no_grad():
        expected = model(**inputs).logits
        for sizes in SIZES.values():
            try:
                larger = grow(model, config(**sizes))
            except ValueError as error:
                assert any(reason in str(error) for reason in REFUSALS)  # noqa: PT017
                continue
            assert_close(larger(**inputs).logits, expected, atol=2e-4, rtol=1e-4)
