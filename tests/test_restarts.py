"""Two agents of torchrun on one host lose a process or an agent: the run ends as if nothing had happened."""

import os
import shutil

import pytest

from tercet.training import restarts
from tercet.training.ownership import begin
from tercet.training.restarts import agent, is_restarted, may_be_restarted

from .elastic import Cluster, said_by


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
    assert "is gone, so it ends" in said_by([lost])
    assert "resuming from" in said_by([host, new])
    cluster.require_equal()


@pytest.fixture
def launched(monkeypatch):
    """Let this process have been launched by an agent."""

    def launched(name):
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", f"/logs/{name}/attempt_0/1/error.json")
        monkeypatch.setattr(restarts, "STARTED", set())

    return launched


def test_an_agent_knows_its_run_again_and_no_other_agent_does(tmp_path, launched):
    assert agent() is None
    launched("none_a1")
    assert str(agent()).endswith(":/logs/none_a1")
    assert not may_be_restarted(tmp_path)
    begin(tmp_path, ["model"], launch=["else:/x", str(agent())])
    assert may_be_restarted(tmp_path)
    assert is_restarted(tmp_path, [str(agent())])
    assert not is_restarted(tmp_path, [str(agent())]), "a second run of the same process is a new one"
    launched("none_b2")
    assert may_be_restarted(tmp_path)
    assert not is_restarted(tmp_path, [str(agent())])
    shutil.rmtree(tmp_path)
    assert not is_restarted(tmp_path, [str(agent())])


def test_no_launcher_means_no_restart(tmp_path):
    begin(tmp_path, ["model"], launch=["else:/x"])
    assert "TORCHELASTIC_ERROR_FILE" not in os.environ
    assert not may_be_restarted(tmp_path)
    assert not is_restarted(tmp_path, [])
