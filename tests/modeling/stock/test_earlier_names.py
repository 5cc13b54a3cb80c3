"""Exported folders are read as well by programs that know the names of transformers 4 alone."""

import json

import pytest
from transformers import AutoConfig

from tercet.__main__ import main
from tercet.modeling.stock import from_stock
from tercet.tools.import_export.earlier_names import with_global_layers

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 40}


@pytest.mark.parametrize(
    ("name", "rotary", "fields"),
    [
        ("LlamaForCausalLM", LLAMA3 | {"rope_theta": 5e5}, {"rope_theta": 5e5, "rope_scaling": LLAMA3}),
        ("MistralModel", {"rope_theta": 1e6}, {"rope_theta": 1e6, "rope_scaling": None}),
        (
            "GPTNeoXModel",
            {"rope_theta": 2e4, "partial_rotary_factor": 0.5},
            {"rotary_emb_base": 2e4, "rotary_pct": 0.5, "rope_scaling": None},
        ),
        (
            "ModernBertModel",
            {"full_attention": {"rope_theta": 3e4}, "sliding_attention": {"rope_theta": 2e4}},
            {"global_rope_theta": 3e4, "local_rope_theta": 2e4, "global_attn_every_n_layers": 3},
        ),
    ],
)
def test_exported_folder_has_the_names_that_earlier_versions_read(
    stock, tokenizer, tmp_path, name, rotary, fields
):
    """They take their defaults for what they do not know (vLLM pull request 42624)."""
    rotary = {k: {"rope_type": "default"} | v if isinstance(v, dict) else v for k, v in rotary.items()}
    is_flat = "rope_theta" in rotary
    source, ours, back = (tmp_path / folder for folder in ("stock", "ours", "back"))
    rotary = {"rope_type": "default"} | rotary if is_flat else rotary
    stock(name, rope_parameters=rotary).save_pretrained(source)
    tokenizer.save_pretrained(source)
    assert main(["import", str(source), str(ours)]) == 0
    assert main(["export", str(ours), str(back), "--to", AutoConfig.from_pretrained(source).model_type]) == 0
    told = json.loads((back / "config.json").read_text())
    assert {key: told.get(key, "nothing") for key in fields} == fields
    told = [AutoConfig.from_pretrained(path).rope_parameters for path in (source, back)]
    assert told[0] == told[1]
    tokenizer = json.loads((back / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"


@pytest.mark.parametrize(
    ("name", "now", "earlier"),
    [
        ("LlamaForCausalLM", LLAMA3 | {"rope_theta": 5e5}, {"rope_theta": 5e5, "rope_scaling": LLAMA3}),
        (
            "LlamaForCausalLM",
            {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
        ),
        (
            "GPTNeoXModel",
            {"rope_theta": 2e4, "partial_rotary_factor": 0.5},
            {"rotary_emb_base": 2e4, "rotary_pct": 0.5},
        ),
        (
            "ModernBertModel",
            {"full_attention": {"rope_theta": 3e4}, "sliding_attention": {"rope_theta": 2e4}},
            {"global_rope_theta": 3e4, "local_rope_theta": 2e4},
        ),
    ],
)
def test_folder_of_an_earlier_version_is_read_as_one_of_this(stock, tmp_path, name, now, earlier):
    stock(name, rope_parameters=now).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = from_stock(str(tmp_path)).config.to_dict()
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    path.write_text(json.dumps(config | earlier))
    assert from_stock(str(tmp_path)).config.to_dict() == fields


@pytest.mark.parametrize(
    ("layers", "every"), [("fsfsf", 2), ("fssf", 3), ("fsss", 4), ("ff", 1), ("ffs", None), ("sf", None)]
)
def test_global_layers_of_a_modernbert_are_told_as_every_how_many(layers, every):
    """Version 4 knows no types of layers, and takes every third one for global where it finds no number."""
    kinds = {"f": "full_attention", "s": "sliding_attention"}
    config = {"model_type": "modernbert", "layer_types": [kinds[each] for each in layers]}
    told = {} if every is None else {"global_attn_every_n_layers": every}
    assert with_global_layers(config) == config | told


def test_tokenizer_that_is_read_as_another_one_is_refused(stock, tokenizer, tmp_path, capsys):
    from_stock(stock("Qwen2Model")).save_pretrained(tmp_path / "ours")
    tokenizer.save_pretrained(tmp_path / "ours")
    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "back"), "--to", "qwen2"]) == 2
    assert "beside a qwen2 as Qwen2Tokenizer, with other tokens" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()
