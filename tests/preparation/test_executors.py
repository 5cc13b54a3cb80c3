"""Tasks survive that one of them is killed, and an error ends them all with one line."""

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("datatrove", reason="the extra `prepare` is not installed")

import dill
from datatrove.pipeline.base import PipelineStep

import tercet
from tercet.preparation.executors import KilledError, LocalExecutor

from .test_prepare import contents


class Task(PipelineStep):
    """Note that it ran; task 1 is killed as often as a file lists."""

    name = type = "test"

    def __init__(self, folder: Path, kills: int, complains: bool = False):
        super().__init__()
        self.folder, self.kills, self.complains = folder, kills, complains

    def run(self, data=None, rank: int = 0, world_size: int = 1):
        """Run a task."""
        with (self.folder / f"{rank}").open("a") as file:
            file.write("x")
        if rank == 1 and (self.folder / "1").stat().st_size <= self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 2 and self.complains:
            raise ValueError("books.txt, line 7: bad")
        return ()


def executor(folder: Path, **options) -> LocalExecutor:
    (folder / "ran").mkdir()
    return LocalExecutor(
        [Task(folder / "ran", **options)], tasks=4, workers=2, logging_dir=str(folder / "logs")
    )


def runs(folder: Path) -> list[int]:
    """Count how often each task was begun."""
    return [(folder / "ran" / f"{rank}").stat().st_size for rank in range(4)]


@pytest.mark.slow
def test_a_killed_process_loses_its_task_alone(tmp_path, capsys):
    (tmp_path / "once").mkdir()
    executor(tmp_path / "once", kills=1).run()
    assert runs(tmp_path / "once") == [1, 2, 1, 1]
    assert "shard 1: its process was killed by SIGKILL" in capsys.readouterr().err
    (tmp_path / "ever").mkdir()
    with pytest.raises(KilledError, match=r"SIGKILL \(of too much memory\?\)"):
        executor(tmp_path / "ever", kills=9).run()
    (tmp_path / "bad").mkdir()
    with pytest.raises(ValueError, match=r"^books\.txt, line 7: bad$"):
        executor(tmp_path / "bad", kills=0, complains=True).run()


def test_slurm_gets_one_job_after_another_and_its_tasks_write_the_same_corpus(
    described, tokenizer, tmp_path, monkeypatch
):
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "sbatch").write_text(
        f'#!/bin/sh\ncd {tmp_path}\necho "$@" >> submitted\necho Submitted batch job $(wc -l < submitted)\n'
    )
    (commands / "scontrol").write_text("#!/bin/sh\necho localhost\n")
    for command in commands.iterdir():
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    options = {"kind": "slurm", "arguments": {"time": "1:00:00", "partition": "cpu", "requeue_signals": None}}
    location = tercet.prepare(described("queued", executor=options, workers=3))
    assert not Path(location).exists()
    submitted = (tmp_path / "submitted").read_text().splitlines()
    assert "--dependency=afterok:1" in submitted[2]  # each is followed by one that joins its statistics
    work = Path(location).parent / "work"
    shards = json.loads((work / "plan.json").read_text())["tasks"]
    assert shards > 3
    assert f"#SBATCH --array=0-{shards - 1}%3" in (work / "shards" / "launch_script.slurm").read_text()
    monkeypatch.setenv("SLURM_NODELIST", "localhost")
    for name, tasks in (("shards", shards), ("manifest", 1)):
        with (work / name / "executor.pik").open("rb") as file:
            queued = dill.load(file)
        for task in range(tasks):
            monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
            queued.run()
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    assert contents(Path(location).parent) == contents(Path(tercet.prepare(described("local"))).parent)
