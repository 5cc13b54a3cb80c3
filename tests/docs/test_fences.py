"""What counts as printed as shown."""

import pytest

from docs.site.fences import fences, missing_lines, shrunk


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        ("loss 5.89, lr 2.8e-03", "step\nloss 7.1, lr 1e-5", []),
        ("...\n| a   |   12 |", "| a | 7 |", []),
        ("saved ... files", "saved many small files", []),
        ("saved", "not saved", ["saved"]),
        ("one\ntwo", "one", ["two"]),
        ("", "anything", []),
    ],
)
def test_numbers_may_differ_and_words_may_not(shown, printed, missing):
    assert list(missing_lines(shown, printed)) == missing


def test_only_counts_of_steps_shrink():
    assert shrunk("steps: 100, tokens_per_step: 100") == "steps: 4, tokens_per_step: 100"
    assert shrunk("training.steps=110 training.log_every=10") == "training.steps=5 training.log_every=1"


def test_fences_are_found_in_order(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```sh\nls\n```\n\ntext\n\n```text\na\nb\n```\n")
    assert [(fence.language, fence.text) for fence in fences(page)] == [("sh", "ls\n"), ("text", "a\nb\n")]
