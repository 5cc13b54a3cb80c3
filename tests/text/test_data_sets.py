"""A data set's card chooses among its own files, and reads no other."""

import pytest

from tercet.text import data_sets


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("named", ["texts.txt", "ABOVE/private.txt", "../private.txt", "link.txt"])
def test_a_card_names_files_of_its_data_set(named, streaming, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "private.txt").write_text("confidential\n")
    (folder / "texts.txt").write_text("a text\n")
    (folder / "link.txt").symlink_to(tmp_path / "private.txt")
    name = named.replace("ABOVE", str(tmp_path))
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files: {name}\n---\n")

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
