"""Runs that cannot be planned."""

import pytest

from tercet.planning.machines import load_plan
from tercet.planning.plan import plan_run


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match="trains a TercetCharacterLanguageModel, whose costs cannot be"):
        plan_run(*load_plan("flair-english", ["device=cpu"]))
