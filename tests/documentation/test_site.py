"""The site builds strictly, from the pages in the repository and those that the code gives."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_site_builds_strictly_and_loads_nothing_from_a_network(tmp_path):
    pytest.importorskip("mkdocstrings", reason="the site needs pip install 'tercet[docs]'")
    site = tmp_path / "site"
    for command in (
        ["documentation"],
        ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)],
        ["documentation", "--check", str(site)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "tercet.training.loop" in (site / "reference/api/training.html").read_text(encoding="utf-8")
    assert "mlm_probability" in (site / "reference/pretrain.html").read_text(encoding="utf-8")
