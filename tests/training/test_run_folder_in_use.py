"""A folder that is in use, whose run was killed, or on a disk that takes no more."""

import errno
import signal

import pytest

from tercet.data.files.atomic_writes import WriteError
from tercet.distill.run import distill
from tercet.fewshot.run import fewshot
from tercet.finetune.run import finetune
from tercet.pretraining.run import pretrain, train_recipe_tokenizer
from tercet.tools.demo.run import run_demo
from tercet.training.run_folder import running, writing

from .claims import DATA, KINDS, claim, folder_of


def test_disk_that_is_full_is_told_of_whatever_was_being_written(tmp_path):
    said = r"run cannot be written .*--resume; what was written before is whole"
    with pytest.raises(WriteError, match=said), writing(tmp_path / "run"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_that_cannot_be_resumed_starts_again_when_there_is_room(tmp_path):
    output = folder_of("fewshot", tmp_path / "run")
    with (
        pytest.raises(WriteError, match="start again with --overwrite"),
        running(output, resume=False, overwrite=False),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("command", [*KINDS, "tokenizer", "demo"])
def test_second_run_in_a_folder_ends_at_once(command, hold, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("Some text.\n\nMore text.")
    holder = hold(tmp_path / "run")
    corpus = {"corpus": {"train": str(tmp_path / "a.txt"), "validation": str(tmp_path / "b.txt")}}
    with pytest.raises(ValueError, match=rf"in use by process {holder.pid} on .* since "):
        start(command, tmp_path / "run", corpus if command in ("pretrain", "tokenizer") else {})
    assert not (tmp_path / "run").exists()


def start(command, output, changes):
    """Start a run in all earnest; it may replace what is there."""
    if command == "demo":
        return run_demo(output, overwrite=True)
    recipe = folder_of("pretrain" if command == "tokenizer" else command, output, **changes).recipe
    if command == "tokenizer":
        return train_recipe_tokenizer(recipe, overwrite=True)
    runs = {"pretrain": pretrain, "finetune": finetune, "distill": distill, "fewshot": fewshot}
    return runs[command](recipe, overwrite=True)


KILLED_WHILE_IT_CLAIMS = """
import os, signal
from tercet.data.files import atomic_writes
flush = atomic_writes.flush
def flush_or_die(path):
    if path.name == {name!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    flush(path)
atomic_writes.flush = flush_or_die
from tercet.configs.recipe import parse_recipe
from tercet.{folder}.output import run_folder
from tercet.{folder}.recipe import {kind}
from tercet.training.run_folder import running
with running(run_folder(parse_recipe({kind}, {data!r})), resume=False, overwrite=False) as run:
    run.take()
"""


@pytest.mark.parametrize("name", [".recipe.yaml.partial", "..tercet.json.partial"])
@pytest.mark.parametrize("command", ["finetune", "distill"])
def test_run_killed_while_it_takes_its_folder_goes_on(command, name, fork_server, tmp_path):
    kind, _ = KINDS[command]
    data = DATA[command] | {"output": str(tmp_path / "run")}
    text = KILLED_WHILE_IT_CLAIMS.format(name=name, folder=command, kind=kind.__name__, data=data)
    assert fork_server.wait(fork_server.start(text)) == -signal.SIGKILL
    assert (tmp_path / "run" / name).exists()
    assert (tmp_path / ".run.lock").exists()
    claim(command, tmp_path / "run", resume=True)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".tercet.json", "recipe.yaml"]
