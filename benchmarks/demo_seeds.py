"""The demonstration with several seeds: how far its figures vary from run to run.

    python benchmarks/demo_seeds.py --seeds 3 --page docs/results.md

Every run is that of `tercet demo` with another seed for all trainings; the rows are the same in all runs. A
finished run is kept in --folder and not repeated.
"""

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from publishing import publish

from tercet.demo.run import run_demo
from tercet.training.run_folder import SCORES

TASKS = {
    "packages": "places a paragraph in its package",
    "distillation": "the same, by half the layers",
    "continuations": "finds what continues a paragraph",
}
"""Task in `scores.json` -> what a model does there."""

PRETRAINED = ("encoder-demo", "decoder-demo", "telegrams-demo")


def main(arguments: list[str]) -> int:
    """Carry out the runs, print the table, and write it into a page."""
    options = parse(arguments)
    runs = [run(options.folder / f"seed-{seed}", seed) for seed in range(options.seeds)]
    publish(render([told["scores"] for told in runs]), options.page, __file__)
    return 0


def run(folder: Path, seed: int) -> dict[str, Any]:
    """Carry out the demonstration with a seed, unless that was finished before; its scores."""
    if not (folder / SCORES).exists():
        run_demo(
            folder,
            overwrite=True,
            overrides={name: [f"training.seed={seed}"] for name in PRETRAINED}
            | {
                "packages-demo": [f"training.seeds=[{seed}]"],
                "encoder-half-demo": [f"task.training.seeds=[{seed}]", "report.speed=false"],
            },
        )
    return json.loads((folder / SCORES).read_text(encoding="utf-8"))


def render(runs: Sequence[dict[str, dict[str, Any]]]) -> str:
    """Write the mean of the runs, and every run."""
    lines = ["| in % | | mean | runs |", "|---|---|--:|---|"]
    for task, title in TASKS.items():
        for number, name in enumerate(runs[0][task]):
            scores = [100 * told[task][name]["score"] for told in runs]
            each = ", ".join(f"{score:.1f}" for score in scores) if max(scores) > min(scores) else ""
            lines.append(f"| {'' if number else title} | {name} | {mean(scores):.1f} | {each} |")
    return "\n".join(lines)


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many runs (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/demo-seeds"), help="where runs are kept")
    parser.add_argument("--page", type=Path, help="Markdown page that has a place for the table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
