"""Folders of a corpus: what is no text of it is left out, and told of."""

import warnings
from pathlib import Path

import fsspec
import pytest

from tercet.data.documents import find_files, open_documents
from tercet.tools.prepare.pieces import files_of

BESIDE = [
    ".ipynb_checkpoints/train-checkpoint.txt",
    ".git/notes.txt",
    ".train.txt.swp.txt",
    "__MACOSX/._train.txt",
    "inner/.hidden.jsonl",
    "inner/__MACOSX/train.txt",
    "README.md",
    "inner/readme.txt",
    "paper.pdf",
]


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("Other text.")


def test_what_is_no_text_is_left_out_of_a_folder_and_told_of(tmp_path):
    write(tmp_path, "train.txt", "inner/more.md", *BESIDE)
    with pytest.warns(UserWarning, match="left out") as told:
        files = find_files(tmp_path)
    assert [str(file.relative_to(tmp_path)) for file in files] == ["inner/more.md", "train.txt"]
    (message,) = (str(warning.message) for warning in told)
    assert message == (
        f"folder {tmp_path}: .git, .ipynb_checkpoints, .train.txt.swp.txt, README.md, __MACOSX and 4 more "
        "left out, as no text of the corpus"
    )


@pytest.mark.parametrize("name", BESIDE[:-1])
def test_what_is_named_by_itself_is_read(tmp_path, name):
    write(tmp_path, name)
    assert find_files(tmp_path / name) == [tmp_path / name]


@pytest.mark.parametrize(("names", "told"), [([], ""), ([".cache/a.txt", "b.pdf"], r" but \.cache, b\.pdf")])
def test_a_folder_of_nothing_else_is_refused(tmp_path, names, told):
    write(tmp_path, *names)
    with pytest.raises(ValueError, match=rf"has no corpus files{told}: their names end in \.txt"):
        find_files(tmp_path)


def test_a_folder_of_texts_alone_says_nothing(tmp_path):
    write(tmp_path, "a.txt", "b/c.text")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(find_files(tmp_path)) == 2


@pytest.fixture
def copied(tmp_path):
    """Copy a folder into an object store of this process, and give its address."""
    store = fsspec.filesystem("memory")

    def copied() -> str:
        for file in filter(Path.is_file, tmp_path.rglob("*")):
            store.pipe(f"/bucket/{file.relative_to(tmp_path)}", file.read_bytes())
        return "memory://bucket"

    yield copied
    store.store.clear()


def test_a_folder_elsewhere_has_the_files_of_one_here(tmp_path, copied):
    write(tmp_path, "b/c.txt", "b.txt", "b-a.txt", "B.txt", "inner/more.md", *BESIDE)
    with pytest.warns(UserWarning, match="left out"):
        here = [str(file.relative_to(tmp_path)) for file in find_files(tmp_path)]
    with pytest.warns(UserWarning, match=r"^folder memory://bucket: \.git/notes\.txt, .* 4 more left out"):
        assert files_of(copied()) == [f"memory:///bucket/{name}" for name in here]
    for name in BESIDE[:-1]:  # what is named by itself
        assert files_of(f"memory://bucket/{name}") == [f"memory:///bucket/{name}"]
    assert files_of("memory://bucket/inner/*.txt") == ["memory:///bucket/inner/readme.txt"]
    write(tmp_path, "b/c.txt.gz")
    with pytest.raises(ValueError, match=r"^folder memory://bucket/b has c\.txt and c\.txt\.gz, .*same text"):
        files_of(copied())
    with pytest.raises(FileNotFoundError, match=r"memory://bucket/nothing has no corpus files"):
        files_of("memory://bucket/nothing")


@pytest.mark.parametrize("find", [open_documents, lambda names: files_of([str(name) for name in names])])
def test_a_file_that_is_named_twice_is_refused(tmp_path, find):
    write(tmp_path, "inner/a.txt", "b.txt")
    file, other, link = tmp_path / "inner" / "a.txt", tmp_path / "b.txt", tmp_path / "link.txt"
    link.symlink_to(file)
    for first, second in ((file, file), (file.parent, file), (file, link), (tmp_path, other)):
        told = f"^corpus.*: {first} and {second} both have {second}, whose text would count twice: name it"
        with pytest.raises(ValueError, match=told):
            find([first, second])
    find([file, other])
