"""A session in the terminal, as text: lines in, answers out."""

import io
import sys

import pytest

from tercet.__main__ import main
from tercet.play.sessions import Session
from tercet.play.terminal import Conversation
from tercet.reporting.blocks import Entry, Heatmap, Note, Passage, Ranking, Run, Token, Tokens
from tercet.reporting.text import for_terminal


def transcript(models, *lines: str) -> str:
    """Converse, and give all that was printed."""
    remaining, said = list(lines), []

    def read(prompt: str) -> str:
        if not remaining:
            raise EOFError
        return remaining.pop(0)

    Conversation(Session(models), read, said.append).run()
    assert not remaining, "the session ended early"
    return "\n".join(said)


def test_a_line_is_answered_with_ranked_tokens(load):
    said = transcript([load("encoder")], "/set top 2", "The cat ___ on the roof.")
    (_, ranking) = load_answers(load("encoder"), "fill", ["The cat ___ on the roof."], {"top": 2})
    assert "top is 2" in said
    for entry in ranking.entries:
        assert any(
            line.startswith(f"  {entry.text} ") and line.endswith(entry.shown) for line in said.splitlines()
        )
    assert f"The cat [{ranking.entries[0].text}] on the roof." in said


def load_answers(model, name, texts, numbers):
    ((_, answers),) = Session([model]).answers(name, texts, numbers)
    return answers


def test_abilities_are_chosen_by_commands(load):
    said = transcript([load("encoder")], "/tokens", "The cat", "/fill The ___ sat.", "/attention The cat")
    assert "[CLS]" in said
    assert "In the gap:" in said
    assert "Layer 1, the mean of 4 heads" in said


def test_further_texts_are_asked_for(load):
    said = transcript([load("encoder")], "/similar", "a cat", "the cat sat", "the roof", "", "/quit")
    assert "Among these texts, one in a line (an empty line ends them):" in said
    assert "Most similar first:" in said
    assert "the roof" in said


def test_lines_that_end_with_the_input_are_answered(load):
    assert "Most similar first:" in transcript([load("encoder")], "/similar a cat", "the cat sat", "the roof")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no gap here", "has no gap: write ___"),
        ("/dance", "unknown command /dance; /help lists all commands"),
        ("/set top 99", "top is '99': choose a number from 1 to 50"),
        ("/set size 3", "unknown setting 'size'; settings of fill: top"),
    ],
)
def test_a_mistake_is_one_line_and_the_session_goes_on(line, message, load):
    said = transcript([load("encoder")], line, "The ___ sat.")
    assert sum(message in each for each in said.splitlines()) == 1
    assert "In the gap:" in said


def test_several_models_answer_one_after_the_other(load):
    said = transcript([load("encoder"), load("decoder")], "/tokens The cat sat.")
    assert said.index("== encoder ==") < said.index("== decoder ==")


def test_help_examples_and_models_say_what_there_is(load):
    said = transcript([load("decoder")], "/help", "/examples", "/models", "/exit")
    assert said.count("continue, similar, tokens, attention") == 2
    assert "  Return the number of" in said
    assert said.count("decoder: decoder (TercetDecoderForCausalLM)") == 2


def test_leaving_ends_the_session(load):
    with pytest.raises(AssertionError, match="ended early"):
        transcript([load("encoder")], "/quit", "The ___ sat.")


def test_the_command_answers_standard_input(folders, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("The ___ sat.\n"))
    assert main(["play", str(folders / "encoder"), "--terminal"]) == 0
    printed = capsys.readouterr().out
    assert "fill> The ___ sat." in printed
    assert "In the gap:" in printed


def test_bytes_that_are_no_text_are_a_lines_fault(folders, monkeypatch, capsys):
    lines = io.TextIOWrapper(io.BytesIO(b"The ___ \xff sat.\n/\xff\nThe ___ sat.\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", lines)
    assert main(["play", str(folders / "encoder"), "--terminal"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("is no character: write it anew") == 2
    assert "In the gap:" in printed


def test_a_line_without_an_end_is_not_read_whole(folders, monkeypatch, capsys):
    class Endless(io.StringIO):
        def readline(self, size=-1):
            assert 0 < size < 10**6
            return "x" * size

    monkeypatch.setattr(sys, "stdin", Endless())
    assert main(["play", str(folders / "encoder"), "--terminal"]) == 2
    assert "longer than 100,000 characters: shorten it" in capsys.readouterr().err


def test_lines_without_end_are_cut_where_they_are_too_many(load):
    lines = ["find"] + ["x" * 60_000] * 2
    said = transcript([load("searcher")], "/similar", *lines)
    assert "characters: write at most 100,000" in said


def test_without_gradio_the_command_says_so_and_answers_in_the_terminal(folders, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("/quit\n"))
    assert main(["play", str(folders / "encoder")]) == 0
    assert "pip install 'tercet[play]'" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_one_line(capsys):
    assert main(["play", "no/such-folder/here", "--terminal"]) == 2
    assert "no/such-folder/here does not exist: check the path" in capsys.readouterr().err.splitlines()[-1]


def test_a_run_that_has_not_finished_is_answered_with_the_command_that_makes_it(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["play", "runs/encoder-demo/model"]) == 2
    assert "run `tercet pretrain encoder-demo` first" in capsys.readouterr().err


def test_results_as_text():
    heatmap = Heatmap("Layer 1", ["a", "be"], ["a", "be"], [[1.0, 0.0], [0.5, 0.5]])
    results = [
        Passage("Filled", [Run("The "), Run("cat", "new"), Run(" in "), Run("Rome", "labelled", "B-PLACE")]),
        Ranking(
            "Best", [Entry("cat", 0.5), Entry("a\nlong " * 20, 0.25), Entry("far", -0.2, is_share=False)]
        ),
        Tokens("2 tokens", [Token("The", 5), Token("cat", 17, 0.5)]),
        heatmap,
        Note("That is all."),
    ]
    lines = for_terminal(results).splitlines()
    assert "The [cat] in [Rome: B-PLACE]" in lines
    assert any(line.startswith("cat ") and line.endswith(f"  {'█' * 10:<20}  50.0 %") for line in lines)
    assert any(line.startswith("far ") and line.endswith(" -0.200") for line in lines)
    assert "     17  cat     50.0 %  ██████████" in lines
    assert " a   0  ██" in lines
    assert "be   1  ▒▒ ▒▒" in lines
    assert lines[-1] == "That is all."
    assert all(len(line) < 100 for line in lines)
