"""Run transformers' own tests of every model on ours, and on stock models for comparison.

The classes of tests come from the source distribution of the installed version, kept in `--folder`; what it
lacks is told in `suites.py`. What fails is listed, and what skips where the stock model passes.

Usage:
    python tests/conformance/conformance.py --folder .conformance
    python tests/conformance/conformance.py --ours                         # no stock models: a minute
    python tests/conformance/conformance.py --tests ../transformers/tests  # of a whole checkout
"""

import argparse
import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
SIDES = {"ours": "members.py", "stock": "stock.py"}
WORST = ("failed", "skipped", "passed")
"""What may become of a test; of its parts, the first that came about counts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both sides, print what is told above, and return 1 if there is anything to list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(".conformance"), help="downloads and results")
    parser.add_argument("--tests", type=Path, help="a folder `tests` of transformers, instead of a download")
    parser.add_argument("--ours", action="store_true", help="without the stock models, and so without skips")
    options = parser.parse_args(arguments)
    tests = options.tests or download(options.folder)
    sides = ["ours"] if options.ours else SIDES
    verdicts = {side: run(SIDES[side], tests, options.folder / f"{side}.xml") for side in sides}
    for side, found in verdicts.items():
        for member, counts in count(found).items():
            print(f"{side:6}{member:16}", ", ".join(f"{counts[kind]} {kind}" for kind in WORST))
    problems = [f"failed: {'::'.join(test)}" for test, kind in verdicts["ours"].items() if kind == "failed"]
    if not options.ours:
        problems += [f"skipped, where stock passes: {'::'.join(test)}" for test in unlike(verdicts)]
    without_problems = "No failure" + ("." if options.ours else ", and no skip that a stock model has not.")
    print("\n".join(problems or [without_problems]))
    return int(bool(problems))


def download(folder: Path) -> Path:
    """Download the source distribution of the installed version, and return its folder of tests."""
    name = f"transformers-{version('transformers')}"
    if not (folder / name).is_dir():
        pip("download", "--no-deps", "--no-binary", ":all:", "--dest", folder, name.replace("-", "=="))
        with tarfile.open(folder / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder / name / "tests"


def pip(*arguments: str | Path) -> None:
    """Run pip, quietly."""
    command, *options = map(str, arguments)
    subprocess.run([sys.executable, "-m", "pip", command, "--quiet", *options], check=True)


def run(name: str, tests: Path, results: Path) -> dict[tuple[str, str], str]:
    """Run one side's file, and return what became of each test by its class and name."""
    results.parent.mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)
    # The conftest.py of the folders above is of other tests.
    options = [
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(HERE),
        "--confcutdir",
        str(HERE),
        "--disable-warnings",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--junitxml={results}", str(HERE / name)],
        env=environment(tests, results.parent / "packages"),
        check=False,
    )
    if not results.exists():
        raise RuntimeError(f"pytest did not run {name}: it ended with status {done.returncode}")
    return {(member.rpartition(".")[2], test): kind for (member, test), kind in read(results).items()}


def environment(tests: Path, packages: Path) -> dict[str, str]:
    """Return the variables with which one side finds the tests, and what these import."""
    if not find_spec("parameterized") and not packages.is_dir():
        pip("install", "--no-deps", "--target", packages, "parameterized>=0.9")
    paths = [str(HERE), os.environ.get("PYTHONPATH", ""), str(packages.resolve())]
    return os.environ | {
        "TRANSFORMERS_TESTS": str(tests.resolve()),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "HF_HUB_OFFLINE": "1",
    }


def read(results: Path) -> dict[tuple[str, str], str]:
    """Read what became of each test from pytest's results, by the test's module (and class) and its name."""
    found: dict[tuple[str, str], str] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        test = (str(case.get("classname")), str(case.get("name")))
        found[test] = min(kind, found.get(test, kind), key=WORST.index)
    return found


def count(found: dict[tuple[str, str], str]) -> dict[str, Counter[str]]:
    """Count what became of the tests of each class."""
    classes = dict.fromkeys(member for member, _ in found)
    return {name: Counter(kind for (member, _), kind in found.items() if member == name) for name in classes}


def unlike(verdicts: dict[str, dict[tuple[str, str], str]]) -> list[tuple[str, str]]:
    """List the tests that are skipped for ours and passed by stock models."""
    stock = verdicts["stock"]
    return [t for t, kind in verdicts["ours"].items() if kind == "skipped" and stock.get(t) == "passed"]


if __name__ == "__main__":
    sys.exit(main())
