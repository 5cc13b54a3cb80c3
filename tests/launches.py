"""Commands in two processes: as users launch them, or forked with the variables that their launchers set."""

import os
import subprocess
import sys
from collections.abc import Callable

from .fork_server import PATIENCE, ForkServer

LAUNCHERS = {
    "copies": ["torch.distributed.run", "--standalone", "--nproc-per-node=2"],
    "pieces": [
        *("accelerate.commands.launch", "--use_fsdp", "--fsdp_version=2", "--num_processes=2"),
        "--main_process_port=0",
    ],
}
"""How two processes hold the weights -> the module that starts them, and its options."""

VARIABLES = {
    "copies": {},
    "pieces": {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    },
}
"""What a launcher sets besides numbers of processes."""

COMMAND = "from tercet.__main__ import main; main()"


def replicated(replicas: int, shards: int) -> dict[str, str]:
    """Return the variables by which a launcher asks for replicas of a model in pieces."""
    sizes = {"DP_REPLICATE": replicas, "DP_SHARD": shards}
    return {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"} | {
        f"PARALLELISM_CONFIG_{kind}_SIZE": str(size) for kind, size in sizes.items()
    }


def launch(way: str, *command: str) -> Callable[[], None]:
    """Start a command as users do; return what waits for its end."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-m", *LAUNCHERS[way], "-m", "tercet", *command]
    launched = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)

    def finish() -> None:
        _, said = launched.communicate(timeout=PATIENCE)
        assert launched.returncode == 0, said

    return finish


def fork(server: ForkServer, way: str, *command: str) -> Callable[[], None]:
    """Start a command in processes that need not import the libraries; return what waits for its end."""
    run = server.start(COMMAND, *command, processes=2, variables=VARIABLES[way])

    def finish() -> None:
        status, said = server.wait(run), run.output.read_text()
        assert status == 0, said

    return finish
