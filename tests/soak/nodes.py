"""Kill processes and agents of a run twenty times, and see that nothing comes of it.

    python tests/soak/nodes.py

Two agents of torchrun on this host have a process each. Eight times the process of the first agent is killed,
eight times that of the second, and four times the second agent, in whose place another one is started. Log
and final weights must be those of a run that was left alone, bit for bit. The exit code is 1 if they are not.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.elastic import Cluster, said_by
from tests.fork_server import ForkServer

STEPS, SEED = 63, 0


def main() -> int:
    """Run, kill, compare, and print what was found."""
    steps = random.Random(SEED).sample(range(2, STEPS), 20)
    of_host = dict.fromkeys(steps[:8], "process")
    of_guest = dict.fromkeys(steps[8:16], "process") | dict.fromkeys(steps[16:], "agent")
    with tempfile.TemporaryDirectory() as folder:
        server, begin = ForkServer(Path(folder)), time.monotonic()
        cluster = Cluster(server, Path(folder), steps=STEPS, log_every=5, evaluate_every=25)
        host, guests = cluster.agent("host", of_host), [cluster.agent("guest", of_guest)]
        while (status := server.wait(guests[-1])) == -9:
            guests.append(cluster.agent("guest", of_guest))
        assert status == 0, said_by(guests)
        cluster.finish(host)
        came, resumed = (
            len(list(Path(folder).glob("*.fault"))),
            said_by([host, *guests]).count("resuming from"),
        )
        cluster.require_equal()
        server.close()
    print(
        f"{came} kills, {resumed} times resumed, {len(guests) - 1} agents replaced: the same log and weights"
    )
    print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 0 if came == len(steps) else 1


if __name__ == "__main__":
    sys.exit(main())
