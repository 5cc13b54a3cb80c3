"""Make batches side by side with `datasets` and transformers' collators: real tokens per second, their ratio.

    python benchmarks/data_pipeline.py                                everything, five minutes
    python benchmarks/data_pipeline.py --flows encoder --rounds 9
    python benchmarks/data_pipeline.py --page docs/performance.md     and put the table there

`data_pipeline_sides.py` says what is made. A pass is a whole epoch in random order, or a few, from files on
the disk to batches in memory; ours includes the plan of the epoch, the corruption and the cutting into
micro-batches.
The sides share a process, which keeps its heap, and one thread, and take turns: A B B A. What counts is
the processor's time, so that what else the machine does counts little. Only the last column is measured by
the clock: ours with two workers of the data loader, which are processes of their own.
"""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import datasets
import torch
from command_line import rounds_parser
from data_pipeline_sides import FLOWS, Flow
from measuring import Conditions, begin_result, in_fresh_process, turns
from publishing import keep, publish
from torch.utils.data import DataLoader

from tercet.training.batches import StepDataset, endless_steps
from tercet.training.heap import retain_heap
from tercet.training.workers import DataCursor

RESULTS = Path(__file__).parent / "results" / "data_pipeline.json"
CPU = torch.device("cpu")
EPOCHS = 4
"""Of ours in a pass: one would be over too soon."""

NOISY = "**The machine was busy when this began: measure again at rest.**"

HEAD = """\
| flow | stock, tokens/s | slowest to fastest | tercet, tokens/s | slowest to fastest | ratio | two workers |
|---|--:|--:|--:|--:|--:|--:|"""


def main(arguments: list[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down."""
    options = parse(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    conditions = Conditions(
        threads=options.threads, heap="retained", own_scheduler_group=not options.common_scheduler_group
    )
    result = begin_result(conditions, options.waits_for_rest, rounds=options.rounds, flows={})
    result["machine"]["versions"]["datasets"] = datasets.__version__
    for name in options.flows:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        flow = FLOWS[name].shrunk() if options.smoke else FLOWS[name]
        result["flows"][name] = in_fresh_process(conditions, measure_flow, flow, options.rounds)
        keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def measure_flow(flow: Flow, rounds: int) -> dict[str, Any]:
    """Time both sides in turns: `tokens_per_second` of each pass, and what our loader's workers bring."""
    retain_heap()
    datasets.disable_progress_bars()
    with TemporaryDirectory() as folder:
        steps = flow.steps(Path(folder) / "corpus")
        examples = steps.source.epoch(0)
        loader = flow.stock(examples, Path(folder) / "table")
        passes: dict[str, Callable[[], int]] = {"tercet": Pass(steps)}
        if loader is not None:
            tokens = sum(
                len(examples[idx][name]) for idx in range(len(examples)) for name in streams(examples)
            )
            passes = {"stock": lambda: drain(loader, tokens)} | passes
        speeds: dict[str, list[float]] = {name: [] for name in passes}
        for make_batches in passes.values():
            make_batches()
        for name in turns(list(passes), rounds):
            speeds[name].append(speed(passes[name], time.process_time))
        return {
            "examples": len(examples),
            "tokens_per_step": flow.tokens_per_step,
            "stock_batch_size": flow.batch_size,
            "speeds": speeds,
            "speed_with_workers": speed_with_workers(steps),
        }


def streams(examples: Any) -> list[str]:
    """Name the fields of an example that hold its tokens."""
    return [name for name in ("input_ids", "labels") if name in examples[0]]


class Pass:
    """Ours: every call makes the batches of the next epochs."""

    def __init__(self, steps: StepDataset):
        self.steps = steps
        self.epoch = 0

    def __call__(self) -> int:
        """Make them all, cut into micro-batches; the tokens of it."""
        tokens, last = 0, self.epoch + EPOCHS
        for step in endless_steps(self.steps, DataCursor(self.epoch, 0)):
            if step.cursor[0] == last:
                break
            step.micro_batches(CPU)
            tokens += step.tokens
        self.epoch = last
        return tokens


def drain(loader: DataLoader, tokens: int) -> int:
    """Make the batches of a stock epoch, which has so many tokens."""
    for _ in loader:
        pass
    return tokens


def speed(make_batches: Callable[[], int], clock: Callable[[], float]) -> float:
    """Relate the tokens of a pass to its seconds."""
    start = clock()
    tokens = make_batches()
    return tokens / (clock() - start)


def speed_with_workers(steps: StepDataset, num_workers: int = 2, num_steps: int = 300) -> float:
    """Time our loader by the clock, with workers that have begun already."""
    batches = endless_steps(steps, DataCursor(0, 0), num_workers=num_workers)
    next(batches)

    def take() -> int:
        return sum(step.tokens for step in islice(batches, num_steps))

    take()
    return speed(take, time.perf_counter)


def render(result: dict[str, Any]) -> str:
    """Write a run's result as Markdown."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return "\n".join(
        [
            f"{result['date']}: {machine['processor']}, one thread; Python {machine['python']}, {versions}. "
            f"Rounds: {result['rounds']}; load average {machine['load_average']:.2f} at the start.",
            *(["", NOISY] if result["is_noisy"] else []),
            "",
            HEAD,
            *(row(name, flow) for name, flow in result["flows"].items()),
        ]
    )


def row(name: str, flow: dict[str, Any]) -> str:
    """Write one flow's line of the table."""
    speeds = flow["speeds"]
    ratio = f"{median(speeds['tercet']) / median(speeds['stock']):.0f}x" if "stock" in speeds else "-"
    cells = [name]
    for side in ("stock", "tercet"):
        found = speeds.get(side)
        cells += (
            [f"{median(found):,.0f}", f"{min(found):,.0f} to {max(found):,.0f}"] if found else ["none", "-"]
        )
    cells += [ratio, f"{flow['speed_with_workers']:,.0f}"]
    return f"| {' | '.join(cells)} |"


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = rounds_parser(__doc__, RESULTS)
    parser.set_defaults(threads=1)
    parser.add_argument("--flows", nargs="+", choices=FLOWS, default=list(FLOWS), metavar="FLOW")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
