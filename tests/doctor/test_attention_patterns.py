"""Models of every attention pattern pass the doctor."""

import pytest

from tercet.modeling.attention.patterns import PATTERNS

FIELDS = {
    "sliding_window": 3,
    "attention_stride": 3,
    "attention_block_size": 2,
    "attention_global_tokens": 2,
    "attention_random_blocks": 1,
}


CASES = [
    (kind, member)
    for kind, pattern in PATTERNS.items()
    for member in ("encoder", "decoder", "seq2seq")
    if not pattern.is_window and (member == "encoder" or not pattern.is_bidirectional_only)
]


@pytest.mark.parametrize(("kind", "member"), CASES)
def test_a_model_of_any_pattern_is_sound(kind, member, folder_of, complaints):
    folder = folder_of(member, layer_types=[kind, "full_attention"], **FIELDS)
    assert complaints(folder) == complaints(folder_of(member))
