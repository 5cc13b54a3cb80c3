"""What is installed: the pins, the lock file and the metadata agree with each other and with the workflow."""

import re
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PUBLIC = {"https://pypi.org", "https://files.pythonhosted.org"}
"""Where anybody may get packages from."""
SETUP = ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
METADATA = SETUP["metadata"]


@pytest.fixture(scope="module")
def lock() -> dict[str, dict[str, Any]]:
    """Read the lock file: its packages by name."""
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    return {package["name"]: package for package in tomllib.loads(text)["package"]}


def normalized(name: str) -> str:
    """Write a package's name as an index does."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> set[tuple[str, str]]:
    """List what the package and its extras need: the name, and which versions."""
    lists = [SETUP["options"]["install_requires"], *SETUP["options.extras_require"].values()]
    named = [re.fullmatch(r"([\w.-]+)(\[\w+\])?(.*)", need) for needs in lists for need in needs.split()]
    return {(normalized(match[1]), ",".join(sorted(match[3].split(",")))) for match in named if match}


def test_constraints_are_the_versions_of_the_lock_file(lock) -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    locked = {name: package["version"] for name, package in lock.items() if name != "tercet"}
    assert {normalized(name): version for name, version in pins.items()} == locked, "run `make lock`"


def test_lock_file_is_of_these_requirements(lock) -> None:
    """`uv lock --check` says the same, but needs uv and the network."""
    locked = lock["tercet"]["metadata"]["requires-dist"]
    found = {(need["name"], ",".join(sorted(need.get("specifier", "").split(",")))) for need in locked}
    assert found == requirements(), "run `make lock`"


def test_lock_file_names_public_places_only() -> None:
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert set(re.findall(r"\w+://[^/\"]+", text)) == PUBLIC


def test_versions_of_python_are_claimed_that_were_tried() -> None:
    """The table of docs/install.md says what was run."""
    claimed = {line.rpartition(" ")[2] for line in METADATA["classifiers"].splitlines() if ":: 3." in line}
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("|") and "not tested" not in row]
    tried = {version for row in rows for version in re.findall(r"Python ((?:3\.\d+(?:, )?)+)", row)}
    assert claimed == {version for found in tried for version in found.rstrip(", ").split(", ")}
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    assert claimed <= set(workflow["jobs"]["tests"]["strategy"]["matrix"]["python"])


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_pages_name_the_supported_transformers(page) -> None:
    first, last, _ = supported_transformers()
    assert f"transformers {first} to {last}" in (ROOT / page).read_text(encoding="utf-8")


def test_the_oldest_and_the_newest_supported_transformers_are_tested(lock) -> None:
    first, last, need = supported_transformers()
    assert lock["transformers"]["version"].startswith(f"{last}."), "run `make lock`"
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    tested = workflow["jobs"]["tests"]["strategy"]["matrix"]["transformers"]
    assert tested == [f"transformers=={first}.*", need]


def supported_transformers() -> tuple[str, str, str]:
    """Return the first and the last minor version that setup.cfg admits, and what it asks for."""
    need = re.search(r"transformers>=([\d.]+),<(\d+)\.(\d+)", SETUP["options"]["install_requires"])
    assert need, "a cap is the next minor version: <5.25"
    return need[1], f"{need[2]}.{int(need[3]) - 1}", need[0]


def test_the_same_version_is_cited_and_described() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == METADATA["version"]
    assert f"## [{METADATA['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_what_uv_must_know_is_what_setup_cfg_says() -> None:
    """All else is dynamic: setuptools takes it from setup.cfg."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.pop("dynamic")
    assert project == {
        "name": METADATA["name"],
        "requires-python": SETUP["options"]["python_requires"],
        "license": "Apache-2.0",
        "license-files": ["LICENSE"],
    }
