"""A tokenizer.json over which the library of fast tokenizers, in Rust, panics: one error says so."""

import json
import sys

import pytest

from tercet.__main__ import main
from tercet.configs.messages import panics_told
from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer
from tercet.modeling.saved import model_folder


@pytest.fixture
def folder(tmp_path):
    train_tokenizer(["a b c ab bc abc"], "wordpiece", 90).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    facts = json.loads(file.read_text())
    facts["post_processor"]["single"][0]["SpecialToken"]["id"] = "[ABSENT]"
    file.write_text(json.dumps(facts))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    return tmp_path


def test_a_panic_ends_in_one_error(folder, capfd):
    for load in (lambda: model_folder.load_tokenizer(folder), lambda: load_tokenizer(str(folder))):
        with pytest.raises(
            ValueError, match=r"tokenizer\.json is damaged \(tokenizers: no entry found for key\)"
        ):
            load()
    assert "panicked" not in capfd.readouterr().err


def test_a_panic_of_a_command_is_one_line(folder, capfd, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["doctor", "."]) != 0
    said = capfd.readouterr().err
    assert said.startswith("tercet doctor: ")
    assert said.count("\n") == 1


def test_what_is_said_while_a_tokenizer_is_read_is_heard(folder, capfd):
    with panics_told("it"):
        print("something else", file=sys.stderr)
    assert capfd.readouterr().err == "something else\n"
