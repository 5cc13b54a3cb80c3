"""Two agents of torchrun on one host lose a process or an agent: the run ends as if nothing had happened."""

from types import SimpleNamespace
from typing import Any

import pytest

from tercet.training.run_folder import running

from ..elastic import Cluster, said_by


@pytest.mark.slow
def test_a_run_that_loses_a_process_ends_as_if_nothing_had_happened(fork_server, tmp_path):
    cluster = Cluster(fork_server, tmp_path)
    agents = cluster.agent("host"), cluster.agent("guest", {7: "process"})
    cluster.finish(*agents)
    assert "resuming from" in said_by(agents)
    assert "ConnectionError: another process of the run has ended" in said_by(agents)
    cluster.require_equal()


@pytest.mark.slow
def test_a_run_that_loses_an_agent_goes_on_when_there_is_another_one(fork_server, tmp_path):
    cluster = Cluster(fork_server, tmp_path)
    host, lost = cluster.agent("host"), cluster.agent("guest", {7: "agent"})
    assert cluster.server.wait(lost) == -9
    new = cluster.agent("guest")
    cluster.finish(host, new)
    assert "resuming from" in said_by([host, new])
    cluster.require_equal()


@pytest.mark.parametrize(("count", "goes_on"), [(None, False), ("0", False), ("2", True)])
def test_what_torchrun_starts_again_goes_on_whatever_the_options_say(count, goes_on, tmp_path, monkeypatch):
    if count is not None:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
    about = {"kept": ["training"], "require_claimable": lambda **options: None}
    output: Any = SimpleNamespace(folder=tmp_path / "run", **about)
    with running(output, resume=False, overwrite=True) as run:
        assert (run.resume, run.overwrite) == (goes_on, not goes_on)
