"""Measure training on one GPU beside stock models, in eight minutes: laws, speed, memory, launches, gates.

    make gpu                                                          everything, from a plain checkout
    python lab/benchmarks/gpu.py --parts gpt2 bert-512 --minutes 4    these alone, beside earlier figures
    python lab/benchmarks/gpu.py --parts --page docs/performance.md   nothing: put the table there
    python lab/benchmarks/gpu.py --smoke                              tiny shapes on a CPU: does it run?

Parts are measured in the order of their importance, three at once on a GPU: some compile while another is
timed. Each side is a process of its own with a time limit: what fails or hangs does not end the rest, and
what no longer fits into the minutes is left out and named. Results are written down as they come.
`gpu_cases.py` says what is measured, `gpu_laws.py` what must be equal, `gpu_runs.py` how.
"""

import os
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import forkserver, get_context
from pathlib import Path
from threading import Lock
from typing import Any

from checkout import make_importable, require_libraries

RESULTS = Path(__file__).parent / "results" / "gpu.json"

LONGEST, SHORTEST = 240.0, 20.0
"""Seconds in which a part has to be prepared, and that must be left for one to begin."""

VARIABLES = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # which begins no CUDA: forked processes could not use it
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "3",  # of each side, and several compile at once
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}
"""Of the environment, unless it says otherwise."""


def main(arguments: list[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down; 2 tells of wrong usage."""
    begin, options = time.monotonic(), parse(arguments)
    options.rounds = options.rounds or (1 if options.smoke else 5)
    os.environ.update(VARIABLES | os.environ)
    try:
        require_libraries()
        make_importable()
        get_context("forkserver").set_forkserver_preload(["gpu_runs"])
        forkserver.ensure_running()  # it imports the libraries while this process does
        run(options, begin + 60 * options.minutes)
    except ValueError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    return 0


def run(options: Namespace, deadline: float) -> None:
    """Measure parts until there is no time left.

    Raises:
        ValueError: There is no GPU, and it is no trial; no such part; or no result to show.
    """
    import torch
    from gpu_cases import PARTS, SAME_WHEN_TINY
    from gpu_table import render
    from measuring import Conditions, begin_result, in_fresh_process, measure_peaks
    from publishing import publish, read

    has_gpu, names = torch.cuda.is_available(), PARTS.keys() if options.parts is None else options.parts
    if unknown := [name for name in names if name not in PARTS]:
        raise ValueError(f"no part is called {', '.join(unknown)}: choose from {', '.join(PARTS)}")
    if options.smoke and options.parts is None:
        names = [name for name in names if name not in SAME_WHEN_TINY]
    if names and not has_gpu and not options.smoke:
        raise ValueError("torch finds no GPU here: add --smoke to try everything with tiny shapes on a CPU")
    output = options.output or (Path("runs/gpu-smoke.json") if options.smoke else RESULTS)
    result = read(output) if options.parts is not None and output.exists() else {"parts": {}}
    if names:
        conditions = Conditions(
            torch.get_num_threads(),
            own_scheduler_group=False,
            start_method="forkserver",
            compiler="inductor" if has_gpu else "aot_eager",
        )
        result |= begin_result(
            conditions, False, rounds=options.rounds, is_timed=False, is_smoke=options.smoke
        )
        try:
            result["peaks"] = in_fresh_process(conditions, measure_peaks)
        except RuntimeError as error:  # something that was imported has begun CUDA
            print(f"each process imports the libraries itself: {error}", file=sys.stderr)
            conditions = replace(conditions, start_method="spawn")
            result["peaks"] = in_fresh_process(conditions, measure_peaks)
        measure_all([*names], options, conditions, result, deadline, output)
    elif "peaks" not in result:
        raise ValueError(f"{output} does not exist: measure something first")
    publish(render(result), options.page, "gpu")


def measure_all(
    names: list[str],
    options: Namespace,
    conditions: Any,
    result: dict[str, Any],
    deadline: float,
    output: Path,
) -> None:
    """Measure parts, and keep what each gives at once."""
    from gpu_cases import PARTS
    from gpu_runs import measure_part
    from publishing import keep

    turn, writing = Lock(), Lock()

    def measure_one(name: str) -> None:
        begin = time.monotonic()
        part = PARTS[name].shrunk() if options.smoke else PARTS[name]
        try:
            if deadline - begin < SHORTEST:
                raise TimeoutError(f"the {options.minutes:g} minutes were over (--parts {name})")
            found = measure_part(part, conditions, options.rounds, begin + LONGEST, deadline, turn)
        except Exception as error:  # whatever it is, the other parts go on
            found = {"failure": f"{type(error).__name__}: {str(error)[:300]}"}
        with writing:
            now = time.monotonic()
            parts = result["parts"] | {name: found | {"wall_seconds": now - begin}}
            result["parts"] = {each: parts[each] for each in PARTS if each in parts}
            result["wall_seconds"] = now - (deadline - 60 * options.minutes)
            keep(output, result)
            seconds = f"{now - begin:.0f} s, {result['wall_seconds']:.0f} s since the start"
            print(f"{name}: {seconds}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(1 if options.smoke else 3) as threads:
        list(threads.map(measure_one, names))


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parts", nargs="*", metavar="NAME", help="only these, or none; the output keeps others"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="of wall time, about")
    parser.add_argument("--rounds", type=int, help="turns of every side that count: 5, of a smoke 1")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes: only to see that it runs")
    parser.add_argument("--output", type=Path, help="where all numbers go, as JSON")
    parser.add_argument("--page", type=Path, help="Markdown page that has a place for the table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
