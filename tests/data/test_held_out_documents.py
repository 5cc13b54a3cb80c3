"""A part of a text is held out by the documents' hashes: always the same, and never learned from."""

import pytest

from tercet.data import held_out_documents
from tercet.data.documents import open_documents
from tercet.data.held_out_documents import PartOfDocuments

DOCUMENTS = [f"the cat number {number} sat" for number in range(400)]


@pytest.fixture
def parts_of(tmp_path):
    """Cut documents of a file into the part that is learned from and the one that is held out."""

    def parts_of(documents, separator="\n\n", **options):
        file = tmp_path / options.pop("name", "text.txt")
        file.write_text(separator.join(documents), encoding="utf-8")
        whole = open_documents(str(file), cache=tmp_path, **options)
        return [PartOfDocuments.of(whole, tmp_path, is_held_out=is_held_out) for is_held_out in (False, True)]

    return parts_of


def test_a_twentieth_is_held_out_and_never_learned_from(parts_of, monkeypatch, capsys):
    rest, held_out = parts_of(DOCUMENTS)
    assert sorted([*rest, *held_out]) == sorted(DOCUMENTS)
    number = len([*held_out])
    assert 20 - 3 * 19**0.5 <= number <= 20 + 3 * 19**0.5
    assert f"{number} of 400 different documents are held out" in capsys.readouterr().err
    assert rest.fingerprint() != held_out.fingerprint()
    monkeypatch.setattr(held_out_documents, "MOST", 7)
    some = [*parts_of(DOCUMENTS[::-1], separator="\n\n\n")[1]]
    assert len(some) == 7
    assert set(some) <= set(held_out)


def test_copies_of_a_document_are_in_one_part_and_order_does_not_matter(parts_of):
    held_out = {*parts_of(DOCUMENTS)[1]}
    rest, twice = parts_of([*DOCUMENTS[::-1], *DOCUMENTS], name="twice.txt")
    assert {*twice} == held_out
    assert not {*rest} & held_out
    assert len([*twice]) == 2 * len(held_out)


def test_pairs_stay_pairs_and_are_told_of_once_as_are_bad_rows(parts_of, capsys):
    rows = [f'{{"a": "{text}", "b": "{text.upper()}"}}' for text in DOCUMENTS]
    sides = [
        parts_of([*rows, '{"a": 3}'], "\n", name="pairs.jsonl", column=side, required=("a", "b"))
        for side in "ab"
    ]
    for source, target in zip(*sides, strict=True):
        if source.is_held_out:
            assert [text.upper() for text in source] == [*target]
        else:
            with pytest.raises(ValueError, match=r"pairs.jsonl.*401"):
                list(source)
    assert capsys.readouterr().err.count("documents are held out") == 1


def test_a_small_text_has_one_held_out_document_and_a_single_one_cannot(parts_of):
    assert [len([*part]) for part in parts_of(DOCUMENTS[:3])] == [2, 1]
    rest, _ = parts_of(["a line\nanother line"], name="one.txt")
    with pytest.raises(ValueError, match=r"one.txt has fewer than two documents.* put blank lines between"):
        list(rest)
