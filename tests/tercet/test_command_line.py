"""The command line: it teaches, answers at once, and says in one line what was wrong."""

import errno
import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace

import pytest

from tercet import command_line
from tercet.__main__ import main
from tercet.commands import COMMANDS
from tercet.configs.messages import LinesError
from tercet.tools.plan import machines


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException, name: str = "demo") -> None:
    """Let a command fail."""

    def run(options: Namespace) -> None:
        raise error

    monkeypatch.setitem(COMMANDS, name, replace(COMMANDS[name], run=run))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_and_gives_two_examples(command, capsys):
    with pytest.raises(SystemExit) as exit:
        main([command, "--help"])
    assert exit.value.code == 0
    explanation, _, examples = capsys.readouterr().out.partition("Examples:")
    assert len(explanation.splitlines()) > 5
    assert examples.count("\n  tercet ") == 2


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert all(f"\n    {command}" in listed for command in COMMANDS)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["pretrain", "--help"], ["play", "--help"], ["recipes"], ["study"]]
)
def test_light_commands_do_not_wait_for_torch(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tercet", *arguments],
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "tercet.command_line" in imported
    assert not imported & {"torch", "transformers"}


HINT = " (run again with --debug for the traceback)"
REFUSED = [errno.ENAMETOOLONG, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENOENT]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("steps is 0:\n  choose 1"), 2, "steps is 0: choose 1"),
        (FileNotFoundError("no such file"), 2, "no such file"),
        (RuntimeError("out of\nmemory"), 1, f"RuntimeError: out of memory{HINT}"),
        (BrokenPipeError("a worker has left"), 1, f"BrokenPipeError: a worker has left{HINT}"),
        *((OSError(n, os.strerror(n), "/a/name"), 2, f"/a/name: {os.strerror(n)}") for n in REFUSED),
    ],
)
def test_what_went_wrong_is_one_line_and_the_exit_code_tells_whose_fault_it_was(
    error, code, said, monkeypatch, capfd
):
    fail_with(monkeypatch, error)
    assert main(["demo"]) == code
    assert capfd.readouterr().err == f"tercet demo: {said}\n"


def test_an_error_of_a_few_lines_keeps_them(monkeypatch, capfd):
    fail_with(monkeypatch, LinesError("no model\nin the way: a\ninstead: b"))
    assert main(["demo"]) == 2
    assert capfd.readouterr().err == "tercet demo: no model\nin the way: a\ninstead: b\n"


def test_a_message_that_quotes_a_book_is_cut(monkeypatch, capsys):
    fail_with(monkeypatch, ValueError(f"x = {'book ' * 9999}: write less"))
    assert main(["demo"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tercet demo: x = book book")
    assert said.endswith("book : write less\n")
    assert len(said) < 1500


@pytest.mark.parametrize(
    ("word", "said"),
    [("", "an argument is empty"), (" ", "an argument is empty"), ("a\udcff", "is not UTF-8")],
)
@pytest.mark.parametrize(
    "before", [["pretrain"], ["pretrain", "x"], ["play"], ["predict", "model"], ["doctor"]]
)
def test_what_is_no_word_is_refused_at_once(before, word, said, capsys):
    with pytest.raises(SystemExit) as exit:
        main([*before, word])
    assert exit.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "told", "message"),
    [
        ("demo", "", "tercet demo: interrupted"),
        ("pretrain encoder-demo", "", "tercet pretrain: interrupted; continue with --resume"),
        ("pretrain encoder-demo", "stopped by SIGINT", "tercet pretrain: stopped by SIGINT"),
    ],
)
def test_an_interruption_is_told_in_words(command, told, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fail_with(monkeypatch, KeyboardInterrupt(told) if told else KeyboardInterrupt(), command.split()[0])
    assert main(command.split()) == 130
    assert capsys.readouterr().err == f"{message}\n"


def test_debug_shows_the_traceback(monkeypatch):
    fail_with(monkeypatch, ValueError("steps is 0"))
    with pytest.raises(ValueError, match="steps is 0"):
        main(["demo", "--debug"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pretrain", "x", "--fast"], "usage: tercet"),
        (["train"], "usage: tercet"),
        ([], "usage: tercet"),
        (["pretrian", "encoder-demo"], "unknown command 'pretrian'; did you mean pretrain?"),
        (["pretrain"], "required: RECIPE\n"),
        *(
            ([command, "some-recipe", "--resume", "--overwrite"], "not allowed with argument --resume")
            for command in ("pretrain", "finetune", "distill")
        ),
    ],
)
def test_wrong_arguments_are_exit_code_2(arguments, said, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert said in capsys.readouterr().err


def test_overrides_and_options_stand_in_any_order():
    options = command_line.parse(
        ["pretrain", "--resume", "x", "training.steps=1", "--debug", "output=runs/x"]
    )
    assert (options.recipe, options.overrides) == ("x", ["training.steps=1", "output=runs/x"])
    assert options.resume
    assert options.debug


@pytest.mark.parametrize(
    ("arguments", "unbuffered"), [(["recipes"], ""), (["recipes", "--debug"], "1"), (["--help"], "")]
)
def test_a_reader_that_leaves_ends_the_command_in_silence(arguments, unbuffered):
    """As in `tercet recipes | head -1`; the exit code is that of a program which the signal ends."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "tercet", *arguments],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_a_closed_output_is_no_failure():
    program = "import sys; sys.stdout = None\n"
    program += "from tercet.__main__ import main; sys.exit(main(['recipes']))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_process_of_a_launch_ends_before_its_teardown(tmp_path):
    """Python's exit handlers run, and what was printed arrives."""
    program = f"""if True:
        import atexit, sys
        from torch import distributed
        from tercet.__main__ import main
        distributed.init_process_group("gloo", "file://{tmp_path}/meeting", rank=0, world_size=1)
        atexit.register(lambda: print("exit handlers ran; processes left:", not distributed.is_initialized()))
        main(["recipes", "pretrain"])
        print("the interpreter goes on")
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("exit handlers ran; processes left: True\n")


@pytest.mark.parametrize(("device", "is_told"), [("this_machine", True), ("a100", False)])
def test_a_plan_tells_that_it_measures(device, is_told, monkeypatch, capsys):
    measure = machines.measure_this_machine.__wrapped__  # which is not kept for other tests
    monkeypatch.setattr(machines, "measure_this_machine", measure)
    monkeypatch.setattr(machines, "measure_peak", lambda *_: 1e12)
    assert main(["plan", "encoder-demo", f"device={device}"]) == 0
    assert ("measuring this machine" in capsys.readouterr().err) is is_told
