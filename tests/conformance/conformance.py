"""Run transformers' own tests of every model on ours, and on stock models for comparison.

The classes of tests come from the source distribution of the installed version, kept in `--folder`; what it
lacks is told in `suites.py`. What fails is listed, and what skips where the stock model passes.

Usage:
    python tests/conformance/conformance.py --folder .conformance
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
from pathlib import Path

import transformers

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
    options = parser.parse_args(arguments)
    tests = options.tests or download(options.folder)
    verdicts = {side: run(name, tests, options.folder / f"{side}.xml") for side, name in SIDES.items()}
    for side, found in verdicts.items():
        for member, counts in count(found).items():
            print(f"{side:6}{member:16}", ", ".join(f"{counts[kind]} {kind}" for kind in WORST))
    problems = [f"failed: {'::'.join(test)}" for test, kind in verdicts["ours"].items() if kind == "failed"]
    problems += [f"skipped, where stock passes: {'::'.join(test)}" for test in unlike(verdicts)]
    print("\n".join(problems or ["No failure, and no skip that a stock model has not."]))
    return int(bool(problems))


def download(folder: Path) -> Path:
    """Download the source distribution of the installed version, and return its folder of tests."""
    name = f"transformers-{transformers.__version__}"
    if not (folder / name).is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        pinned = f"transformers=={transformers.__version__}"
        subprocess.run([*command, "--dest", str(folder), pinned], check=True)
        with tarfile.open(folder / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder / name / "tests"


def run(name: str, tests: Path, results: Path) -> dict[tuple[str, str], str]:
    """Run one side's file, and return what became of each test by its class and name."""
    environment = os.environ | {"TRANSFORMERS_TESTS": str(tests.resolve()), "PYTHONPATH": str(HERE)}
    results.parent.mkdir(parents=True, exist_ok=True)
    options = ["-q", "-c", os.devnull, "--rootdir", str(HERE), f"--junitxml={results.resolve()}"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-W", "ignore", str(HERE / name)],
        env=environment | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )
    return read(results)


def read(results: Path) -> dict[tuple[str, str], str]:
    """Read what became of each test from pytest's results."""
    found: dict[tuple[str, str], str] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        test = (str(case.get("classname")).rpartition(".")[2], str(case.get("name")))
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
