"""The book of studies is made again from its results."""

from pathlib import Path

from lab.studies import book

BOOK = Path(__file__).parents[3] / "docs" / "studies"


def test_every_page_is_what_was_measured():
    for name, text in book.pages(book.results()).items():
        assert (BOOK / name).read_text(encoding="utf-8") == text, name


def test_every_result_has_a_picture_and_nothing_else_is_kept():
    kept = {path.stem for path in book.KEPT.glob("*.json")}
    assert kept == {path.stem for path in BOOK.glob("*.png")} == {*book.results()}


def test_every_switch_of_the_book_changed_the_verdict():
    for name, result in book.results().items():
        study = book.find_study(name)
        assert {*result["verdicts_when_broken"]} == {*study.switches}
        if name not in ("copying", "smoothed-calibration"):  # whose switches change verdicts of values
            assert book.judged(study, result) not in result["verdicts_when_broken"].values(), name


def test_a_study_without_a_result_shows_its_prediction_alone():
    found = book.results()
    del found["noam"]
    pages = book.pages(found)
    assert "| [noam](training.md) | confirmed | not measured yet |" in pages["index.md"]
    part = pages["training.md"].partition("## The schedule of 2017")[2]
    assert "Prediction: confirmed" in part
    assert "Not measured yet" in part
