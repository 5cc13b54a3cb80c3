"""The launch files of `lab/examples/`: a shell and torchrun read them, and what must fit in them fits."""

import re
import shlex
import subprocess
from pathlib import Path

import yaml
from torch.distributed.run import get_args_parser

from tercet.command_line import parse

EXAMPLES = Path(__file__).parents[2] / "lab/examples"
SLURM, KUBERNETES = EXAMPLES / "train_on_slurm.sbatch", EXAMPLES / "train_on_kubernetes.yaml"


def require_resuming_launch(words: list[str]):
    """Check the arguments of torchrun, and of the command that it starts; return the former."""
    launch = get_args_parser().parse_args(words)
    assert launch.rdzv_backend == "c10d"
    assert launch.max_restarts > 0
    assert (launch.module, launch.training_script) == (True, "tercet")
    command = parse(launch.training_script_args)
    assert command.command == "pretrain"
    assert command.resume
    return launch


def test_the_batch_script_is_shell_and_starts_runs_that_resume():
    text = SLURM.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", SLURM], check=True)
    options = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE)
    assert len(options) == text.count("#SBATCH")
    assert dict(options)["ntasks-per-node"] == "1"
    assert ("requeue", "") in options
    line = next(line for line in text.splitlines() if line.startswith("srun "))
    words = [{"$@": "decoder-english"}.get(word, word) for word in shlex.split(line)]
    launch = require_resuming_launch(words[words.index("torchrun") + 1 :])
    assert launch.nnodes == "$SLURM_NNODES"
    assert launch.rdzv_endpoint == "$first:$port"


def test_the_job_of_kubernetes_meets_at_its_first_pod():
    service, job = yaml.safe_load_all(KUBERNETES.read_text(encoding="utf-8"))
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    spec, name = job["spec"], job["metadata"]["name"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["torchrun"]
    launch = require_resuming_launch(container["args"])
    assert int(launch.nnodes) == spec["completions"] == spec["parallelism"]
    assert spec["completionMode"] == "Indexed"
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    (port,) = service["spec"]["ports"]
    assert launch.rdzv_endpoint == f"{name}-0.{pod['subdomain']}:{port['port']}"
    assert int(launch.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
