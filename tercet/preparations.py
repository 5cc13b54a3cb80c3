"""The commands before a run: what is shipped, what a run would cost, and what runs can share."""

import sys
from argparse import Namespace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .calls import say_that_libraries_load, written_overrides
from .command import Argument, RecipeArgument, command, flag, whole_number
from .listing import LISTED, list_configs, listed_completions

if TYPE_CHECKING:
    from .tools.plan.plan import Plan

__all__ = ["plan", "prepare"]


@command(
    Argument("--output", default="runs/demo", metavar="DIR", help="where to write (%(default)s)"),
    flag("--overwrite", "replace an earlier demo there"),
)
def demo_command(options: Namespace) -> None:
    """Train three tiny models on text found on this machine, and write a report of what they can do.

    The text is the English documentation of Python's standard library and of installed packages, so that
    nothing is downloaded. An encoder, a decoder and a sequence-to-sequence model are pretrained, fine-tuned
    to tell which package a paragraph documents, distilled into students of half their layers, and prompted to
    find how a paragraph goes on. Every run is a recipe that its own command would carry out likewise. The
    report begins with what each run has shown; its path is printed last, after commands that go on from it.

    Examples:
      tercet demo
      tercet demo --output runs/first-look
    """
    from .tools.demo.run import next_steps, run_demo

    page = run_demo(options.output, overwrite=options.overwrite)
    for step in next_steps(page):
        print(f"next: {step}", file=sys.stderr)
    print(page)


@command(
    Argument(
        "what",
        nargs="?",
        metavar="NAME",
        completions=listed_completions,
        help=f"one of {', '.join(LISTED)}, or a recipe or a preset",
    ),
    flag("--all", "a line for each recipe and each preset"),
)
def recipes_command(options: Namespace) -> None:
    """List the recipes and model presets that come with Tercet.

    A recipe is a YAML file with all settings of a run. Pass its name to `tercet pretrain`, or copy its file
    and edit the copy. A preset is an architecture, selected by a recipe's `model.preset`. Alone, it prints
    the names of the recipes on one screen; with the NAME of a command that runs recipes, or `presets`, a line
    about each of these, with --all about each of all; with that of a recipe or a preset, its whole file.

    Examples:
      tercet recipes
      tercet recipes decoder-demo > my-recipe.yaml
    """
    list_configs(options.what, everything=options.all)


def plan(recipe: Any, *overrides: str, **values: Any) -> "Plan":
    """Estimate the FLOPs, memory, communication, time and cost of a pretraining run, as `tercet plan` does.

        print(tercet.plan("decoder-english", devices=8, device="a100"))

    Args:
        recipe: A shipped recipe's name, a YAML file, a dictionary, or a `PretrainingRecipe`.
        overrides: As on the command line.
        values: Overrides as keywords; `devices`, `device`, `mfu`, ... describe the machines. Without
            `device`, this machine is meant, and measured in a second.

    Returns:
        Parameters, operations, and what each layout on the devices costs (`Plan.outlooks`). `str` of it is
        the report; a notebook shows it as tables.

    Raises:
        ValueError: An unknown recipe, key or device, or an impossible value.
    """
    from .checks import check_recipe

    with written_overrides(overrides, values) as given:
        check_recipe("plan", recipe, given)
        from .tools.plan.machines import load_plan
        from .tools.plan.plan import plan_run

        return plan_run(*load_plan(recipe, given))


@command(
    RecipeArgument("pretrain", "describes the machines, or overrides a value", loads_models=False),
    function=plan,
)
def plan_command(options: Namespace) -> None:
    """Estimate the FLOPs, memory, communication, time and cost of a run on given machines.

    Reads no text and trains nothing. Prints parameters and FLOPs. For one device, DDP, FSDP2 and HSDP it
    also prints the memory of a device by component, its communication, the speed at the share of peak FLOPs
    that similar models have reached (MFU), and device-hours. If a run does not fit, it prints what would.
    The tables are Markdown.

    Without `device`, the device of this machine is meant, and its speed is measured in a second. The numbers
    of others are their makers': a100, h100, h200, rtx3090, rtx4090, rtx5090, cpu.

    key=value describes the machines: devices, device, mfu, peak_flops, device_memory, usable_memory,
    bandwidth, devices_per_node, price_per_device_hour. Keys with a dot override values of the recipe, as in
    `tercet pretrain`.

    Examples:
      tercet plan encoder-english
      tercet plan my-recipe.yaml devices=8 device=a100 mfu=0.35 price_per_device_hour=1.80
    """
    print(plan(options.recipe, *options.overrides))


@command(
    RecipeArgument("pretrain", loads_models=False),
    flag("--overwrite", "replace an earlier run in the output folder"),
)
def tokenizer_command(options: Namespace) -> None:
    """Train the tokenizer that a recipe describes, and nothing else.

    Reads the recipe's training corpus and writes OUTPUT/tokenizer, a folder that AutoTokenizer loads. Other
    recipes can share it with `tokenizer.path`. `tercet pretrain` trains a tokenizer itself if the recipe has
    no `tokenizer.path`.

    Examples:
      tercet tokenizer encoder-demo
      tercet tokenizer my-recipe.yaml tokenizer.kind=unigram tokenizer.vocab_size=16000 output=runs/unigram
    """
    from .checks import check_recipe
    from .configs.recipe import load_recipe

    named = options.recipe, options.overrides
    check_recipe("tokenizer", *named, writes=True, overwrite=options.overwrite)
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.run import train_recipe_tokenizer

    recipe = load_recipe(PretrainingRecipe, *named)
    print(train_recipe_tokenizer(recipe, overwrite=options.overwrite))


def prepare(recipe: Any, *overrides: str, overwrite: bool = False, **values: Any) -> str:
    """Tokenize a corpus once, in shards, as `tercet prepare` does.

        texts = {"corpus__path": "books.txt", "tokenizer": "runs/decoder-demo/tokenizer"}
        manifest = tercet.prepare("prepare-text", workers=4, output="prepared/books", **texts)
        tercet.pretrain("decoder-demo", corpus__train=manifest)

    Args:
        recipe: A shipped recipe's name, a YAML file, a dictionary, or a `PreparationRecipe`.
        overrides: `"workers=4"`.
        overwrite: Replace another corpus in the output folder.
        values: Overrides as keywords: `corpus__path="books.txt"`.

    Returns:
        The path or address of the manifest, which `corpus.train` of a pretraining recipe takes.

    Raises:
        ValueError: Parts of the recipe or the text are not possible, the folder holds another corpus, or
            datatrove is not installed.
        FileNotFoundError: A named file does not exist.
    """
    from .checks import check_recipe
    from .configs.recipe import load_recipe as load
    from .kinds import kind_of

    with written_overrides(overrides, values) as given:
        check_recipe("prepare", recipe, given)
        if find_spec("datatrove") is None:
            raise ValueError("a corpus is prepared by datatrove: pip install 'tercet[prepare]'")
        say_that_libraries_load()
        kind = kind_of("prepare")
        return kind.run_function("prepare")(load(kind.recipe, recipe, given), overwrite=overwrite)


@command(
    RecipeArgument("prepare"),
    Argument(
        "--executor",
        choices=("local", "slurm", "ray", "jobs"),
        help="where the tasks run (the recipe's executor)",
    ),
    flag("--overwrite", "replace another corpus in the output folder"),
    function=prepare,
)
def prepare_command(options: Namespace) -> None:
    """Tokenize a corpus once, in shards, for any number of pretraining runs and machines.

    Reads files here or in an object store, leaves out what filters and deduplication of datatrove find, and
    writes OUTPUT/manifest.json beside memory-mapped shards: `corpus.train=OUTPUT` in a pretraining recipe
    reads them, and its tokenizer is used unless the recipe names one. The shards do not depend on the number
    of workers. After an interruption, the same command goes on with the shards that are missing.

    Examples:
      tercet prepare prepare-text corpus.path=books/ tokenizer=runs/decoder-demo/tokenizer workers=4
      tercet prepare my-recipe.yaml output=prepared/web --executor slurm
    """
    print(prepare(options.recipe, *chosen_executor(options), overwrite=options.overwrite))


def chosen_executor(options: Namespace) -> list[str]:
    """Return the overrides of a preparation, with the executor that an option names."""
    chosen = [] if options.executor is None else [f"executor.kind={options.executor}"]
    return [*options.overrides, *chosen]


@command(
    RecipeArgument("pretrain"),
    Argument("--steps", type=whole_number, default=12, help="number of steps to run (%(default)s)"),
)
def verify_resume_command(options: Namespace) -> None:
    """Verify on your recipe that a killed and resumed run equals an uninterrupted one.

    Runs the recipe's first steps without interruption, and again with two kills (SIGKILL): one as soon as a
    checkpoint is complete, one at a random moment. Compares losses, gradients, learning rates and the data,
    step by step, then weights, optimizer and random generators, bit by bit. Writes to a temporary folder and
    leaves your runs alone. Exit code 0: equal; 1: different.

    Examples:
      tercet verify-resume encoder-demo
      tercet verify-resume my-recipe.yaml --steps 30 training.num_workers=2 training.precision=fp32
    """
    from .checks import check_recipe
    from .configs.recipe import load_recipe

    check_recipe("verify-resume", options.recipe, options.overrides)
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.verification import report
    from .pretraining.verification import verify_resume as verify

    recipe = load_recipe(PretrainingRecipe, options.recipe, options.overrides)
    verification = verify(recipe, steps=options.steps, say=lambda line: print(line, file=sys.stderr))
    print(report(verification))
    if not verification.is_exact:
        raise SystemExit(1)
