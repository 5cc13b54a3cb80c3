"""How hard property tests try, quickly and fixed or slowly and at random; and programs beside the tests."""

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from . import launches
from .fork_server import ForkServer

TIMES_SLOW = 5
"""How many times more examples the slow search takes."""


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Leave what is written to the system's memory: processes are killed in tests, and no power is lost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


def pytest_collection_finish() -> None:
    """Leave what was imported out of all searches for garbage, of which every stock trainer makes several."""
    gc.collect()
    gc.freeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their number: packed ones hold the time, and all workers must collect the same names."""
    return f"{len(val)}_bytes" if isinstance(val, bytes) else None


@pytest.fixture(params=["quick", pytest.param("slow", marks=pytest.mark.slow)])
def effort(request) -> Callable[[int], settings]:
    """Return the settings of a property test by the number of examples of its quick search."""
    is_quick = request.param == "quick"
    return lambda examples: settings(
        max_examples=examples if is_quick else TIMES_SLOW * examples,
        derandomize=is_quick,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture
def hub(monkeypatch) -> Callable[..., Counter[str]]:
    """Return the function that publishes folders by name, as if they lay on the Hub, and counts fetches."""

    def publish(folders: Mapping[str, Path]) -> Counter[str]:
        fetched: Counter[str] = Counter()

        def fetch(name: str, **_: object) -> str:
            fetched[name] += 1
            return str(folders[name])

        monkeypatch.setattr("tercet.modeling.saved.model_folder.snapshot_download", fetch)
        return fetched

    return publish


@pytest.fixture
def program(tmp_path_factory):
    """Start Python programs, called `tercet`: as the command does, they import only what they need."""
    processes = []

    def start(text: str) -> subprocess.Popen:
        file = tmp_path_factory.mktemp("program") / "tercet"
        file.write_text(text)
        processes.append(subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


HOLD = """
import sys, time
from pathlib import Path
from tercet.data.files.locks import occupied
sys.argv = ["tercet", "pretrain", "mine.yaml"]
with occupied(Path({folder!r})):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hold(program) -> Callable[[Path], subprocess.Popen]:
    """Start processes that hold a folder's lock."""

    def start(folder: Path) -> subprocess.Popen:
        process = program(HOLD.format(folder=str(folder)))
        assert process.stdout.readline() == "held\n"
        return process

    return start


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory):
    """Start programs that need the libraries, which are imported once for all of them."""
    server = ForkServer(tmp_path_factory.mktemp("forked"))
    yield server
    server.close()


@pytest.fixture
def fork(fork_server) -> Callable[..., Callable[[], None]]:
    """Start a command in two processes, as copies or in pieces; what is returned waits for its end."""
    return partial(launches.fork, fork_server)
