"""A data set's card chooses among its own files, and reads no other."""

import pytest

from tercet.data.files import data_sets

NAMES = (
    *("texts.txt", "ABOVE/private.txt", "../private.txt", "link.txt", "file://ABOVE/private.txt"),
    *("local://ABOVE/private.txt", "dir://private.txt::file://ABOVE", "http://127.0.0.1:9/private.txt"),
)
"""What a card may say, and texts.txt alone is the data set's."""


@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("named", NAMES)
def test_a_card_names_files_of_its_data_set(named, streaming, card, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "private.txt").write_text("confidential\n")
    (folder / "texts.txt").write_text("a text\n")
    (folder / "link.txt").symlink_to(tmp_path / "private.txt")
    name = named.replace("ABOVE", str(tmp_path))
    header = f"configs:\n- config_name: default\n  data_files: {name}\n"
    (folder / card).write_text(f"---\n{header}---\n" if card == "README.md" else header)
    asked: list[str] = []
    monkeypatch.setattr(
        "fsspec.implementations.http.HTTPFileSystem.__init__", lambda *a, **o: asked.append("http")
    )

    def read():
        return [
            row["text"]
            for row in data_sets.load_dataset(str(folder), None, split="train", streaming=streaming)
        ]

    if named == "texts.txt":
        assert read() == ["a text"]
    else:
        with pytest.raises(ValueError, match="is no file of the data set"):
            read()
    assert not asked
