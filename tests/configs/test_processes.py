"""Processes start in one way, by which no module of the current folder is imported."""

import ast
import re
import sys
from fnmatch import translate
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tercet.configs.processes import safe_path, start_python

ROOT = Path(__file__).parents[2]
BESIDE = {"tests", "lab", "docs"}
LIBRARY = sorted(path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name not in BESIDE)

STARTS = (
    *(
        "os.exec*",
        "os.spawn*",
        "os.posix_spawn*",
        "os.system",
        "os.popen",
        "os.startfile",
        "os.fork*",
        "pty.*",
    ),
    *("subprocess.*", "asyncio.create_subprocess_*", "asyncio.subprocess.*", "runpy.*", "webbrowser.*"),
    *("*multiprocessing.[A-Z]*", "*multiprocessing.get_context", "*multiprocessing.set_*", "multiprocess.*"),
    *("multiprocessing.context.*", "*multiprocessing.spawn*", "*multiprocessing.start_processes"),
    *("concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process.*", "joblib.*"),
    *("torch.distributed.run*", "torch.distributed.launch*", "torch.distributed.elastic.*"),
    *("accelerate.*launch*", "accelerate.commands.*"),
)
"""Names that start programs or processes."""
ANY_START = re.compile("|".join(map(translate, STARTS)))
HARMLESS = {
    *(f"subprocess.{name}" for name in ("PIPE", "DEVNULL", "STDOUT", "CalledProcessError", "TimeoutExpired")),
    "multiprocessing.Event",
}
ALLOWED = {
    "configs/processes.py": {"subprocess.Popen"},
    "tools/prepare/executors.py": {
        "multiprocess.context.ForkServerContext",
        "multiprocess.context.ForkServerProcess",
    },
    "data/embedded_corpus.py": {"concurrent.futures.ProcessPoolExecutor", "multiprocessing.get_context"},
}
"""Beside the one way, a server of forks that starts in `safe_path`, and forks, which start no program."""


def starts_in(source: str) -> set[str]:
    """Name what in a module starts programs or processes, whatever it is imported as."""
    tree = ast.parse(source)
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            whole = [(each.asname, each.name, each.name.split(".")[0]) for each in node.names]
            known |= {alias or first: full if alias else first for alias, full, first in whole}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    named = {dotted(node, known) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)}
    return {name for name in named | {*known.values()} if ANY_START.match(name)} - HARMLESS


def dotted(node: ast.AST, known: dict[str, str]) -> str:
    """Write a name as its module does."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, known)}.{node.attr}"
    return known.get(node.id, "") if isinstance(node, ast.Name) else ""


def test_programs_are_started_in_one_way():
    files = [path for folder in LIBRARY for path in folder.rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): starts_in(path.read_text("utf-8")) for path in files}
    assert {path: names for path, names in found.items() if names} == ALLOWED
    assert "get_context(FORK)" in (ROOT / "data" / "embedded_corpus.py").read_text("utf-8")


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess\nsubprocess.run(['ls'])",
        "import subprocess as s\ns.check_output(['ls'])",
        "from subprocess import Popen as start\nstart(['ls'])",
        "def f():\n    import os\n    os.execvp('ls', ['ls'])",
        "from os import system\nsystem('ls')",
        "import torch.multiprocessing as mp\nmp.spawn(print)",
        "from multiprocessing import get_context\nget_context('spawn').Process()",
        "import multiprocessing\nmultiprocessing.Process(target=print).start()",
        "from accelerate import notebook_launcher\nnotebook_launcher(print)",
        "from torch.distributed.run import main\nmain()",
    ],
)
def test_the_law_sees_other_ways(source):
    assert starts_in(source)


@pytest.fixture
def foreign(tmp_path) -> Path:
    """Make a folder with a module that a program may be about to import."""
    (tmp_path / "sought.py").write_text("print('a module of the current folder runs')")
    return tmp_path


@pytest.mark.parametrize("arguments", [["-c", "import sought"], ["-m", "sought"]])
def test_no_module_of_the_current_folder_is_run(foreign, arguments):
    with start_python(arguments, cwd=foreign, stdout=PIPE, stderr=PIPE, text=True) as process:
        said, problem = process.communicate()
    assert (process.returncode, said) == (1, "")
    assert "No module named" in problem


def test_nor_by_what_others_start_meanwhile(foreign, monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)

    def say() -> str:
        options = {"cwd": foreign, "stdout": PIPE, "stderr": PIPE, "text": True}
        return Popen([sys.executable, "-c", "import sought"], **options).communicate()[0]

    with safe_path():
        assert say() == ""
    assert "a module of the current folder runs" in say()


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        "torch.distributed.run --standalone --nproc-per-node=1 --no-python",
        "accelerate.commands.launch --cpu --num_processes=1 --no_python",
    ],
)
def test_nor_by_a_launcher_that_starts_the_command_itself(launcher, tmp_path):
    for name in ("tercet", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('run from the current folder')\n")
    command = str(Path(sys.executable).with_name("tercet"))
    started = start_python(
        ["-m", *launcher.split(), command, "--version"], cwd=tmp_path, stdout=PIPE, text=True
    )
    said, _ = started.communicate()
    assert (started.returncode, said.split()[:1]) == (0, ["tercet"])
