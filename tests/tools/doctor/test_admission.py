"""What cannot be examined is refused in one line with a remedy; what can be loaded is loaded safely."""

import pytest
import torch
from transformers import BertForMaskedLM

from tercet.__main__ import main
from tercet.modeling.saved import model_folder
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.tools.doctor.examined_model import load_examined_model

REMOTE = """
from transformers import BertConfig, BertForMaskedLM


class ForeignConfig(BertConfig):
    model_type = "foreign"


class ForeignModel(BertForMaskedLM):
    config_class = ForeignConfig
"""


@pytest.fixture
def refusal(capsys):
    """Give the function that runs the command on what it refuses, and returns its one line."""

    def refusal(folder) -> str:
        capsys.readouterr()
        assert main(["doctor", str(folder)]) == 2
        printed = capsys.readouterr()
        assert not printed.out
        assert printed.err.startswith("tercet doctor: ")
        assert printed.err.count("\n") == 1
        return printed.err

    return refusal


def test_a_name_that_is_no_folder_is_asked_of_the_hub(refusal, monkeypatch):
    asked = []

    def download(name, **_):
        asked.append(name)
        raise OSError("no network")

    monkeypatch.setattr(model_folder, "snapshot_download", download)
    said = refusal("somebody/some-model")
    assert (
        "somebody/some-model is not a folder, and cannot be loaded from the Hub (no network): check" in said
    )
    assert asked == ["somebody/some-model"]


def test_a_model_on_the_hub_is_downloaded(folder_of, monkeypatch):
    folder = folder_of("encoder")
    monkeypatch.setattr(model_folder, "snapshot_download", lambda name, **_: str(folder))
    examined = load_examined_model(Checkpoint.open("somebody/some-model"))
    assert (examined.name, examined.member) == ("somebody/some-model", "encoder")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"model_type": "nonesuch"}, "nonesuch"),
        ({"hidden_size": "wide"}, "hidden_size"),
        (
            {"architectures": ["BertForImageCaptioning"]},
            "BertForImageCaptioning, which is not supported",
        ),
    ],
)
def test_a_configuration_of_no_model_is_refused(fields, told, refusal, folder_of, edit_json):
    folder = folder_of("bert")
    edit_json(folder / "config.json", **fields)
    assert told in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_damaged_file_is_named(name, refusal, folder_of):
    folder = folder_of("bert")
    (folder / name).write_text("{")
    assert str(folder) in refusal(folder)


def test_truncated_weights_are_named(refusal, folder_of):
    file = folder_of("gpt2") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert f"{file} is damaged" in refusal(file.parent)


@pytest.mark.parametrize("spoil", [lambda file: file.unlink(), lambda file: file.write_bytes(b"{")])
def test_a_missing_or_damaged_shard_is_named(spoil, refusal, folder_of):
    folder = folder_of("decoder")
    load_examined_model(Checkpoint.open(str(folder))).model.save_pretrained(folder, max_shard_size="30KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    assert not load_examined_model(Checkpoint.open(str(folder))).fit.missing
    shard = sorted(folder.glob("model-*"))[1]
    spoil(shard)
    assert shard.name in refusal(folder)


def test_a_damaged_index_is_named(refusal, folder_of):
    index = folder_of("decoder") / "model.safetensors.index.json"
    index.write_text("{}")
    (index.parent / "model.safetensors").unlink()
    assert f"{index} is damaged" in refusal(index.parent)


def test_pickled_weights_are_refused_and_the_remedy_works(refusal, folder_of):
    folder = folder_of("bert")
    model = load_examined_model(Checkpoint.open(str(folder))).model
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    said = refusal(folder)
    assert "pickle (pytorch_model.bin), which may run arbitrary code" in said
    exec(said.split("`")[1], {"BertForMaskedLM": BertForMaskedLM})
    converted = load_examined_model(Checkpoint.open(str(folder))).model
    expected = model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in converted.state_dict().items())


def test_code_that_a_model_brings_runs_only_where_it_is_trusted(
    refusal, folder_of, edit_json, monkeypatch, capsys
):
    folder = folder_of("bert")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder.parent / "modules"))
    (folder / "foreign.py").write_text(REMOTE)
    brought = {"AutoConfig": "foreign.ForeignConfig", "AutoModelForMaskedLM": "foreign.ForeignModel"}
    edit_json(folder / "config.json", model_type="foreign", architectures=["ForeignModel"], auto_map=brought)
    assert "brings its own code: review it, then pass --trust-remote-code" in refusal(folder)
    assert not (folder.parent / "modules").exists()
    assert main(["doctor", str(folder), "--trust-remote-code"]) == 0
    assert "ForeignModel, encoder" in capsys.readouterr().out
