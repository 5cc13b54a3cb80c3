"""Tasks survive that one of them is killed, and an error ends them all with one line."""

import json
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove", reason="the extra `prepare` is not installed")

import dill
from datatrove.pipeline.base import PipelineStep

import tercet
from tercet.tools.prepare.executors import EXECUTORS, KilledError, LocalExecutor, UnfinishedError

from .conftest import DOCUMENTS
from .test_prepare import contents, manifest_in


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


class Forgiving(LocalExecutor):
    """Ends, as datatrove's executors for Ray and Jobs do, as if all was well."""

    def run(self):
        """Run the tasks."""
        with suppress(ValueError):
            super().run()


def test_failed_tasks_of_another_executor_are_an_error(described, tmp_path, monkeypatch):
    monkeypatch.setitem(EXECUTORS, "ray", Forgiving)
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for file, row in zip(files, ['{"text": "Some text."}', '{"text"', '{"text": "More."}'], strict=True):
        file.write_text(row)
    corpus = {"path": [*map(str, files)], "shard_bytes": 1}
    recipe = described(corpus=corpus, executor={"kind": "ray"})
    with pytest.raises(UnfinishedError, match=r"^2 of 3 tasks are not done \(1, 2\): see .*/shards/logs"):
        tercet.prepare(recipe)
    assert not (tmp_path / "prepared" / "work" / "manifest").exists()
    without = [{"name": "RegexFilter", "arguments": {"regex_exp": "."}}]
    with pytest.raises(UnfinishedError, match=r"^1 of 1 tasks are not done \(0\): see .*/work/manifest/logs"):
        tercet.prepare(described("none", executor={"kind": "ray"}, filters=without))


SLURM: Any = {"kind": "slurm", "arguments": {"time": "1:00:00", "partition": "cpu", "requeue_signals": None}}


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Callable[[Path, Iterable[int]], None]:
    """Stand in for a cluster: note what is submitted; what is given runs tasks of a job, by its folder."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "sbatch").write_text(
        f'#!/bin/sh\ncd {tmp_path}\necho "$@" >> submitted\necho Submitted batch job $(wc -l < submitted)\n'
    )
    (commands / "scontrol").write_text("#!/bin/sh\necho localhost\n")
    for command in commands.iterdir():
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_NODELIST", "localhost")

    def run(job: Path, tasks: Iterable[int]) -> None:
        with (job / "executor.pik").open("rb") as file:
            queued = dill.load(file)
        for task in tasks:
            with monkeypatch.context() as inside:
                inside.setenv("SLURM_ARRAY_TASK_ID", str(task))
                queued.run()

    return run


def test_slurm_gets_one_job_after_another_and_its_tasks_write_the_same_corpus(described, tmp_path, slurm):
    folder = Path(tercet.prepare(described("queued", executor=SLURM, workers=3))).parent
    assert not (folder / "manifest.json").exists()
    submitted = (tmp_path / "submitted").read_text().splitlines()
    assert "--dependency=afterok:1" in submitted[2]  # each is followed by one that joins its statistics
    work = folder / "work"
    shards = json.loads((work / "plan.json").read_text())["tasks"]
    assert shards > 3
    script = (work / "shards" / "launch_script.slurm").read_text()
    assert f"#SBATCH --array=0-{shards - 1}%3" in script
    assert "#SBATCH --kill-on-invalid-dep=yes" in script
    slurm(work / "shards", range(shards))
    slurm(work / "manifest", [0])
    assert contents(folder) == contents(Path(tercet.prepare(described("local"))).parent)


def test_a_filter_draws_the_same_however_many_tasks_a_job_has(described, slurm):
    filters = [{"name": "SamplerFilter", "arguments": {"rate": 0.5, "seed": 0}}]
    several = SLURM | {"arguments": SLURM["arguments"] | {"tasks_per_job": 9}}
    chosen: Any = {"filters": filters, "corpus": {"shard_bytes": 15_000}}
    location = tercet.prepare(described("queued", executor=several, **chosen))
    folder = Path(location).parent
    for job in ("shards", "manifest"):
        slurm(folder / "work" / job, [0])
    assert len(manifest_in(location).shards) > 1
    assert contents(folder) == contents(Path(tercet.prepare(described("local", **chosen))).parent)


def test_a_reader_reads_what_was_there_when_the_preparation_began(described, tmp_path, slurm):
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"{number}.jsonl").write_text(json.dumps({"text": DOCUMENTS[number]}))
    reader = {"name": "JsonlReader", "arguments": {"data_folder": str(folder), "glob_pattern": "*.jsonl"}}
    corpus = {"path": None, "reader": reader, "tasks": 2}
    before = Path(tercet.prepare(described("before", corpus=corpus))).parent
    queued = Path(tercet.prepare(described("queued", corpus=corpus, executor=SLURM))).parent
    (folder / "0.jsonl").write_text(json.dumps({"text": DOCUMENTS[0]}))
    slurm(queued / "work" / "shards", range(2))
    slurm(queued / "work" / "manifest", [0])
    assert contents(queued) == contents(before)
    sources = manifest_in(str(queued / "manifest.json")).sources
    assert sources == [
        {"name": name, "bytes": (folder / name).stat().st_size} for name in ("1.jsonl", "2.jsonl")
    ]
    with pytest.raises(ValueError, match="prepared with another sources"):
        tercet.prepare(described("before", corpus=corpus))
    (folder / "only.txt").write_text("2.jsonl\n0.jsonl\n")
    del reader["arguments"]["glob_pattern"]
    reader["arguments"]["paths_file"] = str(folder / "only.txt")
    named = manifest_in(tercet.prepare(described("named", corpus=corpus)))
    assert named.sources == [{"name": "2.jsonl"}, {"name": "0.jsonl"}]
    (folder / "only.txt").write_text("")
    with pytest.raises(FileNotFoundError, match=r"JsonlReader finds no files in .*rows"):
        tercet.prepare(described("none", corpus=corpus))


def test_no_task_begins_before_those_that_it_needs_are_done(described, slurm):
    """SLURM lets a job begin after the last array of the one before, whatever became of the others."""
    chosen: Any = {"deduplicate": {"n_grams": 2, "num_buckets": 2}, "corpus": {"shard_bytes": 15_000}}
    folder = Path(tercet.prepare(described("queued", executor=SLURM, **chosen))).parent
    work, half = folder / "work", folder / "shards" / ".partial.of-a-task"
    shards = json.loads((work / "plan.json").read_text())["tasks"]
    number = {"duplicates/1": shards, "duplicates/2": 2, "duplicates/3": 1, "shards": shards}
    for name, following in pairwise(number):
        *first, last = range(number[name])
        slurm(work / name, first)
        with pytest.raises(
            UnfinishedError, match=rf"^1 of {number[name]} tasks are not done \({last}\): see .*{name}/logs"
        ):
            slurm(work / following, [0])
        slurm(work / name, [last])
    slurm(work / "shards", range(1, shards))
    assert shards > 1
    half.mkdir()
    tercet.prepare(described("queued", executor=SLURM, **chosen))
    assert half.exists()  # a task of another machine may be at it
    slurm(work / "shards", [0])
    slurm(work / "manifest", [0])
    assert not half.exists()
    assert contents(folder) == contents(Path(tercet.prepare(described("local", **chosen))).parent)
