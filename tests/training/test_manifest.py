"""What a manifest finds out about the files that it lists."""

import json

import pytest

from tercet.training.checkpoints.checkpoint import MANIFEST, find_damage, write_manifest


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "state.json").write_text('{"step": 3}')
    write_manifest(tmp_path)
    return tmp_path


def flip(path, position):
    contents = bytearray(path.read_bytes())
    contents[position] ^= 1
    path.write_bytes(contents)


def test_an_untouched_folder_is_whole(folder):
    assert find_damage(folder) is None
    assert json.loads((folder / MANIFEST).read_text())["files"].keys() == {"weights", "state.json"}


@pytest.mark.parametrize("position", [0, 1000, 2559])
def test_a_flipped_bit_is_found_where_contents_are_read(folder, position):
    flip(folder / "weights", position)
    assert find_damage(folder) == "weights has changed since it was written"
    assert find_damage(folder, contents=False) is None


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "weights has 2,559 bytes instead of 2,560"),
        (lambda path: path.write_bytes(b""), "weights has 0 bytes instead of 2,560"),
        (lambda path: path.unlink(), "weights is missing"),
    ],
)
@pytest.mark.parametrize("contents", [True, False])
def test_a_missing_part_is_found_by_its_size(folder, harm, said, contents):
    harm(folder / "weights")
    assert find_damage(folder, contents=contents) == said


def test_a_file_that_cannot_be_read_is_damage(folder):
    (folder / "weights").unlink()
    (folder / "weights").mkdir()
    found = find_damage(folder)
    assert found is not None
    assert found.startswith("weights ")


def test_without_its_manifest_a_folder_was_never_finished(folder):
    (folder / MANIFEST).unlink()
    assert find_damage(folder) == "manifest.json is missing, so it was never finished"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"files": 3}', '{"files": {"weights": {}}}', "\0\0"])
def test_an_unreadable_manifest_is_damage(folder, text):
    (folder / MANIFEST).write_text(text)
    found = find_damage(folder)
    assert found is not None
    assert found.startswith("manifest.json cannot be read")


def test_no_flipped_bit_of_the_manifest_lets_damage_pass(folder):
    """What still is whole says the same as before, in other white space."""
    written = (folder / MANIFEST).read_bytes()
    for position in range(len(written)):
        flip(folder / MANIFEST, position)
        if find_damage(folder) is None:
            assert json.loads((folder / MANIFEST).read_bytes()) == json.loads(written)
        (folder / MANIFEST).write_bytes(written)
