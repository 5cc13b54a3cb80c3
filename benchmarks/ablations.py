"""What each switch brings to a small model: one recipe, and the same recipe with one thing changed.

    python benchmarks/ablations.py --data data/pretrain_en                     a decoder, 600 steps a run
    python benchmarks/ablations.py --data ... --base encoder --steps 1000 --seeds 3
    python benchmarks/ablations.py --data ... --try "EMA 0.999" training.ema_decay=0.999
    python benchmarks/ablations.py --data ... --page docs/results.md           and put the table there

Every switch is trained for the same tokens as the base, and, where its steps take longer or shorter, also for
the same time: with as many steps as fit. `ablations_switches.py` lists the bases and the switches.

A run that is finished is kept in --folder and not repeated. The data are a folder with `train` and
`validation`. Let the machine rest: a switch is judged by its time, too. With `--any-load` it is judged by
tokens alone, since times on a busy machine say nothing.
"""

import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ablations_switches import BASES, Base, Switch
from cells import cell_folder, once
from command_line import benchmark_parser
from held_out import measure_as
from measuring import Conditions, begin_result, in_fresh_process
from publishing import describe_run, keep, publish
from samples import text_sample

from tercet.configs.recipe import load_recipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.storage.own_model import load_ours

RESULTS = Path(__file__).parent / "results" / "ablations.json"

SAME_TIME = 0.03
"""By how much the time of a step may differ for the same tokens to count as the same time."""

HELD_OUT_CHARACTERS = 200_000
"""Characters of each validation file that judge; whole documents."""

Run = dict[str, float]
"""`loss`, `seconds`, `steps`, `tokens` and `parameters` of a finished run."""


def main(arguments: list[str]) -> int:
    """Train the base and every switch, print the table, and write it down."""
    options = parse(arguments)
    base = BASES[options.base]
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    result = begin_result(
        conditions, options.waits_for_rest, rounds=options.seeds, base=base.name,
        is_timed=options.waits_for_rest, rows=[],
    )  # fmt: skip
    tried = [Switch(name, tuple(overrides)) for name, *overrides in options.tries]
    chosen = [each for each in base.switches if options.only is None or each.name in options.only]
    references = run_seeds(base, Switch("base", ()), options.steps, conditions, options)
    result["rows"].append(row(Switch("base", ()), references, references, references))
    for switch in tried or chosen:
        result["rows"].append(try_switch(base, switch, references, conditions, options))
        keep(options.output, result)
    keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def try_switch(
    base: Base, switch: Switch, references: Sequence[Run], conditions: Conditions, options: Namespace
) -> dict[str, Any]:
    """Train a switch for the base's tokens, and for its time if that is something else and times count."""
    same_tokens = run_seeds(base, switch, options.steps, conditions, options)
    slower = seconds_per_step(same_tokens) / seconds_per_step(references)
    same_time = same_tokens
    if options.waits_for_rest and abs(slower - 1) > SAME_TIME:
        same_time = run_seeds(base, switch, max(round(options.steps / slower), 1), conditions, options)
    return row(switch, same_tokens, same_time, references)


def run_seeds(
    base: Base, switch: Switch, steps: int, conditions: Conditions, options: Namespace
) -> list[Run]:
    """Train a switch once for each seed, or find what was trained before."""
    return [train_once(base, switch, steps, seed, conditions, options) for seed in range(options.seeds)]


def train_once(
    base: Base, switch: Switch, steps: int, seed: int, conditions: Conditions, options: Namespace
) -> Run:
    """Train in a process of its own, unless an equal run is finished."""
    folder, held_out = options.folder.resolve(), options.data.resolve() / "validation"
    overrides = [
        f"corpus.train={options.data.resolve() / 'train'}",
        f"corpus.validation={text_sample(held_out, folder / 'validation', HELD_OUT_CHARACTERS)}",
        f"corpus.cache={folder / 'cache'}",
        "training.evaluate_every=null",
        "training.checkpoint_every=null",
        f"training.steps={steps}",
        f"training.seed={seed}",
        *base.overrides,
        *(
            each.replace("HALF", str(steps // 2)).replace("FIFTH", str(steps // 5))
            for each in switch.overrides
        ),
    ]

    def compute(cell: Path) -> Run:
        recipe = load_recipe(PretrainingRecipe, base.recipe, [*overrides, f"output={cell / 'run'}"])
        judge = load_recipe(
            PretrainingRecipe, base.recipe, [*overrides[: len(overrides) - len(switch.overrides)]]
        )
        run = in_fresh_process(conditions, train, recipe, judge, base.term)
        shutil.rmtree(cell / "run")
        return run

    return once(cell_folder(folder, base.name, (base.recipe, overrides, conditions)), compute)


def train(recipe: PretrainingRecipe, judge: PretrainingRecipe, term: str) -> Run:
    """Train as a recipe says, and measure a term as the base's recipe would."""
    folder = pretrain(recipe, overwrite=True)
    told = json.loads((folder.parent / "evaluation.json").read_text(encoding="utf-8"))
    return {
        "loss": measure_as(judge, folder)[f"{term}/loss"],
        "seconds": told["seconds"],
        "steps": told["step"],
        "tokens": told["tokens"],
        "parameters": load_ours(str(folder)).num_parameters(),
    }


def seconds_per_step(runs: Sequence[Run]) -> float:
    """Return the time of a step, on average over runs of the same length."""
    return mean(run["seconds"] / run["steps"] for run in runs)


def row(
    switch: Switch, same_tokens: Sequence[Run], same_time: Sequence[Run], references: Sequence[Run]
) -> dict[str, Any]:
    """Join what is known of a switch."""
    return {
        "name": switch.name,
        "overrides": switch.overrides,
        "parameters": same_tokens[0]["parameters"],
        "relative_time": seconds_per_step(same_tokens) / seconds_per_step(references),
        "same_tokens": [run["loss"] for run in same_tokens],
        "same_time": [run["loss"] for run in same_time],
        "steps": [same_tokens[0]["steps"], same_time[0]["steps"]],
        "tokens": same_tokens[0]["tokens"],
    }


def render(result: dict[str, Any]) -> str:
    """Write the table: losses with their difference from the base's, and times if they count."""
    first, *others = result["rows"]
    base = BASES[result["base"]]
    about = (
        f"Base: `{base.recipe}` with {', '.join(f'`{each}`' for each in base.overrides) or 'no change'}; "
        f"{first['steps'][0]:,.0f} steps, {first['tokens']:,.0f} tokens; held-out `{base.term}/loss` in nats "
        "per target, and its difference from the base's."
    )
    titles = ["switch", "change", "parameters", "loss, same tokens"]
    if is_timed := result["is_timed"]:
        titles += ["time of a step", "loss, same time"]
    head = [f"| {' | '.join(titles)} |", f"|---|---{'|--:' * (len(titles) - 2)}|"]
    lines = [line_of(each, first, is_timed=is_timed) for each in (first, *others)]
    return "\n".join([*describe_run(result), "", about, "", *head, *lines])


def line_of(row: dict[str, Any], base: dict[str, Any], *, is_timed: bool) -> str:
    """Write a row of the table."""
    change = "<br>".join(f"`{override}`" for override in row["overrides"])
    columns = [row["name"], change, f"{row['parameters']:,}", loss_of(row, base, "same_tokens")]
    if is_timed:
        columns += [f"{row['relative_time']:.2f}", loss_of(row, base, "same_time")]
    return f"| {' | '.join(columns)} |"


def loss_of(row: dict[str, Any], base: dict[str, Any], name: str) -> str:
    """Write the mean over seeds, its deviation if there are several, and its difference from the base's."""
    losses = row[name]
    text = f"{mean(losses):.3f}"
    if len(losses) > 1:
        text += f" ± {stdev(losses):.3f}"
    return text if row is base else f"{text} ({mean(losses) - mean(base[name]):+.3f})"


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = benchmark_parser(__doc__, RESULTS)
    parser.add_argument("--data", type=Path, required=True, help="folder with train and validation")
    parser.add_argument("--base", choices=BASES, default="decoder")
    parser.add_argument("--steps", type=int, default=600, help="of the base; switches have as many tokens")
    parser.add_argument("--seeds", type=int, default=1, help="runs of the base and of every switch")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the switches")
    parser.add_argument(
        "--try", dest="tries", nargs="+", action="append", default=[], metavar="NAME KEY=VALUE",
        help="a switch of one's own instead: its name and its overrides",
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=Path("runs/ablations"), help="where runs are kept")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
