"""Run the tests with versions of other libraries that are not installed, and write down what passes.

    python -m lab.compatibility.versions                                 the newest of all: ten minutes
    python -m lab.compatibility.versions --torch 2.14.1                  the same with another torch
    python -m lab.compatibility.versions --transformers 5.17.0           this one, beside what is installed
    python -m lab.compatibility.versions --transformers 5.17.0 --whole   with the whole default suite
    python -m lab.compatibility.versions --render                        nothing: write the table again

The versions lie in an overlay, a folder in .newest that PYTHONPATH names: nothing that is installed changes.
What setup.cfg admits must pass; what it excludes is tried and told, and fails nothing. The table is in
docs/ecosystem.md.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..publishing import RESULTS, Result, keep, lines_of, read, write_between_marks

ROOT = Path(__file__).parents[2]
SETTINGS = ConfigParser()
SETTINGS.read(ROOT / "setup.cfg", encoding="utf-8")

NAME, PAGE = "versions", ROOT / "docs" / "ecosystem.md"
FOLDER, DOWNLOADS = ROOT / ".newest", ROOT / ".conformance"

FOLLOWED = (
    "transformers",
    "tokenizers",
    "accelerate",
    "datasets",
    "peft",
    "trl",
    "sentence-transformers",
    "lm-eval",
)
"""The libraries that are tried in their newest version; torch only if it is asked for."""

LANE = ("modeling", "ecosystem", "tools/convert", "tools/push")
"""The folders of tests that most depend on the other libraries."""

PARTS = {"conformance": "conformance", "lane": "models and libraries", "whole": "default suite"}
"""What is run, and what the table calls it."""

NEWEST = "newest"
"""The row of the newest libraries, which each run without a version replaces. Others are named by version."""

CONFORMANCE = ROOT / "tests" / "conformance" / "conformance.py"

Versions = dict[str, str]


@dataclass(frozen=True)
class Trial:
    """Versions to try: the name of their row, those of the overlay, and the parts to run."""

    name: str
    overlay: Versions
    parts: tuple[str, ...]

    @property
    def versions(self) -> Versions:
        """Those of all that is followed, of torch, and of what else the overlay has."""
        return {name: version(name) for name in (*FOLLOWED, "torch")} | self.overlay


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the versions that are asked for; return 1 if what setup.cfg admits did not pass."""
    options, path, status = parse(arguments), RESULTS / f"{NAME}.json", 0
    rows: dict[str, Result] = read(path)["rows"] if path.exists() else {}
    if options.render:
        write(rows)
        return 0
    trials = trials_of(options)
    if not options.transformers:
        rows.pop(NEWEST, None)
    for trial in trials:
        old = rows.get(trial.name, {})
        found = old["parts"] if old.get("versions") == trial.versions else {}
        kept = {part: each for part, each in found.items() if part not in trial.parts}
        rows[trial.name] = {"versions": trial.versions, "overlay": [*trial.overlay], "parts": kept}
        write(rows)  # before the tests: one is that the page shows no failure
        rows[trial.name]["parts"] |= carry_out(trial, options.workers)
        write(rows)
        status = max(status, judge(trial, rows[trial.name]["parts"]))
    return status


def parse(arguments: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", help="this version, instead of the newest of all libraries")
    parser.add_argument("--torch", help="this version, instead of the installed one")
    parser.add_argument("--whole", action="store_true", help="run the default suite, not a part of it")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--render", action="store_true", help="write the table without running anything")
    return parser.parse_args(arguments)


def write(rows: dict[str, Result]) -> None:
    keep(RESULTS / f"{NAME}.json", {"rows": rows})
    write_between_marks(PAGE, render({"rows": rows}), NAME)


def trials_of(options: Namespace) -> list[Trial]:
    """Find the versions to try: those that are asked for, or the newest that setup.cfg admits.

    If setup.cfg excludes the newest transformers, that is a second trial. Where all is installed already,
    conformance alone runs: `make test` runs the rest.
    """
    torch = [f"torch=={options.torch}"] if options.torch else []
    tests = "whole" if options.whole else "lane"

    def asked(number: str) -> Trial:
        overlay = resolve([f"transformers=={number}", *torch])
        return Trial(name_of(overlay), overlay, ("conformance", tests))

    if options.transformers:
        return [asked(options.transformers)]
    overlay = resolve([*map(str, admitted(FOLLOWED)), *torch], "--upgrade")
    if overlay:
        name = NEWEST if set(overlay) & set(FOLLOWED[1:]) else name_of(overlay)
        trials = [Trial(name, overlay, ("conformance", tests))]
    else:
        trials = [Trial(name_of({}), {}, ("conformance", *(["whole"] if options.whole else [])))]
    newest = resolve(["transformers"], "--upgrade", "--no-deps").get("transformers", version("transformers"))
    if not is_admitted("transformers", newest):
        try:
            trials.append(asked(newest))
        except PipError as error:
            print(f"transformers {newest}, which setup.cfg excludes, cannot be tried: {error}")
    return trials


def name_of(overlay: Versions) -> str:
    return ", ".join(f"{name} {overlay.get(name) or version(name)}" for name in ("transformers", "torch"))


def admitted(names: Iterable[str]) -> list[Requirement]:
    """Return what setup.cfg asks for of these libraries; what it does not name is free."""
    extras = SETTINGS["options.extras_require"].values()
    lines = "\n".join([SETTINGS["options"]["install_requires"], *extras]).split()
    needs: dict[str, Requirement] = {canonicalize_name(need.name): need for need in map(Requirement, lines)}
    return [needs.get(name, Requirement(name)) for name in names]


def is_admitted(name: str, number: str) -> bool:
    return admitted([name])[0].specifier.contains(number, prereleases=True)


def excluded(versions: Versions) -> list[str]:
    return [name for name, number in versions.items() if not is_admitted(name, number)]


class PipError(SystemExit):
    """pip has failed, and has said why."""


def resolve(requirements: Sequence[str], *options: str) -> Versions:
    """Return what pip would install for these requirements, beside what is installed: names and versions.

    Dependencies are among them if a range excludes what is installed. torch stays, unless it is required.
    """
    with TemporaryDirectory() as folder:
        report, constraints = Path(folder, "report.json"), Path(folder, "constraints.txt")
        is_torch_free = any(need.startswith("torch==") for need in requirements)
        constraints.write_text("" if is_torch_free else f"torch=={version('torch')}\n", encoding="utf-8")
        pip("install", "--dry-run", "--report", report, "-c", constraints, *options, *requirements)
        found = [each["metadata"] for each in json.loads(report.read_text(encoding="utf-8"))["install"]]
    return {canonicalize_name(each["name"]): each["version"] for each in found}


def pip(command: str, *options: str | Path) -> None:
    """Run pip, which says what is wrong."""
    done = subprocess.run([sys.executable, "-m", "pip", command, "-qq", *map(str, options)], check=False)
    if done.returncode:
        raise PipError(f"pip {command} failed for the versions that are asked for: see its message above")


def carry_out(trial: Trial, workers: int) -> dict[str, Result]:
    """Say what is tried, run its parts, and return what came of each."""
    versions = ", ".join(f"{name} {number}" for name, number in trial.versions.items())
    beyond = ", ".join(excluded(trial.versions))
    print(f"\nTrying{f' what setup.cfg excludes ({beyond})' if beyond else ''}: {versions}", flush=True)
    if trial.parts == ("conformance",):
        print("All of this is installed already, and `make test` runs all but conformance", flush=True)
    folder = FOLDER / trial.name.replace(", ", "-").replace(" ", "-")
    install(trial.overlay, folder / "packages")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder / "packages"), os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONDONTWRITEBYTECODE": "",
    }
    figures = {}
    for part in trial.parts:
        command, results = command_of(part, folder, workers)
        results.unlink(missing_ok=True)
        begin = time.monotonic()
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        figures[part] = figure(results, status)
        seconds = time.monotonic() - begin
        print(f"{PARTS[part]}: {text_of(figures[part])} ({seconds:.0f} s)", flush=True)
    return figures


def install(overlay: Versions, folder: Path) -> None:
    """Put these packages into a folder, without what they depend on, unless they are there."""
    record = folder / "versions.json"
    if record.exists() and json.loads(record.read_text(encoding="utf-8")) == overlay:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if overlay:
        pip("install", "--no-deps", "--target", folder, *map("==".join, overlay.items()))
    record.write_text(json.dumps(overlay), encoding="utf-8")


def command_of(part: str, folder: Path, workers: int) -> tuple[list[str], Path]:
    """Return the command of a part, and the file to which pytest writes its results."""
    if part == "conformance":
        options = ["--ours", "--folder", str(DOWNLOADS)]
        return [sys.executable, str(CONFORMANCE), *options], DOWNLOADS / "ours.xml"
    results = folder / f"{part}.xml"
    tests = [f"tests/{name}" for name in LANE] if part == "lane" else []
    distribution = ("-n", str(workers), "--dist", "worksteal", "-m", "not slow")  # as in `make test`
    return [sys.executable, "-m", "pytest", "-q", *distribution, f"--junitxml={results}", *tests], results


def figure(results: Path, status: int) -> Result:
    """Count what became of the tests; a program that ended early has no results, but a status."""
    try:
        kinds = Counter(runpy.run_path(str(CONFORMANCE))["read"](results).values())
    except (FileNotFoundError, ElementTree.ParseError):
        kinds = Counter()
    return {kind: kinds[kind] for kind in ("passed", "skipped", "failed")} | {"status": status}


def judge(trial: Trial, figures: Mapping[str, Result]) -> int:
    """Say whether a trial passed, and return 1 if it did not, but had to."""
    failed = [PARTS[part] for part in trial.parts if not has_passed(figures[part])]
    if not failed:
        print("passed")
        return 0
    print(f"failed: {'; '.join(failed)}")
    return int(not excluded(trial.versions))


def has_passed(found: Mapping[str, int]) -> bool:
    return not found["status"] and not found["failed"] and found["passed"] > 0


def render(result: Result) -> str:
    """Write the table: a row for each set of versions, the newest first."""
    tried = (row for row in result["rows"].values() if row["parts"])
    names = ("transformers", "torch")
    rows = sorted(tried, key=lambda row: [Version(row["versions"][name]) for name in names], reverse=True)
    needs = SETTINGS["options"]["install_requires"].split()
    (need,) = (each for each in needs if Requirement(each).name == "transformers")
    head = [*names, "other libraries", *PARTS.values()]
    return "\n".join([f"`setup.cfg` asks for `{need}`.", "", *lines_of(head, map(cells_of, rows), "l")])


def cells_of(row: Result) -> list[str]:
    """Write a row's cells."""
    versions, parts = row["versions"], row["parts"]
    number = versions["transformers"] + (" (excluded)" if excluded(versions) else "")
    shown = (*FOLLOWED[1:], "huggingface-hub")
    others = ", ".join(f"{name} {versions[name]}" for name in shown if name in row["overlay"])
    otherwise = "part of the default suite" if "whole" in parts else "not run"
    tests = (text_of(parts[part]) if part in parts else otherwise for part in PARTS)
    return [number, versions["torch"], others or "as pinned", *tests]


def text_of(found: Mapping[str, int]) -> str:
    """Write the counts of a part."""
    counts = ", ".join(f"{found[kind]:,} {kind}" for kind in ("passed", "skipped", "failed"))
    is_told = found["failed"] or not found["status"]
    return counts if is_told else f"{counts}, ended with status {found['status']}"


if __name__ == "__main__":
    sys.exit(main())
