"""What a model came with beside what it is: code of others, kernels, files. It is not saved again."""

import json

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling import TercetEncoderConfig, TercetEncoderForMaskedLM
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.model_folder import load_tokenizer, save_tokenizer
from tercet.modeling.saved.saving import save_loadable

THEIRS = "them/theirs--code.Theirs"
SIZES = {"vocab_size": 90, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def change(file, **fields) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.fixture
def folder(tmp_path):
    TercetEncoderForMaskedLM(TercetEncoderConfig(**SIZES)).save_pretrained(tmp_path / "theirs")
    train_tokenizer(["a b c ab bc abc"], "wordpiece", 90).save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.mark.parametrize("with_code", [False, True])
def test_a_configuration_of_theirs_is_saved_by_its_fields(with_code, folder, tmp_path, capsys):
    foreign = {
        "auto_map": {"AutoModel": THEIRS},
        "custom_pipelines": {"fill-mask": {"impl": THEIRS}},
        "transformers_weights": "model.safetensors",
        "favourite": "blue",
    }
    change(folder / "config.json", **foreign, id2label={"0": "bad", "1": "good"})
    save_loadable(Checkpoint.open(str(folder)).ours(), tmp_path / "ours", with_code=with_code)
    saved = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert not {"custom_pipelines", "transformers_weights", "favourite"} & {*saved}
    assert THEIRS not in json.dumps(saved)
    assert ("auto_map" in saved) is with_code
    assert saved["id2label"] == {"0": "bad", "1": "good"}
    assert Checkpoint.open(str(tmp_path / "ours")).ours().config.hidden_size == 16
    named = "" if with_code else f"auto_map ({THEIRS}), "
    assert f"config.json: left out {named}custom_pipelines, favourite, which " in capsys.readouterr().err


def test_a_tokenizer_of_theirs_is_saved_by_what_it_is(folder, tmp_path, capsys):
    file = folder / "tokenizer_config.json"
    change(file, auto_map={"AutoTokenizer": [None, THEIRS]}, favourite="blue", image_token="c")
    save_tokenizer(load_tokenizer(folder), tmp_path / "ours")
    saved = json.loads((tmp_path / "ours" / "tokenizer_config.json").read_text())
    assert not {"auto_map", "favourite"} & {*saved}
    assert saved["image_token"] == "c"
    assert capsys.readouterr().err.count(f"left out auto_map ({THEIRS}), favourite, which") == 1
    loaded = AutoTokenizer.from_pretrained(tmp_path / "ours", trust_remote_code=True)
    assert isinstance(loaded, PreTrainedTokenizerFast)


def test_of_what_tercet_makes_everything_is_saved_without_a_word(folder, tmp_path, capsys):
    save_loadable(Checkpoint.open(str(folder)).ours(), tmp_path / "ours", with_code=True)
    save_tokenizer(load_tokenizer(folder), tmp_path / "ours")
    save_loadable(Checkpoint.open(str(tmp_path / "ours")).ours(), tmp_path / "again", with_code=True)
    save_tokenizer(load_tokenizer(tmp_path / "ours"), tmp_path / "again")
    assert "left out" not in capsys.readouterr().err
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
