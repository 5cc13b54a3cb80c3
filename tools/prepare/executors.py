"""What carries the tasks of a preparation out: processes of this machine, SLURM, Ray, Hugging Face Jobs.

The last three are datatrove's. Its local executor runs tasks in a pool of processes, which waits for ever for
a process that was killed; ours starts a process for each task, so that a killed one loses its shard alone,
and begins that anew.
"""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy, deepcopy
from inspect import signature
from multiprocessing.connection import wait
from typing import Any

from datatrove.executor import JobsPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.io import DataFolder
from datatrove.utils.stats import PipelineStats
from multiprocess.context import ForkServerContext, ForkServerProcess
from tqdm import tqdm

from ...configs.messages import first_line, shortened
from ...configs.processes import safe_path

ATTEMPTS = 3
"""How often a task is begun whose process is killed."""

PRELOADED = ["tercet.tools.prepare.blocks", "tercet.tools.prepare.near_duplicates"]
"""Modules that the server imports from which processes are forked."""


class KilledError(RuntimeError):
    """The process of a task was killed again and again."""


class UnfinishedError(RuntimeError):
    """Tasks did not end well, of which the rest needs all."""


def require_done(logs: DataFolder, tasks: int) -> None:
    """Make sure that all tasks of an executor have ended well, by its logs."""
    logs.fs.invalidate_cache()
    done = set(logs.list_files("completions"))
    missing = [str(rank) for rank in range(tasks) if f"completions/{rank:05d}" not in done]
    if missing:
        raise UnfinishedError(
            f"{len(missing)} of {tasks} tasks are not done ({shortened(missing)}): see "
            f"{logs.resolve_paths('logs')}, and run the same command again when none is queued or running"
        )


class LocalExecutor(LocalPipelineExecutor):
    """Run the tasks on this machine, at most `workers` at once, each in a process of its own.

    With a single worker, they run one after another in this process.
    """

    def run(self) -> None:
        """Run the tasks that are not done."""
        ranks = self.get_incomplete_ranks()
        done = self.tasks - len(ranks)
        last: Any = self.pipeline[-1]
        with tqdm(total=self.tasks, initial=done, desc=last.name, unit=" shards", disable=None) as bar:
            if self.workers == 1:
                pipeline = self.pipeline
                for rank in ranks:
                    self.pipeline = deepcopy(pipeline)
                    with silent():
                        self._run_for_rank(rank)
                    bar.update()
                self.pipeline = pipeline
            else:
                self._run_in_processes(ranks, bar.update)

    def _run_in_processes(self, ranks: Sequence[int], tell: Callable[[], object]) -> None:
        context = ForkServerContext()
        context.set_forkserver_preload(PRELOADED)
        waiting, attempts = list(ranks), dict.fromkeys(ranks, 0)
        running: dict[Any, tuple[ForkServerProcess, int, Any]] = {}
        failure: Exception | None = None
        try:
            while running or (waiting and failure is None):
                while waiting and failure is None and len(running) < self.workers:
                    rank = waiting.pop(0)
                    attempts[rank] += 1
                    ours, theirs = context.Pipe(duplex=False)
                    process = context.Process(target=carry_out, args=(self, rank, theirs))
                    with without_main(), safe_path():
                        process.start()
                    theirs.close()
                    running[process.sentinel] = process, rank, ours
                for sentinel in wait(list(running)):
                    process, rank, ours = running.pop(sentinel)
                    process.join()
                    error = outcome_of(process, ours)
                    if error is None:
                        tell()
                    elif not isinstance(error, KilledError) or attempts[rank] == ATTEMPTS:
                        failure = failure or error
                    else:
                        print(f"shard {rank}: {error}: begun anew", file=sys.stderr, flush=True)
                        waiting.insert(0, rank)
        finally:
            for process, *_ in running.values():
                process.terminate()
                process.join()
        if failure is not None:
            raise failure


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Start processes, as a context, that do not run the user's program again: tasks need nothing of it."""
    main = vars(sys.modules["__main__"])
    kept = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    main.update(dict.fromkeys(kept))
    try:
        yield
    finally:
        main.update(kept)


def carry_out(executor: LocalExecutor, rank: int, answer: Any) -> None:
    """Run a task in a process of its own, and send back what it raises."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the other cores have tasks of their own
    try:
        with silent():
            executor._run_for_rank(rank)
        answer.send(None)
    except Exception as error:
        answer.send((isinstance(error, ValueError | FileNotFoundError), str(error) or repr(error)))
    finally:
        answer.close()


def outcome_of(process: Any, answer: Any) -> Exception | None:
    """Read what became of a task from its process: nothing, or the error that it ended with."""
    try:
        sent = answer.recv()
    except EOFError:
        number = -process.exitcode
        name = signal.Signals(number).name if number > 0 else f"exit code {process.exitcode}"
        memory = " (of too much memory?)" if number == signal.SIGKILL else ""
        return KilledError(f"its process was killed by {name}{memory}")
    finally:
        answer.close()
    if sent is None:
        return None
    is_users, message = sent
    return ValueError(message) if is_users else RuntimeError(message)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep datatrove's log, which lies in a file for each task, off the screen, as a context."""
    from datatrove.utils.logging import logger

    logger.remove()
    with contextlib.redirect_stderr(io.StringIO()):
        yield


class SlurmExecutor(SlurmPipelineExecutor):
    """Give each task the blocks as they were built, whichever tasks the same job (`tasks_per_job`) ran.

    Jobs that wait for one that has failed are cancelled: SLURM would let them wait for ever.
    """

    def get_sbatch_args(self, max_array: int = 1) -> dict[str, Any]:
        return {"kill-on-invalid-dep": "yes"} | super().get_sbatch_args(max_array)

    def _run_for_rank(self, rank: int, local_rank: int = 0, node_rank: int = -1) -> PipelineStats:
        own = copy(self)
        own.pipeline = deepcopy(self.pipeline)  # one that draws goes on from where it is
        return super(SlurmExecutor, own)._run_for_rank(rank, local_rank, node_rank)


def run_in_turn(last: Any) -> None:
    """Run an executor that waits for its tasks, after those that it depends on.

    Those for Ray and Jobs end as if all was well when a task has failed, or wait for it for ever.
    """
    if last.depends is not None:
        run_in_turn(last.depends)
    last.run()
    require_done(last.logging_dir, last.world_size)


EXECUTORS: dict[str, type[PipelineExecutor]] = {
    "local": LocalExecutor,
    "slurm": SlurmExecutor,
    "ray": RayPipelineExecutor,
    "jobs": JobsPipelineExecutor,
}
"""Kind of an executor in a recipe -> its class."""


def built(cls: Any, own: dict[str, Any], arguments: dict[str, Any], key: str) -> Any:
    """Build a class of datatrove's from our arguments and the recipe's."""
    known = [name for name in signature(cls).parameters if name not in own]
    if unknown := [name for name in arguments if name not in known]:
        raise ValueError(
            f"{key} has {unknown[0]!r}, which {cls.__name__} does not take: use {', '.join(known) or 'none'}"
        )
    try:
        return cls(**own, **arguments)
    except ImportError as error:
        raise ValueError(f"{cls.__name__}: {first_line(error)}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key} of {cls.__name__}: {first_line(error)}") from error
