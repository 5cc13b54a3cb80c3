"""Models of every attention pattern pass the doctor."""

import pytest

from tercet.modeling.attention_patterns import PATTERNS

FIELDS = {
    "sliding_window": 3,
    "attention_stride": 3,
    "attention_block_size": 2,
    "attention_global_tokens": 2,
    "attention_random_blocks": 1,
}


@pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])
@pytest.mark.parametrize("kind", [kind for kind, pattern in PATTERNS.items() if not pattern.is_window])
def test_a_model_of_any_pattern_is_sound(kind, member, folder_of, complaints):
    folder = folder_of(member, layer_types=[kind, "full_attention"], **FIELDS)
    assert complaints(folder) == complaints(folder_of(member))
