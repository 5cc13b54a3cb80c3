"""The commands of `tercet`. A command's docstring is its help.

Whatever is heavy is imported by the command that needs it, so that help and listings answer at once.
"""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Callable, Sequence
from inspect import getdoc

from . import __version__
from .model_commands import doctor, export, import_, push
from .task_commands import distill, fewshot, finetune, predict

ABOUT = """\
Pretrain, fine-tune, distill and prompt encoder, decoder and sequence-to-sequence Transformers.

Start with `tercet demo`, which needs no data and no network. Then choose a recipe from `tercet recipes`,
set its corpus to your text, and pretrain. The result is a folder that transformers' Auto classes load.
"""


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line; overrides and options may stand in any order. Wrong usage exits with code 2."""
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    unknown = [word for word in rest if word.startswith("-") or "overrides" not in options]
    if unknown:
        parser.error(
            f"unknown argument {unknown[0]!r}: `tercet {options.command} --help` lists the known ones"
        )
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def build_parser() -> ArgumentParser:
    """Build the parser of all commands."""
    parser = ArgumentParser(prog="tercet", description=ABOUT, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"tercet {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = add_command(commands, demo)
    command.add_argument("--output", default="runs/demo", metavar="DIR", help="where to write (%(default)s)")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier demo there")
    add_command(commands, recipes)
    command = add_command(commands, plan)
    command.add_argument("recipe", metavar="RECIPE", help="a shipped recipe's name, or a YAML file")
    command.add_argument(
        "overrides", metavar="key=value", nargs="*", help="describes the machines, or overrides a value"
    )
    for run in (tokenizer, pretrain, finetune, distill):
        command = add_command(commands, run)
        add_recipe(command)
        command.add_argument(
            "--overwrite", action="store_true", help="replace an earlier run in the output folder"
        )
        if run is not tokenizer:
            command.add_argument(
                "--resume", action="store_true", help="continue from the newest checkpoint, if there is one"
            )
    add_predict(commands)
    add_fewshot(commands)
    command = add_command(commands, verify_resume)
    add_recipe(command)
    command.add_argument("--steps", type=int, default=12, help="number of steps to run (%(default)s)")
    add_model_commands(commands)
    return parser


def add_predict(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the command that predicts with a fine-tuned model."""
    command = add_command(commands, predict)
    command.add_argument(
        "model", metavar="MODEL", help="a folder that `tercet finetune` wrote, or a Hub name"
    )
    command.add_argument(
        "file", metavar="FILE", help="rows: .jsonl, .csv, .tsv, .parquet; - reads JSON lines from stdin"
    )
    command.add_argument(
        "--output", default="predictions.jsonl", help="where to write (%(default)s); - writes to stdout"
    )
    command.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="precision of matrix products (%(default)s)",
    )
    command.add_argument("--resume", action="store_true", help="continue an unfinished file")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier file")


def add_fewshot(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the command that evaluates models with prompts."""
    command = add_command(commands, fewshot)
    add_recipe(command)
    command.add_argument(
        "--model",
        action="append",
        metavar="MODEL",
        help="model to evaluate: a folder or a Hub name; repeatable",
    )
    command.add_argument("--explain", action="store_true", help="only show which tokens are scored")
    command.add_argument("--resume", action="store_true", help="continue an earlier evaluation")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier evaluation")
    command.add_argument(
        "--trust-remote-code", action="store_true", help="run the code in the model's folder or repository"
    )


def add_model_commands(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the commands about finished models."""
    command = add_command(commands, import_)
    command.add_argument("source", metavar="SOURCE", help="a folder, or a repository on the Hub")
    command.add_argument("output", metavar="OUTPUT", help="the folder to write")
    command.add_argument("--revision", metavar="REF", help="branch, tag or commit on the Hub")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier model there")
    command = add_command(commands, export)
    command.add_argument("model", metavar="MODEL", help="a folder with a Tercet model")
    command.add_argument("output", metavar="OUTPUT", help="the folder to write")
    command.add_argument(
        "--to", metavar="TYPE", help="bert, gpt2, llama, bart, ... (default: the first that fits)"
    )
    command.add_argument("--overwrite", action="store_true", help="replace an earlier model there")
    command = add_command(commands, doctor)
    command.add_argument("model", metavar="MODEL", help="a folder that save_pretrained wrote, or a Hub name")
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.add_argument(
        "--trust-remote-code", action="store_true", help="run the code in the model's folder or repository"
    )
    command = add_command(commands, push)
    command.add_argument("folder", metavar="FOLDER", help="a run's output, or a saved model")
    command.add_argument("repo", metavar="REPO", help="the repository: owner/name")
    command.add_argument("--private", action="store_true", help="make the repository private")
    command.add_argument("--dry-run", action="store_true", help="upload nothing, list what would be uploaded")
    command.add_argument("--revision", help="branch to commit to, created if it does not exist (main)")
    command.add_argument("--message", help="commit message")


def add_recipe(command: ArgumentParser) -> None:
    """Let a command take a recipe, and overrides of its values."""
    command.add_argument("recipe", metavar="RECIPE", help="a shipped recipe's name, or a YAML file")
    command.add_argument("overrides", metavar="key=value", nargs="*", help="overrides a value of the recipe")


def add_command(
    commands: "_SubParsersAction[ArgumentParser]", run: Callable[[Namespace], None]
) -> ArgumentParser:
    """Add the command that `run` implements, with its name and with its docstring as the help."""
    description = getdoc(run) or ""
    command = commands.add_parser(
        run.__name__.rstrip("_").replace("_", "-"),
        help=description.partition("\n")[0],
        description=description,
        formatter_class=RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    command.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    return command


def demo(options: Namespace) -> None:
    """Pretrain and fine-tune three tiny models on text found on this machine, and write a report.

    The text is the English documentation of Python's standard library and of installed packages, so that
    nothing is downloaded. An encoder, a decoder and a sequence-to-sequence model are pretrained on it for
    about ten minutes on two cores. Then the encoder and the decoder are fine-tuned to classify which package
    a paragraph documents, and the sequence-to-sequence model to write the first lines of docstrings. The
    report compares each model with an untrained one and with baselines; its path is printed last.

    Examples:
      tercet demo
      tercet demo --output runs/first-look
    """
    from .demo.run import run_demo

    print(run_demo(options.output, overwrite=options.overwrite))


def recipes(options: Namespace) -> None:
    """List the recipes and model presets that come with Tercet.

    A recipe is a YAML file with all settings of a run. Pass its name to `tercet pretrain`, or copy its file
    and edit the copy. A preset is an architecture, selected by a recipe's `model.preset`.

    Examples:
      tercet recipes
      tercet pretrain encoder-demo    (runs one of them)
    """
    from .listing import list_configs

    list_configs()


def plan(options: Namespace) -> None:
    """Estimate the FLOPs, memory, communication, time and cost of a run on given machines.

    Reads no text and trains nothing. Prints parameters and FLOPs. For one device, DDP, ZeRO and FSDP2 it
    also prints the memory of a device by component, its communication, the speed at an assumed share of peak
    FLOPs (MFU), and device-hours. If a run does not fit, it prints what would. The tables are Markdown.

    key=value describes the machines: devices, device (a100, h100, h200, cpu), mfu, peak_flops,
    device_memory, usable_memory, bandwidth, devices_per_node, price_per_device_hour. Keys with a dot override
    values of the recipe, as in `tercet pretrain`.

    Examples:
      tercet plan decoder-english devices=64 model.preset=decoder-1.3b training.tokens_per_step=1048576
      tercet plan my-recipe.yaml devices=8 device=a100 mfu=0.35 price_per_device_hour=1.80
    """
    from .planning.plan import plan_run
    from .planning.recipe import load_plan
    from .planning.report import report_plan

    print(report_plan(plan_run(*load_plan(options.recipe, options.overrides))))


def tokenizer(options: Namespace) -> None:
    """Train the tokenizer that a recipe describes, and nothing else.

    Reads the recipe's training corpus and writes OUTPUT/tokenizer, a folder that AutoTokenizer loads. Other
    recipes can share it with `tokenizer.path`. `tercet pretrain` trains a tokenizer itself if the recipe has
    no `tokenizer.path`.

    Examples:
      tercet tokenizer encoder-demo
      tercet tokenizer my-recipe.yaml tokenizer.kind=unigram tokenizer.vocab_size=16000 output=runs/unigram
    """
    from .configs.recipe import load_recipe
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.run import train_recipe_tokenizer

    recipe = load_recipe(PretrainingRecipe, options.recipe, options.overrides)
    print(train_recipe_tokenizer(recipe, overwrite=options.overwrite))


def pretrain(options: Namespace) -> None:
    """Pretrain a model on raw text.

    Trains or loads the tokenizer, tokenizes the corpus once, trains, evaluates, and writes OUTPUT/model: a
    folder with the model, the tokenizer and the recipe, which the Auto classes load. RECIPE is the name of a
    shipped recipe (`tercet recipes` lists them) or a YAML file, and key=value overrides any of its values.
    On several devices: `accelerate launch -m tercet pretrain RECIPE`.

    Examples:
      tercet pretrain encoder-demo training.steps=200 output=runs/short
      tercet pretrain my-recipe.yaml corpus.train=books.txt corpus.validation=held-out.txt --resume
    """
    from accelerate import PartialState

    from .configs.recipe import load_recipe
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.run import pretrain as run

    recipe = load_recipe(PretrainingRecipe, options.recipe, options.overrides)
    folder = run(recipe, resume=options.resume, overwrite=options.overwrite)
    PartialState().print(folder)  # once, however many processes there are


def verify_resume(options: Namespace) -> None:
    """Verify on your recipe that a killed and resumed run equals an uninterrupted one.

    Runs the recipe's first steps without interruption, and again with two kills (SIGKILL): one as soon as a
    checkpoint is complete, one at a random moment. Compares losses, gradients, learning rates and the data,
    step by step, then weights, optimizer and random generators, bit by bit. Writes to a temporary folder and
    leaves your runs alone. Exit code 0: equal; 1: different.

    Examples:
      tercet verify-resume encoder-demo
      tercet verify-resume my-recipe.yaml --steps 30 training.num_workers=2 training.precision=fp32
    """
    from .configs.recipe import load_recipe
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.verification import verify_resume as verify
    from .pretraining.verification_report import report

    recipe = load_recipe(PretrainingRecipe, options.recipe, options.overrides)
    verification = verify(recipe, steps=options.steps, say=lambda line: print(line, file=sys.stderr))
    print(report(verification))
    if not verification.is_exact:
        raise SystemExit(1)
