"""A plain checkout as the package `tercet`, without installing it: setup.cfg maps the folders to it."""

import atexit
import os
import re
import sys
from configparser import ConfigParser
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]

SETTINGS = ConfigParser()
SETTINGS.read(ROOT / "setup.cfg", encoding="utf-8")


def run_program(name: str, arguments: list[str]) -> int:
    """Run a program of this folder with the package that lies in this checkout; 2 tells of wrong usage."""
    try:
        require_libraries()
    except ValueError as error:
        print(f"{name}.py: {error}", file=sys.stderr)
        return 2
    make_importable()
    return import_module(name).main(arguments)


def require_libraries() -> None:
    """Make sure that the libraries are there; none is imported.

    Raises:
        ValueError: Some are not, or are too old: the message names them all, and how to get them.
    """
    if missing := [need for need in SETTINGS["options"]["install_requires"].split() if not is_met(need)]:
        names = " ".join(f"'{need}'" for need in missing)
        raise ValueError(
            f"libraries are missing or too old; run {sys.executable} -m pip install {names}. Where there is "
            "no network, run pip download -d wheels with these names elsewhere, bring the folder here, and "
            "add --no-index --find-links wheels"
        )


def is_met(requirement: str) -> bool:
    """Return whether a library is installed and as new as `name>=1.2` asks for."""
    name, _, least = requirement.partition(">=")
    try:
        found, wanted = (
            re.findall(r"\d+", number)[:2] for number in (version(name), least.partition(",")[0])
        )
    except PackageNotFoundError:
        return False
    return [*map(int, found)] >= [*map(int, wanted)]


def make_importable() -> Path:
    """Make `tercet` and the programs of this folder importable here, and in processes that start here.

    Links to the folders, and what `importlib.metadata` asks for, lie in the returned folder until the end.
    """
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    links = Path(folder.name)
    (links / "tercet").mkdir()
    for file in (ROOT / "tercet").iterdir():
        (links / "tercet" / file.name).symlink_to(file)
    for line in SETTINGS["options"]["package_dir"].strip().splitlines()[1:]:
        package, _, path = line.partition(" = ")
        (links / package.replace(".", "/")).symlink_to(ROOT / path)
    number = SETTINGS["metadata"]["version"]
    (about := links / f"tercet-{number}.dist-info").mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tercet\nVersion: {number}\n")
    sys.path[:0] = paths = [folder.name, str(Path(__file__).parent)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # else the working directory, which has half of the package, comes first
    )
    return links
