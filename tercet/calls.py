"""How the functions of commands are called: `tercet.pretrain(...)`, and by the command line.

    name, path, dictionary or recipe -> overrides -> checked -> run -> a `Result`

An override is a text as on the command line, `"training.steps=100"`, or a keyword, whose dots are written as
two underscores: `training__steps=100`. Either replaces what stands under its key. Where a keyword names a
file of rows or a text, it may also be a DataFrame, a Dataset or a list of dictionaries (`rows_in_memory.py`),
and where it names a model, the `Result` of an earlier run.

A run writes its progress to stderr, and warnings as Python's own. Nothing is put on a logger, and a run in a
process changes nothing for the next one there. Ctrl-C, or a notebook's stop button, ends a step, writes a
checkpoint and raises `KeyboardInterrupt`: call the same again with `resume=True`.
"""

import gc
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

from .finished_reports import report_after
from .results import Result
from .rows_in_memory import SPLITS, calling, is_table, keep, splits_of

ROWS = (*SPLITS, "demonstrations")
"""Keys that name rows, under whatever parts of a recipe."""

SPINS, BUSY, TEAM = "10000", 0.6, "team that rests"
"""How often threads that wait look again; which share of the processors in use is much; a thread's name."""

imports_stay = False
"""Whether no garbage is looked for among what is there when a run begins: the process is a command's own."""


def load_recipe(source: Any, *overrides: str, command: str | None = None, **values: Any) -> Any:
    """Load a recipe of any kind, checked, as the frozen dataclass that `command` carries out.

        recipe = tercet.load_recipe("decoder-demo", training__steps=100)
        recipe.training.steps
        tercet.plan(recipe, device="a100")

    Args:
        source: A shipped recipe's name, a YAML file, a dictionary or a recipe.
        overrides: `"training.steps=100"`.
        command: `pretrain`, `prepare`, `finetune`, `distill` or `fewshot`; by default, the one whose recipes
            have the keys of this one.
        values: Overrides as keywords.

    Raises:
        ValueError: Unknown recipe or key, missing key, or a value of the wrong type or out of range.
    """
    from .configs.recipe import load_recipe as load
    from .kinds import KINDS, kind_of

    if command not in (None, *KINDS):
        raise ValueError(f"command is {command!r}: choose one of {', '.join(KINDS)}")
    with written_overrides(overrides, values) as given:
        return load(kind_of(command or command_for(source, given)).recipe, source, given)


def command_for(source: Any, overrides: Sequence[str]) -> str:
    """Find the command whose recipes have the keys of this one."""
    from .configs.recipe import read_recipe
    from .kinds import KINDS, command_of, commands_for

    if isinstance(source, str) and (command := command_of(source)):
        return command
    name, data = read_recipe(source, overrides)
    fitting = commands_for(set(data))
    if len(fitting) != 1:
        found = f"is one of {' or '.join(fitting)}" if fitting else f"has the keys {', '.join(data)}"
        raise ValueError(f"recipe {name} {found}: say which with command=, one of {', '.join(KINDS)}")
    return fitting[0]


def run_recipe(
    command: str,
    source: Any,
    overrides: Sequence[str],
    values: Mapping[str, Any],
    *,
    overwrite: bool,
    **options: Any,
) -> Result:
    """Check and carry out the recipe of a command, and return what it came to."""
    from .checks import check_recipe
    from .configs.recipe import load_recipe as load
    from .kinds import kind_of

    require_arguments(command, values)
    bound_spinning()
    with written_overrides(overrides, values) as given:
        resume = options.get("resume", False)
        with collecting_no_garbage():
            check_recipe(command, source, given, writes=True, resume=resume, overwrite=overwrite)
            kind = kind_of(command)
            say_that_libraries_load()
            recipe = load(kind.recipe, source, given)
            learns = kind.run_function(command)
        sleep_where_busy()
        learns(recipe, overwrite=overwrite, **options)
    report_after(command, recipe.folder)
    return Result(command, recipe.folder)


def require_arguments(command: str, values: Mapping[str, Any]) -> None:
    """Refuse a keyword that is no key of a command's recipe, and nearly an argument of its function."""
    from .commands import FUNCTIONS
    from .kinds import kind_of

    arguments = signature(FUNCTIONS[command]).parameters
    known = {*arguments, *kind_of(command).schema.names}
    for keyword in values:
        is_part = "__" in keyword or keyword in known
        if not is_part and (near := get_close_matches(keyword, arguments, n=1)):
            raise ValueError(
                f"{keyword} is neither an argument of tercet.{command} nor a key of its recipe; "
                f"did you mean {near[0]}?"
            )


def bound_spinning() -> None:
    """Let threads that wait for each other soon sleep; to be called before torch is imported.

    GNU's OpenMP lets them spin 300,000 times, which takes the cores from other programs, and from the very
    thread that is waited for. After 10,000 nothing is lost on a quiet machine, and far less on a busy one
    (docs/performance.md). What the user has set stays.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS


@contextmanager
def collecting_no_garbage() -> Iterator[None]:
    """Import libraries without looking for garbage, of which imports leave next to none, as a context.

    Python would look through all that is imported several times, which takes a quarter of the time. In a
    command's process, it never does: once would take half a second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            if not imports_stay:  # nor what others have made
                gc.unfreeze()  # what was imported is now among the oldest objects, looked through last
            gc.enable()


def sleep_where_busy() -> None:
    """Let threads that wait sleep nearly at once if other programs keep the processors busy, and say so.

    How long they spin is settled when torch is imported. But while a process has more threads than there are
    processors, GNU's OpenMP lets them spin 100 times; further teams, which rest from now on, make them so
    many. What the user has set stays.
    """
    import torch

    is_set = "OMP_WAIT_POLICY" in os.environ or os.environ["GOMP_SPINCOUNT"] != SPINS
    if is_set or torch.get_num_threads() == 1 or (share := share_in_use()) < BUSY:
        return
    if TEAM not in (thread.name for thread in enumerate_threads()):
        own = torch.get_num_threads()
        for _ in range((len(os.sched_getaffinity(0)) - own) // (own - 1) + 1):
            begun = Event()
            Thread(target=begin_team, args=(begun,), name=TEAM, daemon=True).start()
            begun.wait()
    told = f"other programs use {share:.0%} of the processors: threads that wait for each other sleep at once"
    print(told, file=sys.stderr)


def begin_team(begun: Event) -> None:
    """Compute something in several threads, and rest."""
    import torch

    torch.ones(2**20).add_(1)
    begun.set()
    Event().wait()


def share_in_use(seconds: float = 0.1) -> float:
    """Measure which share of the processors programs take while this one sleeps; 0 if nothing says it."""
    first = times_of_processors()
    time.sleep(seconds)
    passed = [after - before for before, after in zip(first, times_of_processors(), strict=True)]
    return 1 - sum(passed[3:5]) / sum(passed) if sum(passed) else 0.0


def times_of_processors() -> list[int]:
    """Read how long processors have computed for users, ..., been idle, and waited for disks (`man proc`)."""
    file = Path("/proc/stat")
    return [*map(int, file.read_text().split("\n")[0].split()[1:9])] if file.exists() else [0]


def say_that_libraries_load() -> None:
    """Say what a command waits for first, if torch is not imported yet."""
    if "torch" not in sys.modules:
        print("loading torch and transformers ...", file=sys.stderr, flush=True)


def values_of_rows(part: str, rows: Any) -> dict[str, Any]:
    """Name tables of rows by the keys of a recipe's part."""
    return {} if rows is None else {f"{part}__{split}": own for split, own in splits_of(rows).items()}


@contextmanager
def written_overrides(overrides: Sequence[str], values: Mapping[str, Any]) -> Iterator[list[str]]:
    """Write keywords as the command line has overrides; rows in memory become files.

    What is wrong with such rows is said inside by the key and the type that they were given with.
    """
    from .configs.recipe import written

    for override in overrides:
        if not isinstance(override, str):
            raise ValueError(
                f"override {override!r:.80}: write a text, as in 'training.steps=100', or a keyword"
            )
    given, files = [*overrides], dict[str, str]()
    for keyword, value in values.items():
        key = keyword.replace("__", ".")
        if is_table(value) or (key.rpartition(".")[2] in ROWS and holds_rows(key, value)):
            name = f"{key} (a {type(value).__name__})"
            value = keep(value, name)
            files[value] = name
        try:
            given.append(f"{key}={written(as_model(value))}")
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    with calling(files):
        yield given


def holds_rows(key: str, value: Any) -> bool:
    """Return whether the value of a key that names rows holds them itself; a corpus may also list texts."""
    is_listed = isinstance(value, list) and all(isinstance(row, Mapping) for row in value)
    return is_listed and not ("corpus." in key and all("path" in row for row in value))


def as_model(value: Any) -> Any:
    """Put the folder of a finished model in the place of a run's result, also within a list."""
    if isinstance(value, Result):
        return str(value.model_path)
    return [*map(as_model, value)] if isinstance(value, list) else value
