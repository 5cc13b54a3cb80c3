"""A model's folder of somebody else leads nowhere else: not by links, and not by names in its files."""

import json
import os
from pathlib import Path

import pytest

from tercet.data.tokenizers.tokenizer import load_tokenizer
from tercet.modeling.saved.foreign_folder import require_own_files
from tercet.modeling.saved.model_folder import find_folder
from tercet.modeling.saved.weights import read_index

SECRET = "-----BEGIN KEY-----"


@pytest.fixture
def folder(tmp_path) -> Path:
    """Make a folder that somebody else could have made, and a file beside it that is none of theirs."""
    (tmp_path / "private.txt").write_text(SECRET)
    (tmp_path / "private.py").write_text(SECRET)
    (tmp_path / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text("{}")
    for name in ("vocab.txt", "chat_template.jinja", "tokenizer.json"):
        (tmp_path / "model" / name).write_text("a\nb\n")
    write(tmp_path / "model" / "config.json", {"model_type": "bert"})
    return tmp_path / "model"


def write(file: Path, facts) -> None:
    file.write_text(json.dumps(facts))


@pytest.mark.parametrize(
    "told",
    [
        {"vocab": "PRIVATE"},
        {"merges": "../private.txt"},
        {"vocab": "private.txt"},  # in the current folder
        {"fast_tokenizer_files": ["tokenizer.json", "../private.txt"]},
        {"gguf_file": "PRIVATE"},
        {"init_inputs": ["PRIVATE"]},
        {"sp_model_kwargs": {"model_file": "PRIVATE"}},
        {"mecab_kwargs": {"anything": "PRIVATE"}},
    ],
    ids=lambda told: next(iter(told)),
)
@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_tokenizer_names_no_file_elsewhere(name, told, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    write(folder / name, json.loads(json.dumps(told).replace("PRIVATE", f"{folder.parent / 'private.txt'}")))
    for load in (find_folder, load_tokenizer):
        with pytest.raises(
            ValueError, match=rf"{name} says .* outside of its folder and is not read: remove"
        ):
            load(str(folder))


def test_what_tokenizers_usually_say_is_no_file(folder):
    """Earlier releases wrote where they had read, which no release reads."""
    told = {
        "name_or_path": str(folder.parent),
        "tokenizer_file": f"{folder.parent / 'private.txt'}",
        "special_tokens_map_file": f"{folder.parent / 'private.txt'}",
        "vocab_file": "/home/them/vocab.txt",
        "unk_token": "/",
        "additional_special_tokens": ["..", "../", "private.txt", "/etc"],
        "merges": None,
        "vocab": "vocab.txt",
        "chat_template": "{{ '/' }}",
        "auto_map": {"AutoTokenizer": [None, "them/theirs--tokenization.Tokenizer"]},
    }
    write(folder / "tokenizer_config.json", told)
    require_own_files(folder)


@pytest.mark.parametrize(
    "name", ["vocab.txt", "README.md", "model.safetensors", "config.json", "recipe.yaml"]
)
def test_no_link_leads_out_of_a_folder(name, folder):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("vocab.txt" if name != "vocab.txt" else "tokenizer.json")
    require_own_files(folder)
    (folder / name).unlink()
    (folder / name).symlink_to(folder.parent / "private.txt")
    with pytest.raises(ValueError, match=rf"{name} is a link to .*private\.txt, outside of .*: put a copy"):
        require_own_files(folder)


def test_links_of_the_hubs_cache_and_to_a_whole_folder_are_followed(folder, tmp_path):
    repository = tmp_path / "models--them--theirs"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, file in enumerate(file for file in folder.iterdir() if file.is_file()):
        os.replace(file, repository / "blobs" / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    (tmp_path / "link").symlink_to(snapshot)
    for path in (snapshot, tmp_path / "link"):
        require_own_files(path)
    (snapshot / "merges.txt").symlink_to("../../private.txt")
    (repository / "private.txt").write_text(SECRET)
    with pytest.raises(ValueError, match=r"merges\.txt is a link to .*private\.txt, outside of"):
        require_own_files(snapshot)


@pytest.mark.parametrize(
    "reference", ["ABOVE/private.Model", "../private.Model", "sub/private.Model", "Model"]
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_is_named_by_a_file_beside_it(name, reference, folder):
    told = {
        "AutoModel": "modeling.Model",
        "AutoTokenizer": [None, reference.replace("ABOVE", str(folder.parent))],
    }
    write(folder / name, {"auto_map": told})
    with pytest.raises(ValueError, match=rf"auto_map of .*{name} names .*: correct it, or remove auto_map"):
        require_own_files(folder)


@pytest.mark.parametrize(
    "path", [".", "..", "../other", "/", ".git", "1_Pooling/..", "linked", "holds_a_link"]
)
def test_a_module_has_a_folder_of_its_own(path, folder):
    (folder / ".git").mkdir()
    (folder / "holds_a_link").mkdir()
    (folder / "holds_a_link" / "config.json").symlink_to("../../private.txt")
    (folder / "linked").symlink_to(folder.parent)
    modules = [{"path": "", "type": "Transformer"}, {"path": "1_Pooling", "type": "Pooling"}]
    write(folder / "modules.json", modules)
    require_own_files(folder)
    write(folder / "modules.json", [*modules, {"path": path, "type": "Normalize"}])
    with pytest.raises(ValueError, match=r"modules\.json names .* plain names|is a link to .*, outside of"):
        require_own_files(folder)


@pytest.mark.parametrize("shard", ["../other.safetensors", "/private.txt", "a/b.safetensors", 3, ["a"]])
def test_an_index_names_files_beside_it(shard, folder):
    index = folder / "model.safetensors.index.json"
    write(index, {"weight_map": {"weight": "model-00001-of-00002.safetensors", "bias": shard}})
    with pytest.raises(
        ValueError, match=r"index\.json (names .*, but only files beside it are read|is damaged)"
    ):
        read_index(index)
