"""Race the stock models to a loss: the wall-clock time until a held-out loss is reached.

    python benchmarks/time_to_loss.py --data data/pretrain_en          both races, two hours on two cores
    python benchmarks/time_to_loss.py --data ... --contests decoder --minutes 10 --cpus 2 3
    python benchmarks/time_to_loss.py --data ... --page docs/performance.md      and put the result there

The stock side tries its learning rates in short runs, and then trains for the given minutes with the best of
them. The loss that it ends with is the target, and our side's time is that of its first judgement that is as
good. `time_to_loss_contests.py` says what is raced and how it is judged, `time_to_loss_contestants.py` how
each side trains.

A run that is finished is kept in --folder and not repeated. The data are a folder with `train` and
`validation`: text files, one sentence per line, a blank line between documents. Let the machine rest.
"""

import shutil
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cells import cell_folder, once
from command_line import benchmark_parser
from measuring import Conditions, begin_result, in_fresh_process
from publishing import keep, write_between_marks
from time_to_loss_contestants import race_stock, race_tercet
from time_to_loss_contests import CONTESTS, Contest
from time_to_loss_standings import draw, render, time_to

from tercet.configs.recipe import recipe_data

RESULTS = Path(__file__).parent / "results" / "time_to_loss.json"

JUDGEMENTS = 12
"""How often the stock side's long run is judged."""

PLACES = ("train", "validation", "cache", "output")
"""Keys of a recipe and its corpus that say where things lie."""

MOST_DIFFERENCE = 0.03
"""By how much the numbers of parameters may differ."""


def main(arguments: list[str]) -> int:
    """Race what the arguments ask for, print the result, and write it down."""
    options = parse(arguments)
    conditions = Conditions(
        options.threads,
        own_scheduler_group=not options.common_scheduler_group,
        processors=tuple(options.cpus or ()),
    )
    result = begin_result(conditions, options.waits_for_rest, contests={})
    for name in options.contests:
        result["contests"][name] = race(CONTESTS[name], conditions, options)
        keep(options.output, result)
    print(render(result))
    draw(result, options.output.with_suffix(".png"))
    if options.page:
        picture = options.page.with_name(options.output.stem + ".png")
        draw(result, picture)
        write_between_marks(options.page, f"{render(result)}\n\n![]({picture.name})", __file__)
    return 0


def race(contest: Contest, conditions: Conditions, options: Namespace) -> dict[str, Any]:
    """Let the stock side choose its rate and run, then ours; and compare their times.

    Raises:
        ValueError: The models differ in size.
    """
    folder = options.folder.resolve() / contest.name
    recipe = contest.our_recipe(options.data.resolve(), folder, options.override)

    def stock(rate: float, minutes: float, judgements: int) -> dict[str, Any]:
        depends_on = (conditions, contest, recipe.tokenizer, recipe.corpus, rate, minutes, judgements)
        run = partial(race_stock, contest, recipe, rate=rate, minutes=minutes, judgements=judgements)
        cell = cell_folder(folder, f"stock-{rate:g}-{minutes:g}-minutes", depends_on)
        return once(cell, partial(afresh, conditions, run))

    rates = options.rates or contest.rates
    pilots = {rate: stock(rate, options.pilot_minutes, 1) for rate in rates} if len(rates) > 1 else {}
    best = min(rates, key=lambda rate: pilots[rate]["curve"][-1]["loss"] if pilots else 0)
    theirs = stock(best, options.minutes, JUDGEMENTS)
    depends_on = (conditions, contest, recipe)
    race_ours = partial(race_tercet, contest, recipe)
    ours = once(cell_folder(folder, "tercet", depends_on), partial(afresh, conditions, race_ours))
    if abs(ours["parameters"] / theirs["parameters"] - 1) > MOST_DIFFERENCE:
        raise ValueError(f"parameters: {ours['parameters']:,} against {theirs['parameters']:,}")
    target = theirs["curve"][-1]["loss"]
    return {
        "contest": asdict(contest),
        "recipe": without_places(recipe_data(recipe)),
        "pilots": {f"{rate:g}": pilot["curve"][-1] for rate, pilot in pilots.items()},
        "pilot_minutes": options.pilot_minutes,
        "target": target,
        "sides": {
            f"stock, rate {best:g}": theirs | {"seconds": theirs["curve"][-1]["seconds"]},
            f"tercet, {contest.recipe}": ours | {"seconds": time_to(target, ours["curve"])},
        },
    }


def afresh(conditions: Conditions, run: Callable[[Path], dict[str, Any]], cell: Path) -> dict[str, Any]:
    """Call a run in a process of its own, without what an interrupted one has left."""
    print(f"racing: {cell} ...", file=sys.stderr, flush=True)
    shutil.rmtree(cell)
    return in_fresh_process(conditions, run, cell)


def without_places(recipe: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a recipe where this machine keeps things: the paths of text, cache and output."""
    corpus = {name: value for name, value in recipe["corpus"].items() if name not in PLACES}
    return {name: value for name, value in recipe.items() if name not in PLACES} | {"corpus": corpus}


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = benchmark_parser(__doc__, RESULTS)
    parser.add_argument("--data", type=Path, required=True, help="folder with train and validation")
    parser.add_argument("--contests", nargs="+", choices=CONTESTS, default=list(CONTESTS), metavar="CONTEST")
    parser.add_argument("--minutes", type=float, default=30, help="how long the stock side trains")
    parser.add_argument("--pilot-minutes", type=float, default=3, help="how long it tries each of its rates")
    parser.add_argument("--rates", nargs="+", type=float, help="its rates, instead of the contest's")
    parser.add_argument("--override", nargs="+", default=[], metavar="KEY=VALUE", help="of our recipe")
    parser.add_argument("--cpus", nargs="+", type=int, help="processors that both sides are bound to")
    parser.add_argument("--folder", type=Path, default=Path("runs/time-to-loss"), help="where runs are kept")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
