"""Files are cut between documents, and every byte belongs to one piece."""

import json

from tercet.tools.prepare.pieces import lines_before, pieces_of, tasks_of

from .conftest import DOCUMENTS


def test_pieces_cover_a_file_and_are_cut_between_documents(tmp_path):
    contents = "\n \n".join(DOCUMENTS).encode() + "\n\nStraße\r\n\r\nEnde".encode()
    (tmp_path / "a.txt").write_bytes(contents)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS).encode()
    (tmp_path / "b.jsonl").write_bytes(lines)
    for name, whole in (("a.txt", contents), ("b.jsonl", lines)):
        pieces = list(pieces_of(str(tmp_path / name), 3000))
        assert len(pieces) > 4
        assert b"".join(whole[piece.start : piece.stop] for piece in pieces) == whole
        for piece in pieces[1:]:
            before = whole[: piece.start]
            assert before.endswith(b"\n")
            assert lines_before(piece) == before.count(b"\n")
            assert name == "b.jsonl" or not before.splitlines()[-1].strip()


def test_what_cannot_be_cut_stays_whole(tmp_path):
    (tmp_path / "wide.txt").write_text("\n\n".join(DOCUMENTS), encoding="utf-16")
    (tmp_path / "one.txt").write_text("\n".join(DOCUMENTS))
    (tmp_path / "list.json").write_text(json.dumps([{"text": text} for text in DOCUMENTS]))
    for file in tmp_path.iterdir():
        (piece,) = pieces_of(str(file), 1000)
        assert piece.is_whole


def test_small_files_become_one_task(tmp_path):
    files = [tmp_path / f"{number}.txt" for number in range(10)]
    for file in files:
        file.write_text("x" * 400)
    tasks = tasks_of([str(file) for file in files], 1000)
    assert [len(pieces) for pieces in tasks] == [2] * 5
    assert [piece.file for pieces in tasks for piece in pieces] == [str(file) for file in files]
