"""The folder of a Space: it holds what it needs, and runs where nothing else of Tercet is."""

import os
import runpy
import subprocess
import sys
from importlib.metadata import version

import pytest
import yaml

from tercet.__main__ import main
from tercet.reports.finished_run import find_run
from tercet.tools.play.space import GRADIO, prepare_space, requirements
from tercet.tools.push.publication import prepare

PROGRAM = """
import os, sys
from app import open_session
import tercet
from tercet.tools.play.page import as_html
assert os.path.dirname(tercet.__file__) == os.path.join(os.getcwd(), "tercet"), tercet.__file__
elsewhere = [name for name, module in sys.modules.items() if name.startswith("tercet.")
             and not (getattr(module, "__file__", None) or os.getcwd()).startswith(os.getcwd())]
assert not elsewhere, elsewhere
session = open_session([os.environ["MODEL"]])
print(as_html(session.answers("fill", ["The ___ sat."], {})))
"""


@pytest.fixture
def space(folders, tmp_path):
    """Write the Space of the encoder by the command."""
    folder = tmp_path / "space"
    assert main(["push", str(folders / "encoder"), "me/small", "--space-folder", str(folder)]) == 0
    return folder


def test_the_description_has_the_header_that_the_hub_reads(space):
    text = (space / "README.md").read_text(encoding="utf-8")
    header = yaml.safe_load(text.split("---\n")[1])
    assert header["sdk"] == "gradio"
    assert header["sdk_version"].split(".") >= GRADIO.split(".")[:1]
    assert header["app_file"] == "app.py"
    assert header["models"] == ["me/small"]
    assert header["python_version"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert len(header["short_description"]) <= 60
    assert header["colorFrom"] in {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}


def test_the_license_of_the_model_is_that_of_the_space(folders, tmp_path):
    import shutil

    shutil.copytree(folders / "encoder", tmp_path / "encoder")
    (tmp_path / "encoder" / "model" / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    publication = prepare(tmp_path / "encoder", "me/small")
    files = prepare_space(publication, find_run(tmp_path / "encoder")).files
    (readme,) = [file.source for file in files if file.path == "README.md"]
    assert isinstance(readme, bytes)
    assert b"license: apache-2.0" in readme


def test_the_space_needs_what_tercet_needs_and_no_extras(space):
    needs = (space / "requirements.txt").read_text().split()
    assert needs == requirements()
    assert any(line.startswith("torch>=") for line in needs)
    assert not any(line.startswith(("gradio", "pytest", "tercet")) for line in needs)


def test_the_program_names_the_model_and_listens_where_the_hub_wants_it(space, folders, monkeypatch):
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'tercet[play]'")
    launched = {}
    monkeypatch.setattr("gradio.Blocks.launch", lambda page, **options: launched.update(options))
    monkeypatch.setenv("MODEL", str(folders / "encoder" / "model"))
    runpy.run_path(str(space / "app.py"), run_name="__main__")
    assert launched["server_name"] == "0.0.0.0"
    assert launched["max_file_size"] == 0
    assert "app_kwargs" not in launched  # the Hub names the host
    assert '"me/small"' in (space / "app.py").read_text()


@pytest.mark.slow
def test_the_space_runs_with_its_own_sources_alone(space, folders):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=space,
        env=os.environ | {"MODEL": str(folders / "encoder" / "model"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert '<div class="ranking">' in done.stdout
    assert (space / f"tercet-{version('tercet')}.dist-info" / "METADATA").exists()


def test_a_folder_that_holds_something_is_left_alone(space, folders, capsys):
    before = sorted(space.rglob("*"))
    assert main(["push", str(folders / "encoder"), "me/small", "--space-folder", str(space)]) == 2
    assert "is not empty: choose another --space-folder" in capsys.readouterr().err
    assert sorted(space.rglob("*")) == before


def test_a_space_shows_no_branch(folders, capsys):
    assert main(["push", str(folders / "encoder"), "me/small", "--space", "--revision", "trial"]) == 2
    assert "a Space shows the main branch" in capsys.readouterr().err
