"""The package as strangers get it: a wheel built from the source distribution, in its own environment."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return what it printed; a failure shows it."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the source distribution from the sources, and the wheel from nothing but it."""
    folder = tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns(
        ".*", "build", "dist", "runs", "site", "typings", "*.egg-info", "__pycache__"
    )
    shutil.copytree(ROOT, folder / "sources", ignore=unwanted)
    # Without --sdist or --wheel, `build` makes the wheel from the source distribution that it made before.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "sources", cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """Install the wheel where only it and the dependencies can be imported; return the `bin` folder."""
    folder = wheel.parent / "environment"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=wheel.parent)
    site_packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    # A path in a .pth file adds a folder without reading its own .pth files: the editable install stays out.
    (Path(site_packages.strip()) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_archives_have_what_an_index_asks_for(wheel: Path) -> None:
    """The description renders and the metadata are valid, as an index checks them."""
    pytest.importorskip("twine", reason="twine is not installed")
    archives = [wheel, *wheel.parent.glob("*.tar.gz")]
    assert len(archives) == 2
    printed = run(sys.executable, "-m", "twine", "check", "--strict", *archives, cwd=wheel.parent)
    assert printed.count("PASSED") == 2


def test_wheel_holds_every_source_and_configuration(wheel: Path) -> None:
    from zipfile import ZipFile

    held = {entry for entry in ZipFile(wheel).namelist() if ".dist-info/" not in entry}
    folders = [folder for folder in ROOT.iterdir() if (folder / "__init__.py").exists()]
    modules = {path for folder in folders for path in folder.rglob("*.py")}
    data = {*(ROOT / "configs").rglob("*.yaml"), *(ROOT / "configs").glob("*.json")}
    data |= {ROOT / "tercet" / "py.typed"}
    data |= {*(ROOT / "reports" / "templates").iterdir()}
    names = {path.relative_to(ROOT).as_posix() for path in modules | data}
    assert held == {entry if entry.startswith("tercet/") else f"tercet/{entry}" for entry in names}


@pytest.mark.slow
def test_installed_wheel_registers_the_models_and_imports_every_module(environment: Path) -> None:
    program = """
import importlib, pkgutil, tercet, transformers
assert "environment" in tercet.__file__, tercet.__file__
print(transformers.AutoConfig.for_model("tercet_encoder").model_type)
for module in pkgutil.walk_packages(tercet.__path__, "tercet."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
"""
    printed = run(environment / "python", "-c", program, cwd=environment)
    first, *modules = printed.split()
    assert first == "tercet_encoder"
    assert {"tercet.modeling", "tercet.training", "tercet.pretraining.run"} <= set(modules)


@pytest.mark.slow
def test_installed_command_line_answers(environment: Path) -> None:
    assert "COMMAND" in run(environment / "tercet", "--help", cwd=environment)
    listed = run(environment / "tercet", "recipes", "--all", cwd=environment)
    assert {path.stem for path in (ROOT / "configs").rglob("*.yaml")} <= set(listed.split())
