"""Every preset is exported with its certificate, or says what it gains by being no stock architecture."""

import re
from importlib.resources import files

import pytest
import torch
from transformers import AutoConfig

from tercet import modeling
from tercet.configs.recipe import load_preset, preset_names
from tercet.modeling import TercetConfig
from tercet.modeling.stock import certify, from_stock, to_stock
from tercet.modeling.stock.architectures import options_of_export

SMALL = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 40}
EXCUSE = "# No stock architecture: "


def comment_of(name: str) -> str:
    """Return the lines before the first field."""
    text = (files("tercet.configs") / "model" / f"{name}.yaml").read_text()
    return "\n".join(line for line in text.splitlines() if line.startswith("#"))


def shrunk(name: str) -> dict:
    """Return the fields of a preset, as small as they can be with all that says what it computes."""
    fields = load_preset(name)
    small = fields | {key: value for key, value in SMALL.items() if key in fields}
    ratio = fields["num_attention_heads"] // fields.get("num_key_value_heads", fields["num_attention_heads"])
    small |= {"num_attention_heads": 4, "num_hidden_layers": 2, "initializer_range": 0.2}
    if "num_key_value_heads" in fields:
        small["num_key_value_heads"] = 4 // ratio
    if "layer_types" in fields:
        small["layer_types"] = fields["layer_types"][:2]
    small |= {key: size for key, size in (("head_dim", 16), ("embedding_size", 16)) if key in fields}
    ids = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    told = {key: fields[key] for key in ids if fields.get(key) is not None}
    return small | {key: idx if idx < 61 else place for place, (key, idx) in enumerate(told.items())}


TRANSFORMERS = [
    name for name in preset_names() if isinstance(AutoConfig.for_model(**load_preset(name)), TercetConfig)
]
OTHERS = sorted(set(preset_names()) - set(TRANSFORMERS))
DISTINCT = {str(shrunk(name)): name for name in reversed(TRANSFORMERS)}
"""Presets of several sizes are one when they are small: each is tried once."""


def dropouts(config: TercetConfig) -> dict[str, float]:
    """Read where a model drops, and how much."""
    return {name: config.dropout_of(name) for name in vars(config) if name.endswith("dropout")}


@pytest.mark.parametrize("name", sorted(DISTINCT.values()))
def test_a_preset_is_exported_or_says_what_it_gains(name: str) -> None:
    comment = comment_of(name)
    model_class = getattr(modeling, re.search(r"\((Tercet\w+)\)", comment)[1])  # pyright: ignore[reportOptionalSubscript]
    torch.manual_seed(0)
    ours = model_class(AutoConfig.for_model(**shrunk(name))).eval()
    if EXCUSE not in comment:
        stock = to_stock(ours)
        ours.config.architectures = [model_class.__name__]
        assert options_of_export(ours.config) == ""
        assert certify(stock, ours).holds
        assert dropouts(from_stock(stock).config) == dropouts(ours.config)
        return
    nearest = re.search(rf"{EXCUSE}(.*)", comment)[1]  # pyright: ignore[reportOptionalSubscript]
    with pytest.raises(ValueError, match="the nearest is ") as refusal:
        to_stock(ours)
    assert options_of_export(ours.config) == " --onnx"
    architecture = re.search(r"the nearest is (\w+)", str(refusal.value))[1]  # pyright: ignore[reportOptionalSubscript]
    assert architecture in nearest.lower() + " marian" * (name == "vaswani-base")


def test_sizes_of_a_preset_have_the_same_excuse() -> None:
    excuses = {name: EXCUSE in comment_of(name) for name in TRANSFORMERS}
    assert all(excuses[name] == excuses[DISTINCT[str(shrunk(name))]] for name in TRANSFORMERS)


@pytest.mark.parametrize("name", OTHERS)
def test_a_preset_without_attention_layers_says_that_there_is_no_other(name: str) -> None:
    assert EXCUSE in comment_of(name)
