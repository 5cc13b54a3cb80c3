"""The page as a Space on the Hugging Face Hub: a folder that holds the program, its needs and a description.

    app.py               opens the page of the model in the repository of the same name
    requirements.txt     what Tercet needs; Gradio comes with the Space
    README.md            the Space's settings as a YAML header
    tercet/              the part of Tercet that the page needs, so that nothing else has to be installed
    tercet-*.dist-info/  its name and version

The model is read from its own repository when the Space starts. The variable MODEL names another one.
"""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from ...configs.documents import write_document
from ...reports.finished_run import FinishedRun
from ..push.model_card import read_own_card
from ..push.publication import Publication, PublishedFile

ROOT = __name__.partition(".")[0]
"""Name of the package."""

PARTS = (
    "configs",
    "modeling",
    "data",
    "training",
    "pretraining",
    "finetune",
    "reports",
    "tools/push",
    "tools/play",
)
"""Its folders that the page needs."""

FIRST = ("distill", "fewshot", "tools")
"""Folders of which it needs the first file alone: the package names it as a function, or parts lie in it."""

GRADIO = "6.31.0"
"""Version that a Space asks for where Gradio is not installed."""

APP = '''\
"""The page of a model. The variable MODEL names another one: a repository on the Hub, or a folder."""

import os

from tercet.tools.play.page import build_page, settings
from tercet.tools.play.sessions import open_session

if __name__ == "__main__":
    model = os.environ.get("MODEL", {model})
    host = os.environ.get("GRADIO_SERVER_NAME", "0.0.0.0")
    build_page(open_session([model])).launch(server_name=host, **settings())
'''

README = """\
---
{header}---

# {title}

This Space shows the model [{repo}](https://huggingface.co/{repo}) with Tercet: what it can do, and how it
cuts a text into tokens. On your own machine: `tercet play {repo}`.
"""


def prepare_space(model: Publication, run: FinishedRun) -> Publication:
    """Gather the files of a Space that shows a model; nothing is sent and nothing written.

    Args:
        model: The publication of the model; the Space has the same name.
    """
    needs = "".join(f"{line}\n" for line in requirements())
    files = [
        PublishedFile("README.md", readme(model.repo, run).encode()),
        PublishedFile("app.py", APP.format(model=json.dumps(model.repo)).encode()),
        PublishedFile("requirements.txt", needs.encode()),
        *sources(),
    ]
    ordered = sorted(files, key=lambda file: file.path)
    return Publication(model.repo, model.folder, ordered, [], repo_type="space")


def readme(repo: str, run: FinishedRun) -> str:
    """Write the description of the Space, with its settings in front."""
    title = repo.partition("/")[2]
    card = read_own_card(run)
    license_name = card.data.to_dict().get("license") if card else None
    settings = {
        "title": title,
        "emoji": "\N{JIGSAW PUZZLE PIECE}",
        "colorFrom": "blue",
        "colorTo": "gray",
        "sdk": "gradio",
        "sdk_version": gradio_version(),
        "python_version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "app_file": "app.py",
        "models": [repo],
        "pinned": False,
        "short_description": "Try the model in the browser",
    } | ({"license": license_name} if license_name else {})
    return README.format(header=write_document(settings), title=title, repo=repo)


def gradio_version() -> str:
    """Return the version of Gradio that is installed, or one that is known to do."""
    try:
        return version("gradio")
    except PackageNotFoundError:
        return GRADIO


def requirements() -> list[str]:
    """List what Tercet needs, without its extras."""
    return [line for line in requires(ROOT) or () if "extra ==" not in line]


def sources() -> Iterator[PublishedFile]:
    """List the sources of Tercet that the page needs, and what names their version."""
    top = Path(str(import_module(ROOT).__file__)).parent
    for path in sorted(top.glob("*.py")):
        yield PublishedFile(f"{ROOT}/{path.name}", path)
    for part in FIRST:
        yield PublishedFile(f"{ROOT}/{part}/__init__.py", Path(str(import_module(f"{ROOT}.{part}").__file__)))
    for part in PARTS:
        folder = Path(str(import_module(f"{ROOT}/{part}".replace("/", ".")).__file__)).parent
        for path in sorted([*folder.rglob("*.py"), *folder.glob("templates/*")]):
            yield PublishedFile(f"{ROOT}/{part}/{path.relative_to(folder).as_posix()}", path)
    told = f"Metadata-Version: 2.1\nName: {ROOT}\nVersion: {version(ROOT)}\n"
    yield PublishedFile(f"{ROOT}-{version(ROOT)}.dist-info/METADATA", told.encode())


def write_space(space: Publication, folder: str) -> Path:
    """Write the files of a Space into a new folder, and give it."""
    output = Path(folder).expanduser()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{folder} is not empty: choose another --space-folder")
    for file in space.files:
        path = output / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.source if isinstance(file.source, bytes) else file.source.read_bytes())
    return output
