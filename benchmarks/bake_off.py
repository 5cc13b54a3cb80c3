"""The bake-off of objectives: the same blocks, text and tokens, judged by the same tasks.

    python benchmarks/bake_off.py --data data                   ten million tokens for every objective
    python benchmarks/bake_off.py --data data --try             a few steps each: only to see that it runs
    python benchmarks/bake_off.py --data data --same time       the time that the fastest objective takes
    python benchmarks/bake_off.py --data data --only CLM "MLM 15 %" --judges blimp trec --seeds 3
    python benchmarks/bake_off.py --data data --page docs/results.md    and put all of it there

`bake_off_entrants.py` lists the objectives, `bake_off_judges.py` the tasks. --data holds `pretrain_en` (with
`train` and `validation`) and the tasks' folders, as the recipes of the same names expect them.

Every model and every judgement is a cell: a folder below --folder with a `result.json`. What is finished is
not repeated, and what was interrupted goes on. With `--any-load` times are left out of the table: scores
after the same tokens do not depend on the load.
"""

import json
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bake_off_entrants import ENTRANTS, Entrant, Reading
from bake_off_judges import BLIMP_PAIRS, JUDGES, Exam
from bake_off_standings import draw, render
from cells import cell_folder, once
from command_line import benchmark_parser
from measuring import Conditions, begin_result, in_fresh_process
from publishing import keep, write_between_marks
from samples import text_sample

from tercet.configs.recipe import load_recipe
from tercet.conversion.run import convert_model
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.storage.own_model import load_ours
from tercet.training.run_folder import MODEL

RESULTS = Path(__file__).parent / "results" / "bake_off.json"

BASE = "encoder-english"
"""The recipe of which all parts that matter are replaced."""

TOKENS = 10_000_000
"""That every objective trains on."""

RECIPE = (
    "tokenizer={kind: byte_bpe, vocab_size: 8192}",
    "corpus.sequence_length=128",
    "training.tokens_per_step=8192",
    "training.optimizer={kind: muon, learning_rate: 6.0e-3}",
    "training.schedule={kind: linear, warmup_ratio: 0.1}",
    "training.evaluate_every=null",
)
"""What is the same for all objectives, beside the sizes of the blocks."""

HELD_OUT_CHARACTERS = 200_000
"""Characters of each validation file that measure a run's own loss; whole documents."""

TRIED = (
    "model.overrides.hidden_size=64",
    "model.overrides.intermediate_size=128",
    "model.overrides.num_hidden_layers=2",
    "model.overrides.num_attention_heads=2",
    "tokenizer.vocab_size=1024",
    "corpus.sequence_length=64",
    "training.tokens_per_step=1024",
)
"""What a trial changes."""

TRIED_STEPS, TRIED_CHARACTERS, TRIED_PAIRS, TRIED_ROWS, TRIED_JUDGED_ROWS = 4, 60_000, 67, 300, 48
"""Steps, characters of each text, BLiMP's pairs, and rows that teach and judge a task in a trial.

Each label has to be among the rows that teach.
"""

Standing = dict[str, Any]
"""One reading of an objective: what it cost, and under `judgements` those of all seeds, by judge."""


def main(arguments: list[str]) -> int:
    """Pretrain and judge everything, print the table, and write it down."""
    options = parse(arguments)
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    result = begin_result(
        conditions,
        options.waits_for_rest and not options.is_trial,
        rounds=options.seeds,
        same=options.same,
        is_trial=options.is_trial,
        is_timed=options.waits_for_rest,
    )
    torch.set_num_threads(options.threads)
    entrants = [each for each in ENTRANTS if options.only is None or each.name in options.only]
    steps = dict.fromkeys(entrants, steps_of(options))
    if options.same == "time":
        steps = steps_of_equal_time(entrants, steps_of(options), conditions, options)
    result["standings"] = []
    for entrant in entrants:
        result["standings"] += standings(entrant, steps[entrant], conditions, options)
        keep(options.output, result)
    print(text := render(result))
    draw(result, options.output.with_suffix(".png"))
    if options.page:
        picture = options.page.with_name("bake_off.png")
        draw(result, picture)
        write_between_marks(
            options.page, f"{text}\n\n![Scores with their intervals]({picture.name})", __file__
        )
    return 0


def steps_of(options: Namespace) -> int:
    """Count the steps of a run from its tokens, unless they are given."""
    if options.is_trial and options.steps is None:
        return TRIED_STEPS
    if options.steps is not None:
        return options.steps
    recipe = load_recipe(PretrainingRecipe, BASE, changes(options))
    return max(round(options.tokens / recipe.training.tokens_per_step), 1)


def steps_of_equal_time(
    entrants: list[Entrant], steps: int, conditions: Conditions, options: Namespace
) -> dict[Entrant, int]:
    """Give every objective as many steps as fit into the time that the fastest one needs for `steps`."""
    seconds = {
        entrant: sum(
            pretrained(entrant, steps, seed, conditions, options)[1]["seconds"]
            for seed in range(options.seeds)
        )
        for entrant in entrants
    }
    shortest = min(seconds.values())
    return {entrant: max(round(steps * shortest / own), 1) for entrant, own in seconds.items()}


def standings(entrant: Entrant, steps: int, conditions: Conditions, options: Namespace) -> list[Standing]:
    """Pretrain an objective with every seed, and judge each reading of its models."""
    models = [pretrained(entrant, steps, seed, conditions, options) for seed in range(options.seeds)]
    first = models[0][1]
    return [
        {
            "name": entrant.name,
            "member": entrant.member,
            "reading": reading.name,
            "parameters": first["parameters"],
            "tokens": first["tokens"],
            "steps": first["steps"],
            "seconds": [told["seconds"] for _, told in models],
            "judgements": {
                judge: [
                    judged(entrant, reading, judge, cell, seed, options)
                    for seed, (cell, _) in enumerate(models)
                ]
                for judge in options.judges
                if reading.has_lm_head or not JUDGES[judge].needs_lm_head
            },
        }
        for reading in entrant.readings
    ]


def pretrained(
    entrant: Entrant, steps: int, seed: int, conditions: Conditions, options: Namespace
) -> tuple[Path, dict[str, Any]]:
    """Pretrain in a process of its own, or find what was pretrained; the cell and its result."""
    overrides = [
        f"model={{preset: {entrant.member}-mini}}",
        f"objective={entrant.objective}",
        *places(options),
        *changes(options),
        f"training.steps={steps}",
        f"training.checkpoint_every={max(steps // 4, 1)}",
        f"training.seed={seed}",
    ]
    depends_on = (overrides, options.threads)
    cell = cell_folder(options.folder.resolve(), f"{entrant.slug}-seed-{seed}", depends_on)

    def compute(cell: Path) -> dict[str, Any]:
        tell(f"pretraining: {entrant.name}, seed {seed}")
        recipe = load_recipe(PretrainingRecipe, BASE, [*overrides, f"output={cell / 'run'}"])
        return train(recipe) if options.is_trial else in_fresh_process(conditions, train, recipe)

    return cell, once(cell, compute)


def places(options: Namespace) -> list[str]:
    """Say where the text is; a trial reads the beginning of each file."""
    text, folder = options.data.resolve() / "pretrain_en", options.folder.resolve()
    train, size = text / "train", HELD_OUT_CHARACTERS
    if options.is_trial:
        train, size = text_sample(train, folder / "tried-text", TRIED_CHARACTERS), TRIED_CHARACTERS
    held_out = text_sample(text / "validation", folder / f"validation-{size}", size)
    return [f"corpus.train={train}", f"corpus.validation={held_out}", f"corpus.cache={folder / 'cache'}"]


def changes(options: Namespace) -> list[str]:
    """List what is the same for all objectives."""
    return [*RECIPE, *(TRIED if options.is_trial else ()), *options.overrides]


def train(recipe: PretrainingRecipe) -> dict[str, Any]:
    """Pretrain, going on with an interrupted run; what it cost, and its own scores."""
    folder = pretrain(recipe, resume=True)
    told = json.loads((folder.parent / "evaluation.json").read_text(encoding="utf-8"))
    return {
        "seconds": told["seconds"],
        "steps": told["step"],
        "tokens": told["tokens"],
        "parameters": load_ours(str(folder)).num_parameters(),
        "scores": told["scores"],
    }


def judged(
    entrant: Entrant, reading: Reading, judge: str, cell: Path, seed: int, options: Namespace
) -> dict[str, Any]:
    """Judge a reading of a pretrained model, or find how it was judged."""
    model = cell / "run" / MODEL
    has_stacks = entrant.member == "seq2seq"
    stack = as_encoder(cell, model) if has_stacks or reading.is_converted else model
    exam = Exam(
        model,
        learner=stack if reading.is_converted else model,
        stack=stack,
        is_decoder=entrant.member == "decoder" and not reading.is_converted,
        reading=reading,
        data=options.data.resolve(),
        seed=seed,
        blimp_share=options.blimp_share,
        rows=options.rows,
        judged_rows=TRIED_JUDGED_ROWS if options.is_trial else None,
    )

    def compute(folder: Path) -> dict[str, Any]:
        tell(f"judging: {entrant.name}, seed {seed}, {reading.name}: {judge}")
        return exam.judge(judge, folder)

    return once(cell_folder(cell, f"{judge}-{reading.name}", exam.depends_on(judge)), compute)


def as_encoder(cell: Path, model: Path) -> Path:
    """Convert a model to an encoder, once."""

    def compute(folder: Path) -> dict[str, Any]:
        convert_model(str(model), "encoder", str(folder / MODEL), overwrite=True)
        return {}

    once(cell / "encoder", compute)
    return cell / "encoder" / MODEL


tell = partial(print, file=sys.stderr, flush=True)


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = benchmark_parser(__doc__, RESULTS)
    names = [entrant.name for entrant in ENTRANTS]
    parser.add_argument("--data", type=Path, required=True, help="folder with pretrain_en and the tasks")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="some of the objectives")
    parser.add_argument("--judges", nargs="+", choices=JUDGES, default=list(JUDGES), metavar="JUDGE")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--tokens", type=int, default=TOKENS, help="that every objective trains on")
    length.add_argument("--steps", type=int, help="the same, in steps")
    parser.add_argument("--same", choices=["tokens", "time"], default="tokens", help="for all objectives")
    parser.add_argument("--seeds", type=int, default=1, help="models of every objective")
    parser.add_argument(
        "--blimp-share", type=float, default=1.0, help="part of BLiMP's pairs, drawn at random"
    )
    parser.add_argument("--rows", type=int, help="that tasks learn from, drawn at random; all if left out")
    parser.add_argument(
        "--override", dest="overrides", nargs="+", default=[], metavar="KEY=VALUE",
        help="of every pretraining recipe, such as model.overrides.hidden_size=192",
    )  # fmt: skip
    parser.add_argument("--try", dest="is_trial", action="store_true", help="a few steps of tiny models")
    parser.add_argument("--folder", type=Path, default=Path("runs/bake-off"), help="where cells are kept")
    options = parser.parse_args(arguments)
    if options.same == "time" and not (options.waits_for_rest or options.is_trial):
        parser.error("--same time compares times, which --any-load makes worthless: leave one of them out")
    if options.is_trial:
        options.blimp_share, options.rows = TRIED_PAIRS / BLIMP_PAIRS, TRIED_ROWS
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
