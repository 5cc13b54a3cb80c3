"""The commands of `tercet`. A command's docstring is its help.

Whatever is heavy is imported by the command that needs it, so that help and listings answer at once.

Shells complete commands, recipes and their keys with `argcomplete`, once they are told to:

    pip install 'tercet[completion]'
    eval "$(register-python-argcomplete tercet)"    # bash and zsh; a line for the shell's start-up file
"""

import os
import sys
from argparse import (
    Action,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
    _SubParsersAction,
)
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from inspect import getdoc

from . import __version__
from .commands import (
    convert,
    distill,
    doctor,
    embed,
    export,
    fewshot,
    finetune,
    import_,
    inspect,
    plan,
    play,
    predict,
    prepare,
    pretrain,
    push,
    report,
    study,
    tokenizer,
    verify_resume,
)
from .listing import LISTED

ABOUT = """\
Pretrain, fine-tune, distill and prompt encoder, decoder and sequence-to-sequence Transformers.

Start with `tercet demo`, which needs no data and no network. Then choose a recipe from `tercet recipes`,
set its corpus to your text, and pretrain. The result is a folder that transformers' Auto classes load.
"""

Completions = Callable[..., list[str]]
"""Lists what a word may become, from `prefix` and `parsed_args`."""


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line; overrides and options may stand in any order. Wrong usage exits with code 2."""
    parser = build_parser()
    complete(parser)
    check_words(parser, arguments)
    check_command(parser, arguments)
    options, rest = parser.parse_known_args(arguments)
    unknown = [word for word in rest if word.startswith("-") or "overrides" not in options]
    if unknown:
        parser.error(f"unknown argument {unknown[0]!r}: {remedy_of(unknown[0], options)}")
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def remedy_of(word: str, options: Namespace) -> str:
    """Describe what to write instead of an unknown argument: the override that it names, if it names one."""
    from .configs.schema import DEVICE_KEYS, DEVICES

    name = word.lstrip("-").partition("=")[0].replace("-", "_")
    if name in DEVICE_KEYS and options.command != "plan":
        return DEVICES
    keys = recipe_keys(options.command) if "overrides" in options else []
    if found := [key for key in keys if name in (key, key.rpartition(".")[2])]:
        return f"values of a recipe are written without dashes, as in {found[0]}=..."
    return f"`tercet {options.command} --help` lists the known ones"


def check_words(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Refuse an argument that is empty, or that is no text; exits with code 2."""
    for word in arguments:
        if not word.strip():
            parser.error("an argument is empty: write a name there (is a variable of the shell not set?)")
        try:
            word.encode()
        except UnicodeEncodeError:
            parser.error(f"argument {word!r:.80} is not UTF-8: write it anew, or rename the file")


def check_command(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Answer an unknown command with the one that was probably meant; exits with code 2."""
    word = arguments[0] if arguments else "-"
    known = next(action.choices for action in parser._actions if action.dest == "command") or {}
    if word.startswith("-") or word in known:
        return
    near = " or ".join(get_close_matches(word, known, n=2))
    meant = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
    parser.error(f"unknown command {word!r}; {meant}")


def build_parser() -> ArgumentParser:
    """Build the parser of all commands."""
    parser = ArgumentParser(prog="tercet", description=ABOUT, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"tercet {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = add_command(commands, demo)
    command.add_argument("--output", default="runs/demo", metavar="DIR", help="where to write (%(default)s)")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier demo there")
    command = add_command(commands, recipes)
    what = command.add_argument(
        "what",
        nargs="?",
        metavar="NAME",
        help=f"one of {', '.join(LISTED)}, or a recipe or a preset",
    )
    offer(what, listed_completions)
    command.add_argument("--all", action="store_true", help="a line for each recipe and each preset")
    command = add_command(commands, plan)
    add_recipe(command, "describes the machines, or overrides a value")
    for run in (tokenizer, pretrain, finetune, distill):
        command = add_command(commands, run)
        add_recipe(command)
        choices = command.add_mutually_exclusive_group()
        choices.add_argument(
            "--overwrite", action="store_true", help="replace an earlier run in the output folder"
        )
        if run is not tokenizer:
            choices.add_argument(
                "--resume", action="store_true", help="continue from the newest checkpoint, if there is one"
            )
        if run in (pretrain, finetune):
            shown = (
                "all values of the recipe" if run is pretrain else "what would be read, learned and chosen"
            )
            choices.add_argument("--explain", action="store_true", help=f"only show {shown}")
    command = add_command(commands, prepare)
    add_recipe(command)
    command.add_argument(
        "--executor",
        choices=("local", "slurm", "ray", "jobs"),
        help="where the tasks run (the recipe's executor)",
    )
    command.add_argument(
        "--overwrite", action="store_true", help="replace another corpus in the output folder"
    )
    add_predict(commands)
    add_embed(commands)
    add_fewshot(commands)
    command = add_command(commands, report)
    command.add_argument("finished", metavar="FOLDER", help="the output of a run")
    command = add_command(commands, verify_resume)
    add_recipe(command)
    command.add_argument(
        "--steps", type=whole_number, default=12, help="number of steps to run (%(default)s)"
    )
    add_model_commands(commands)
    return parser


def add_predict(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the command that predicts with a fine-tuned model."""
    command = add_command(commands, predict)
    command.add_argument(
        "model", metavar="MODEL", help="a folder that `tercet finetune` wrote, or a Hub name"
    )
    command.add_argument(
        "rows",
        nargs="+",
        metavar="INPUT",
        help="a text for each column, or a file of rows: .jsonl, .csv, .tsv, .parquet; - reads JSON lines "
        "from stdin",
    )
    command.add_argument(
        "--output",
        help="where to write the rows of a file with their predictions: .csv, .tsv, .jsonl, .json, .parquet "
        "(predictions.jsonl); - writes JSON lines to stdout",
    )
    command.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="precision of matrix products (%(default)s)",
    )
    command.add_argument("--overwrite", action="store_true", help="replace an earlier file")


def add_embed(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the command that makes vectors of texts."""
    command = add_command(commands, embed)
    command.add_argument("model", metavar="MODEL", help="Tercet's, stock, or of sentence-transformers")
    command.add_argument(
        "file",
        metavar="FILE",
        help="texts: .txt (one in a line), .csv, .tsv, .jsonl, .parquet; - reads JSON lines from stdin",
    )
    command.add_argument(
        "--output", default="embeddings.npy", metavar="FILE", help=".npy or .parquet (%(default)s)"
    )
    command.add_argument("--column", default="text", metavar="NAME", help="column of the texts (%(default)s)")
    command.add_argument(
        "--prompt", metavar="NAME", help="a prompt of the model's folder, such as query (its default one)"
    )
    command.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="precision of matrix products (%(default)s)",
    )
    command.add_argument("--index", action="store_true", help="also write an index of nearest neighbours")
    command.add_argument("--overwrite", action="store_true", help="replace earlier files")


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
    command.add_argument("--overwrite", action="store_true", help="replace an earlier evaluation")
    command.add_argument(
        "--trust-remote-code", action="store_true", help="run the code in the model's folder or repository"
    )


def add_model_commands(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the commands about finished models."""
    add_play(commands)
    command = add_command(commands, import_)
    command.add_argument("source", metavar="SOURCE", help="a folder, or a repository on the Hub")
    command.add_argument("output", metavar="OUTPUT", help="the folder to write")
    command.add_argument("--revision", metavar="REF", help="branch, tag or commit on the Hub")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier model there")
    command = add_command(commands, export)
    command.add_argument("model", metavar="MODEL", help="a folder with a Tercet model")
    command.add_argument("output", metavar="OUTPUT", help="the folder to write")
    kinds = command.add_mutually_exclusive_group()
    kinds.add_argument(
        "--to", metavar="TYPE", help="bert, gpt2, llama, bart, ... (default: the first that fits)"
    )
    kinds.add_argument("--onnx", action="store_true", help="write graphs of ONNX")
    command.add_argument("--int8", action="store_true", help="write graphs with 8-bit integers, too")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier model there")
    add_convert(commands)
    command = add_command(commands, doctor)
    command.add_argument("model", metavar="MODEL", help="a folder that save_pretrained wrote, or a Hub name")
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.add_argument(
        "--trust-remote-code", action="store_true", help="run the code in the model's folder or repository"
    )
    command = add_command(commands, inspect)
    command.add_argument("model", metavar="MODEL", help="a folder that save_pretrained wrote, or a Hub name")
    command.add_argument("text", metavar="TEXT", help="what the model reads, at most 64 tokens")
    command.add_argument("--target", metavar="TEXT", help="what a seq2seq model writes (its own answer)")
    command.add_argument(
        "--output", default="inspection.html", metavar="FILE", help="the page to write (%(default)s)"
    )
    command.add_argument("--overwrite", action="store_true", help="replace an earlier page")
    command.add_argument(
        "--trust-remote-code", action="store_true", help="run the code in the model's folder or repository"
    )
    add_study(commands)
    command = add_command(commands, push)
    command.add_argument("folder", metavar="FOLDER", help="a run's output, or a saved model")
    command.add_argument("repo", metavar="REPO", help="the repository: owner/name")
    command.add_argument("--private", action="store_true", help="make the repository private")
    command.add_argument("--dry-run", action="store_true", help="upload nothing, list what would be uploaded")
    command.add_argument("--revision", help="branch to commit to, created if it does not exist (main)")
    command.add_argument("--message", help="commit message")
    command.add_argument(
        "--checkpoints", action="store_true", help="push a run's intermediate models, each as a revision"
    )
    command.add_argument("--space", action="store_true", help="also make a Space that shows the model")
    command.add_argument(
        "--space-folder", metavar="DIR", help="write the files of the Space to DIR, and upload nothing"
    )


def add_study(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the command that measures a claim."""
    command = add_command(commands, study)
    name = command.add_argument("name", metavar="NAME", nargs="?", help="a study; without, all are listed")
    offer(name, study_completions)
    command.add_argument("--predict", action="store_true", help="ask for your prediction first")
    command.add_argument(
        "--break", dest="broken", default="", metavar="SWITCH", help="take away what the claim is about"
    )
    command.add_argument("--seeds", type=whole_number, metavar="N", help="runs, 2 or more (the study's)")
    command.add_argument("--output", metavar="DIR", help="folder of the page (runs/studies/NAME)")


def add_convert(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the command that reads a model as another member."""
    command = add_command(commands, convert)
    command.add_argument("model", metavar="MODEL", help="a folder, or a repository on the Hub")
    command.add_argument("--to", required=True, choices=("encoder", "decoder", "seq2seq"), help="the member")
    command.add_argument("--output", required=True, metavar="FOLDER", help="the folder to write")
    command.add_argument("--decoder", metavar="MODEL", help="the decoder of a seq2seq (default: MODEL again)")
    command.add_argument("--text", metavar="FILE", help="text on which predictions are compared")
    command.add_argument("--seed", type=whole_number, default=0, help="of new weights (%(default)s)")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier model there")


def add_play(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add the command that tries models."""
    command = add_command(commands, play)
    command.add_argument(
        "model", metavar="MODEL", nargs="+", help="folders or Hub names; several are compared"
    )
    command.add_argument("--port", type=int, help="port of the page (the first free one from 7860)")


def add_recipe(command: ArgumentParser, about_overrides: str = "overrides a value of the recipe") -> None:
    """Let a command take a recipe, and overrides of its values."""
    recipe = command.add_argument("recipe", metavar="RECIPE", help="a shipped recipe's name, or a YAML file")
    overrides = command.add_argument("overrides", metavar="key=value", nargs="*", help=about_overrides)
    overrides.required = False  # argparse counts it among what is missing where the recipe is
    offer(recipe, recipe_completions)
    offer(overrides, key_completions)


def whole_number(text: str) -> int:
    """Read a number of steps, or a seed.

    >>> whole_number("12")
    12
    """
    if text.isdecimal() and len(text) < 11 and int(text) < 2**31:
        return int(text)
    raise ArgumentTypeError(f"{text!r:.40} is no whole number from 0 to {2**31 - 1:,}")


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


def complete(parser: ArgumentParser) -> None:
    """Answer a shell that asks how a word may go on, and exit; otherwise do nothing."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)


def offer(action: Action, completions: Completions) -> None:
    """Attach to an argument what completes it, where argcomplete looks for it."""
    action.completer = completions  # pyright: ignore[reportAttributeAccessIssue]


def recipe_completions(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """List the shipped recipes of a command, and files in this folder."""
    from glob import glob

    from .configs.recipe import recipe_folders
    from .kinds import kind_of

    kind = kind_of(parsed_args.command)
    shipped = [name for name, folder in recipe_folders().items() if folder == kind.folder]
    return [name for name in [*shipped, *glob(f"{prefix}*.yaml")] if name.startswith(prefix)]


def study_completions(prefix: str, **_: object) -> list[str]:
    """List the studies."""
    from .laboratory import studies

    return [name for name in studies("study").all_studies() if name.startswith(prefix)]


def listed_completions(prefix: str, **_: object) -> list[str]:
    """List what `tercet recipes` lists: kinds, recipes and presets."""
    from .configs.recipe import preset_names, recipe_names

    names = dict.fromkeys([*LISTED, *recipe_names(), *preset_names()])
    return [name for name in names if name.startswith(prefix)]


def key_completions(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """List the keys of a command's recipe, a level at a time: `training.`, then `training.steps=`."""
    keys = recipe_keys(parsed_args.command)
    depth = prefix.count(".")
    above = {key.rpartition(".")[0] for key in keys}
    own = [key for key in keys if key.startswith(prefix) and key.count(".") == depth]
    return [f"{key}." if key in above else f"{key}=" for key in own]


def recipe_keys(command: str) -> list[str]:
    """List every dotted key of a command's recipe."""
    from .kinds import kind_of

    return kind_of(command).schema.dotted_keys()


def demo(options: Namespace) -> None:
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


def recipes(options: Namespace) -> None:
    """List the recipes and model presets that come with Tercet.

    A recipe is a YAML file with all settings of a run. Pass its name to `tercet pretrain`, or copy its file
    and edit the copy. A preset is an architecture, selected by a recipe's `model.preset`. Alone, it prints
    the names of the recipes on one screen; with the NAME of a command that runs recipes, or `presets`, a line
    about each of these, with --all about each of all; with that of a recipe or a preset, its whole file.

    Examples:
      tercet recipes
      tercet recipes decoder-demo > my-recipe.yaml
    """
    from .listing import list_configs

    list_configs(options.what, everything=options.all)
