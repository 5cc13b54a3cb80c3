"""Two agents of torchrun on this host: each runs `tercet pretrain` in a process, and either may be killed."""

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tercet.__main__ import main
from tercet.training.checkpoints.checkpoint_writer import CheckpointSeries

from .fork_server import ForkedRun, ForkServer
from .forked_programs import free_port
from .launches import COMMAND
from .logs import timeless
from .pretraining.conftest import recipe_data_of, write_texts
from .saved_weights import require_same_models

AGENT = """
import os
import sys
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # with it, agents can be replaced
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from tests.elastic import work

port, *arguments = sys.argv[1:]
config = LaunchConfig(
    min_nodes=2, max_nodes=2, nproc_per_node=1, run_id="none", max_restarts=100, start_method="fork",
    rdzv_backend="c10d", rdzv_endpoint=f"127.0.0.1:{port}", monitor_interval=0.1, local_addr="127.0.0.1",
    rdzv_configs={"is_host": arguments[0] == "host", "last_call_timeout": 1},
)
elastic_launch(config, work)(*arguments)
"""


def work(name: str, faults: str, folder: str, recipe: str) -> None:
    """Pretrain by a recipe, in a process of an agent, and have faults, each of which comes once.

    Args:
        name: Of the agent.
        faults: As in `Cluster.agent`, in words.
        folder: Remembers which faults have come.
        recipe: Its file.
    """
    after = CheckpointSeries.after_step
    due = dict(fault.split(":") for fault in faults.split())

    def have_fault(checkpoints, metrics):
        after(checkpoints, metrics)
        step = checkpoints.training.progress.step
        victim, came = due.get(str(step)), Path(folder) / f"{name}-{step}.fault"
        if victim is not None and not came.exists():
            came.touch()
            if victim == "agent":  # with the machine, both are gone
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    CheckpointSeries.after_step = have_fault
    status = main(["pretrain", recipe])
    assert status == 0, f"{name}: {status}"


class Cluster:
    """A recipe for two agents, of which the host keeps the store by which they meet."""

    def __init__(self, server: ForkServer, folder: Path, **training: Any):
        self.server, self.folder, self.port = server, folder, str(free_port())
        write_texts(folder, {"train": 40, "validation": 8}, lambda: 6)
        settings = {"steps": 12, "checkpoint_every": 3, "evaluate_every": 5, "log_every": 2, "timeout": 40}
        settings["precision"] = "fp32"  # lest the run that is left alone chooses another one
        data = recipe_data_of("causal_language_modeling", folder, folder / "run", **(settings | training))
        data["model"]["overrides"] |= {"dropout": 0.1}
        self.run, self.file, self.data = folder / "run", folder / "recipe.yaml", data
        self.file.write_text(yaml.safe_dump(data))

    def agent(self, name: str, faults: Mapping[int, str] | None = None) -> ForkedRun:
        """Start the `host` or the `guest`: after these steps, its `process` or it, the `agent`, is killed."""
        words = " ".join(f"{step}:{victim}" for step, victim in (faults or {}).items())
        return self.server.start(AGENT, self.port, name, words, str(self.folder), str(self.file))

    def finish(self, *agents: ForkedRun) -> None:
        """Wait until agents end well."""
        for one in agents:
            status = self.server.wait(one)
            assert status == 0, one.output.read_text()

    def undisturbed(self) -> Path:
        """Run the recipe in two processes that nothing happens to; return the folder."""
        file, folder = self.folder / "straight.yaml", self.folder / "straight"
        file.write_text(yaml.safe_dump(self.data | {"output": str(folder)}))
        run = self.server.start(COMMAND, "pretrain", str(file), processes=2)
        self.finish(run)
        return folder

    def require_equal(self) -> None:
        """Check that weights and log are those of an undisturbed run, bit for bit."""
        straight = self.undisturbed()
        require_same_models(self.run / "model", straight / "model")
        assert timeless(self.run) == timeless(straight)


def said_by(agents: Iterable[ForkedRun]) -> str:
    """Read what agents and their processes have printed."""
    return "".join(one.output.read_text() for one in agents)
