"""The lane for other versions: what is tried, what must pass, and what the table says. pip is replaced."""

import json
from types import SimpleNamespace

import pytest

from lab import publishing
from lab.compatibility import versions

INSTALLED = {
    "transformers": "5.24.0",
    "torch": "2.13.0+cpu",
    "tokenizers": "0.23.3",
    "accelerate": "1.15.0",
    "datasets": "5.2.0",
    "peft": "0.21.2",
    "trl": "1.16.0",
    "sentence-transformers": "6.2.0",
    "lm-eval": "0.4.13",
}
RESULTS = (
    '<testsuite><testcase classname="t" name="a"/><testcase classname="t" name="b">{}</testcase></testsuite>'
)


@pytest.fixture
def lane(monkeypatch, tmp_path):
    """Let pip find what `newest` names and tests end as `outcome` says, and note the parts that run."""
    state = SimpleNamespace(
        newest=dict(INSTALLED),
        outcome="",
        status=0,
        ran=[],
    )
    need = versions.Requirement("transformers>=5.17,<5.25")

    def resolve(requirements, *options):
        found = {}
        for asked in map(versions.Requirement, requirements):
            numbers = {INSTALLED[asked.name], *str(asked.specifier).removeprefix("==").split(",")[:1]}
            if options:
                numbers = {INSTALLED[asked.name], state.newest[asked.name]}
            number = max(filter(asked.specifier.contains, filter(None, numbers)), key=versions.Version)
            found |= {asked.name: number} if number != INSTALLED[asked.name] else {}
        return found

    def run(command, **_):
        part = "conformance" if "--ours" in command else "lane" if "tests/tools/push" in command else "whole"
        state.ran.append(part)
        _, results = versions.command_of(part, state.folder, 2)
        if state.outcome is not None:
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(RESULTS.format(state.outcome))
        return SimpleNamespace(returncode=state.status)

    def install(overlay, folder):
        state.folder, state.overlay = folder.parent, overlay

    monkeypatch.setattr(versions, "version", INSTALLED.__getitem__)
    monkeypatch.setattr(versions, "resolve", resolve)
    monkeypatch.setattr(versions, "install", install)
    monkeypatch.setattr(versions.subprocess, "run", run)
    monkeypatch.setattr(
        versions,
        "admitted",
        lambda names: [need if n == need.name else versions.Requirement(n) for n in names],
    )
    for name in ("RESULTS", "FOLDER", "DOWNLOADS", "PAGE"):
        monkeypatch.setattr(versions, name, tmp_path / name)
    (tmp_path / "PAGE").write_text("\n".join(publishing.marks_of("versions")))
    state.rows = lambda: json.loads((tmp_path / "RESULTS" / "versions.json").read_text())["rows"]
    return state


def test_what_is_installed_already_runs_conformance_alone_and_says_why(lane, capsys):
    assert versions.main([]) == 0
    assert (lane.ran, lane.overlay) == (["conformance"], {})
    assert "All of this is installed already" in capsys.readouterr().out
    assert [*lane.rows()] == ["transformers 5.24.0, torch 2.13.0+cpu"]


@pytest.mark.parametrize(("outcome", "status"), [("", 0), ("<failure/>", 1), ("<error/>", 1)])
def test_what_setup_cfg_admits_must_pass(lane, outcome, status):
    lane.newest |= {"transformers": "5.24.1", "peft": "0.22.0"}
    lane.outcome, lane.status = outcome, status
    assert versions.main([]) == status
    assert lane.ran == ["conformance", "lane"]
    assert lane.overlay == {"transformers": "5.24.1", "peft": "0.22.0"}


@pytest.mark.parametrize(("outcome", "status"), [(None, 0), ("", 3), ("", 137)])
def test_tests_that_did_not_end_have_not_passed(lane, outcome, status, capsys):
    lane.outcome, lane.status = outcome, status
    assert versions.main([]) == 1
    assert "failed: conformance\n" in capsys.readouterr().out


@pytest.mark.parametrize("outcome", ["", "<failure/>"])
def test_what_setup_cfg_excludes_is_tried_and_told_and_fails_nothing(lane, outcome, capsys):
    lane.newest["transformers"] = "5.25.0"
    lane.outcome = outcome
    assert versions.main(["--transformers", "5.25.0"]) == 0
    assert lane.ran == ["conformance", "lane"]
    out = capsys.readouterr().out
    assert "Trying what setup.cfg excludes (transformers)" in out
    assert ("failed: conformance; models and libraries" in out) == bool(outcome)


def test_the_newest_that_is_admitted_comes_first_and_what_is_excluded_after_it(lane):
    lane.newest["transformers"] = "5.25.0"
    assert versions.main([]) == 0
    assert lane.ran == ["conformance", "conformance", "lane"]
    lane.outcome = "<failure/>"
    assert versions.main([]) == 1  # what is installed failed
    rows = lane.rows()
    assert [row["versions"]["transformers"] for row in rows.values()] == ["5.24.0", "5.25.0"]


def test_what_is_excluded_and_cannot_be_had_fails_nothing(lane, monkeypatch, capsys):
    lane.newest["transformers"], resolve = "5.25.0", versions.resolve

    def without(requirements, *options):
        if requirements == ["transformers==5.25.0"]:
            raise versions.PipError("pip install failed")
        return resolve(requirements, *options)

    monkeypatch.setattr(versions, "resolve", without)
    assert versions.main([]) == 0
    assert "transformers 5.25.0, which setup.cfg excludes, cannot be tried: pip" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="pip install failed"):
        versions.main(["--transformers", "5.25.0"])


def test_the_row_of_the_newest_is_replaced_and_goes_when_all_is_installed(lane):
    for number in ("0.22.0", "0.23.0"):
        lane.newest["peft"] = number
        versions.main([])
        assert lane.rows()["newest"]["versions"]["peft"] == number
    lane.newest = dict(INSTALLED)
    versions.main([])
    assert "newest" not in lane.rows()


def test_a_version_that_is_asked_for_keeps_what_was_found_of_its_other_parts(lane):
    versions.main(["--transformers", "5.17.0", "--whole"])
    versions.main(["--transformers", "5.17.0", "--torch", "2.14.1"])
    versions.main(["--transformers", "5.17.0"])
    rows = lane.rows()
    assert lane.ran == ["conformance", "whole", "conformance", "lane", "conformance", "lane"]
    assert {*rows["transformers 5.17.0, torch 2.13.0+cpu"]["parts"]} == {"conformance", "lane", "whole"}
    assert [*rows["transformers 5.17.0, torch 2.14.1"]["parts"]] == ["conformance", "lane"]


def test_a_failure_is_cleared_before_the_tests_of_the_page_run_again(lane, monkeypatch, tmp_path):
    lane.outcome = "<failure/>"
    assert versions.main(["--transformers", "5.17.0", "--whole"]) == 1
    carry_out, shown = versions.carry_out, []
    monkeypatch.setattr(
        versions, "carry_out", lambda *a: shown.append((tmp_path / "PAGE").read_text()) or carry_out(*a)
    )
    lane.outcome = ""
    assert versions.main(["--transformers", "5.17.0", "--whole"]) == 0
    assert "5.17.0" not in shown[0].splitlines()[-2]
    assert "5.17.0" in (tmp_path / "PAGE").read_text().splitlines()[-2]


def test_results_of_other_versions_are_not_kept(lane, monkeypatch):
    versions.main(["--transformers", "5.17.0", "--whole"])
    monkeypatch.setitem(INSTALLED, "peft", "0.22.0")
    versions.main(["--transformers", "5.17.0"])
    (row,) = lane.rows().values()
    assert [*row["parts"]] == ["conformance", "lane"]


def test_the_table_tells_what_ran_with_which_versions(monkeypatch):
    monkeypatch.setattr(versions, "is_admitted", lambda name, number: number != "5.25.0")
    passed = {"passed": 1234, "skipped": 5, "failed": 0, "status": 0}
    rows = [
        ("5.17.0", {"huggingface-hub": "1.33.0"}, {"conformance": passed}),
        ("5.25.0", {}, {"conformance": passed | {"failed": 2, "status": 1}, "lane": passed | {"status": 3}}),
        ("5.24.0", {}, {"conformance": passed, "whole": passed}),
    ]
    result = {
        number: {
            "versions": INSTALLED | {"transformers": number} | others,
            "overlay": [*others],
            "parts": parts,
        }
        for number, others, parts in rows
    }
    good, torch = "1,234 passed, 5 skipped, 0 failed", "2.13.0+cpu"
    assert versions.render({"rows": result}).splitlines()[-3:] == [
        f"| 5.25.0 (excluded) | {torch} | as pinned | 1,234 passed, 5 skipped, 2 failed | "
        f"{good}, ended with status 3 | not run |",
        f"| 5.24.0 | {torch} | as pinned | {good} | part of the default suite | {good} |",
        f"| 5.17.0 | {torch} | huggingface-hub 1.33.0 | {good} | not run | not run |",
    ]


@pytest.mark.parametrize(
    ("name", "number", "is_admitted"),
    [
        ("transformers", "5.17.0", True),
        ("transformers", "5.16.9", False),
        ("transformers", "6.0.0", False),
        ("torch", "2.13.0+cpu", True),
        ("torch", "2.8.0", False),
        ("huggingface-hub", "0.1", True),
    ],
)
def test_the_range_is_that_of_setup_cfg(name, number, is_admitted):
    assert versions.is_admitted(name, number) == is_admitted


def test_what_pip_would_install_is_read_from_its_report(monkeypatch):
    calls = []

    def pip(command, *options):
        calls.append([command, *map(str, options)])
        found = [{"metadata": {"name": "huggingface_hub", "version": "1.33.0"}}]
        options[options.index("--report") + 1].write_text(json.dumps({"install": found}))
        calls.append(options[options.index("-c") + 1].read_text())

    monkeypatch.setattr(versions, "pip", pip)
    monkeypatch.setattr(versions, "version", INSTALLED.__getitem__)
    assert versions.resolve(["transformers==5.17.0"]) == {"huggingface-hub": "1.33.0"}
    assert versions.resolve(["torch==2.14.1"], "--upgrade") == {"huggingface-hub": "1.33.0"}
    assert [calls[1], calls[3]] == ["torch==2.13.0+cpu\n", ""]
    assert "--dry-run" in calls[0]
    assert calls[2][-2:] == ["--upgrade", "torch==2.14.1"]


def test_a_failure_of_pip_ends_with_a_message(monkeypatch):
    monkeypatch.setattr(versions.subprocess, "run", lambda command, **_: SimpleNamespace(returncode=1))
    with pytest.raises(SystemExit, match="pip install failed for the versions"):
        versions.resolve(["transformers==9"])


def test_an_overlay_is_installed_once_without_dependencies(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(versions, "pip", lambda *options: calls.append(options))
    for number in ("1", "1", "2"):
        versions.install({"peft": number}, tmp_path / "packages")
    assert calls == [
        ("install", "--no-deps", "--target", tmp_path / "packages", f"peft=={number}")
        for number in ("1", "2")
    ]


def test_nothing_fails_that_the_page_shows_and_setup_cfg_admits():
    rows = versions.read(versions.RESULTS / "versions.json")["rows"].values()
    parts = [part for row in rows if not versions.excluded(row["versions"]) for part in row["parts"].values()]
    assert all(map(versions.has_passed, parts))
