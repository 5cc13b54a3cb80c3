"""The site builds strictly, from the pages in the repository and those that the code gives."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEARCHES = {
    "early stopping": "tutorials/corpus.html#the-run",
    "out of memory": "howto/troubleshooting.html#out-of-memory",
    "add tokens": "howto/troubleshooting.html#add-tokens-or-a-pad-token",
    "mix corpora": "tutorials/corpus.html#mix-corpora",
    "resume": "howto/resuming.html",
    "learning rate": "training.html#the-learning-rate-schedule",
    "uv": "install.html#with-uv",
    "multiple gpus": "scaling.html#multiple-gpus-of-one-machine",
}
"""What people search for, and the place that answers it: among the three that are found first."""


@pytest.mark.slow
def test_site_builds_strictly_and_loads_nothing_from_a_network(tmp_path):
    pytest.importorskip("mkdocstrings", reason="the site needs pip install 'tercet[docs]'")
    site = tmp_path / "site"
    for command in (
        ["docs.site"],
        ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)],
        ["docs.site", "--check", str(site)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "tercet.training.loop" in (site / "reference/api/training.html").read_text(encoding="utf-8")
    assert "assets/narrow.css" in (site / "index.html").read_text(encoding="utf-8")
    listed = re.findall(r"\]\((\S+)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    assert len(listed) > 40
    assert [page for page in listed if not (site / page).is_file()] == []
    assert "mlm_probability" in (site / "reference/pretrain.html").read_text(encoding="utf-8")
    if shutil.which("node"):
        command = ["node", str(Path(__file__).parent / "search.js"), str(site), *SEARCHES]
        answers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        for place, answer in zip(SEARCHES.values(), answers, strict=True):
            assert place in json.loads(answer)[:3]
