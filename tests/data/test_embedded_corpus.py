"""The embedded corpus, on two small packages of the standard library."""

from pathlib import Path

import pytest

from tercet.data.documents import open_documents
from tercet.data.embedded_corpus import (
    SPLITS,
    STANDARD_LIBRARY,
    Docstring,
    docstrings,
    documentation_file,
    extract_documents,
    package_of,
    read_documentation,
    split_of,
    without_repetitions,
)

PACKAGES = ("json", "email", "asyncio")


@pytest.fixture(scope="module")
def documents():
    return extract_documents(PACKAGES)


def test_extraction_is_deterministic(documents):
    assert extract_documents(PACKAGES) == documents
    assert [module for module, _ in documents] == [
        module for package in PACKAGES for module, _ in documents if module.split(".")[0] == package
    ]


def test_modules_become_documents_of_prose(documents):
    paragraphs = [paragraph for each in dict(documents)["email.message"] for paragraph in each.paragraphs]
    assert any("message" in paragraph for paragraph in paragraphs)
    assert not any("\n" in paragraph for paragraph in paragraphs)


def test_no_paragraph_occurs_twice(documents):
    paragraphs = [paragraph for _, kept in documents for each in kept for paragraph in each.paragraphs]
    assert len(set(paragraphs)) == len(paragraphs)


def test_paragraphs_that_differ_in_names_alone_are_kept_once():
    said = "Build the `{}` model with this configuration, which holds all the parameters that it needs."
    other = "Something else that is long enough for a document " + "and goes on " * 10
    documents = [
        (name, [Docstring(said.format(name), [f"{other} {index}"])]) for index, name in enumerate("AB")
    ]
    assert list(without_repetitions(documents)) == documents[:1]


def test_splits_divide_the_modules(tmp_path):
    train, validation = (documentation_file(split, tmp_path, PACKAGES) for split in ("train", "validation"))
    texts = [set(file.read_text().split("\n")) - {""} for file in (train, validation)]
    assert all(texts)
    assert not texts[0] & texts[1]


def test_structure_is_kept_beside_the_text(tmp_path):
    for split in SPLITS:
        documents = read_documentation(split, tmp_path, PACKAGES)
        told = "\n\n".join(
            "\n".join(paragraph for each in found for paragraph in each.paragraphs) for _, found in documents
        )
        assert documentation_file(split, tmp_path, PACKAGES).read_text() == f"{told}\n"
        assert all(split_of(module) == split for module, _ in documents)


def test_a_summary_is_a_paragraph_of_its_own_at_the_beginning(tmp_path, monkeypatch):
    sources = {
        "summed": "Return the sum of the values.\n\n    It is zero where there are none of them.\n    ",
        "joined": "Return the sum of the values.\n    It is zero where there are none of them.\n    ",
        "late": "sum(values) -> number\n\n    Return the sum of all of the values.\n    ",
    }
    source = "\n".join(f'def {name}():\n    """{text}"""' for name, text in sources.items())
    (tmp_path / "adding").mkdir()
    (tmp_path / "adding" / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    ((_, found),) = extract_documents(("adding",))
    assert found == [
        Docstring("Return the sum of the values.", ["It is zero where there are none of them."]),
        Docstring("Return the sum of the values. It is zero where there are none of them.", []),
        Docstring(None, ["Return the sum of all of the values."]),
    ]


def test_modules_name_their_package():
    assert package_of("torch.nn.functional") == "torch"
    assert package_of("email.message") == STANDARD_LIBRARY


def test_a_twentieth_of_all_names_is_for_validation():
    splits = [split_of(f"package.module_{number}") for number in range(10_000)]
    share = splits.count("validation") / len(splits)
    assert abs(share - 0.05) < 3 * (0.05 * 0.95 / len(splits)) ** 0.5


def test_the_second_call_finds_the_first_ones_work(tmp_path):
    file = documentation_file("train", tmp_path, ("json",))
    written = file.stat().st_mtime_ns
    assert documentation_file("train", tmp_path, ("json",)) == file
    assert file.stat().st_mtime_ns == written


def test_absent_packages_are_passed_over():
    assert extract_documents(["a_package_that_is_not_there"]) == []


def test_docstrings_come_in_order_with_those_of_compiled_functions():
    source = (
        '"""One."""\nadd("f", """\nTwo\n\nlines\n""")\nclass A:\n    """Three."""\n    x = "no docstring"\n'
    )
    assert docstrings(source) == ["One.", "\nTwo\n\nlines\n", "Three."]


def test_the_corpus_is_opened_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = documentation_file("train", tmp_path, ("json",))
    monkeypatch.setattr("tercet.data.embedded_corpus.documentation_file", lambda split, cache: file)
    assert len(list(open_documents("documentation", cache=tmp_path))) >= 1


@pytest.mark.slow
def test_the_whole_corpus_can_be_read(tmp_path):
    """Of everything that is installed: what other people write into docstrings is beyond us."""
    sizes = [sum(map(len, open_documents("documentation", split=split, cache=tmp_path))) for split in SPLITS]
    assert sizes[0] > 10 * sizes[1] > 10**6
