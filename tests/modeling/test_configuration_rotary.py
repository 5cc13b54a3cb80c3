"""Keys of `rope_parameters` are overridden one by one, as a command line names them."""

import pytest
from huggingface_hub.errors import StrictDataclassError

from tercet.modeling import TercetDecoderConfig
from tercet.modeling.configuration_rotary import join_overrides

BASE = {"rope_theta": 1e6}
PARTIAL = {"rope_theta": 500.0, "partial_rotary_factor": 0.25}
LINEAR = {"rope_type": "linear", "factor": 2.0}
LONGER = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 16.0}
NESTED = {"full_attention": PARTIAL, "sliding_attention": {"rope_theta": 50.0}}


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        (PARTIAL, BASE, PARTIAL | BASE),
        (PARTIAL, LINEAR, PARTIAL | LINEAR),
        (LONGER | PARTIAL, {"factor": 2.0}, LONGER | PARTIAL | {"factor": 2.0}),
        (LONGER | PARTIAL, LINEAR, PARTIAL | LINEAR),
        (LONGER | PARTIAL, {"rope_type": "default"}, PARTIAL | {"rope_type": "default"}),
        (NESTED, {"sliding_attention": BASE}, NESTED | {"sliding_attention": BASE}),
        (NESTED, LINEAR, {kind: each | LINEAR for kind, each in NESTED.items()}),
        (PARTIAL, NESTED, {kind: PARTIAL | each for kind, each in NESTED.items()}),
        (None, BASE, BASE),
        (PARTIAL, None, None),
        (PARTIAL, 5, 5),
    ],
    ids=str,
)
def test_what_is_not_given_stays(own, given, expected):
    fields, overrides = {"rope_parameters": own}, {"rope_parameters": given, "dropout": 0.1}
    assert join_overrides(fields, overrides) == {"rope_parameters": expected, "dropout": 0.1}


def test_other_positions_leave_nothing_of_rotary_ones():
    fields = TercetDecoderConfig(rope_parameters=BASE).to_dict()
    overrides = join_overrides(fields, {"position_embedding_type": "alibi"})
    assert TercetDecoderConfig(**fields | overrides).rope_parameters is None


@pytest.mark.parametrize("wrong", [{"sliding_attention": BASE}, NESTED | BASE, {"everywhere": BASE}])
def test_keys_that_cannot_be_joined_are_refused(wrong):
    fields = TercetDecoderConfig(rope_parameters=PARTIAL).to_dict()
    with pytest.raises(
        StrictDataclassError, match="give one dictionary for all layers, or one each for full_"
    ):
        TercetDecoderConfig(**fields | join_overrides(fields, {"rope_parameters": wrong}))
