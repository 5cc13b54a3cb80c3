# /// script
# requires-python = ">=3.11"
# dependencies = ["tercet>=0.1.0"]
# ///
"""Train on a machine that is rented by the minute, and push the model before the machine goes.

The lines above (PEP 723) say what the program needs; `uv run` installs it, here and on a Job of the Hub
(docs/scaling.md has the whole command lines):

    uv run lab/examples/train_on_a_job.py --dry-run me/model pretrain decoder-demo
    hf jobs uv run --flavor l4x1 ... lab/examples/train_on_a_job.py me/model pretrain hybrid-english-gpu

What is wrong with the name, the token or the recipe ends the program before the training, not after it.
"""

import sys
from argparse import REMAINDER, ArgumentParser
from pathlib import Path

from huggingface_hub import HfApi

from tercet.__main__ import main as tercet

OUTPUT = Path("run")
"""The folder of the run, on a machine that nobody will see again."""


def main(arguments: list[str] | None = None) -> int:
    """Carry out a run, push its model, and return the exit code of what failed first."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="push nothing, list what would be pushed")
    parser.add_argument("--public", action="store_true", help="let everybody read the model")
    parser.add_argument("repo", metavar="REPO", help="where the model goes on the Hub: owner/name")
    parser.add_argument("command", choices=("pretrain", "finetune", "distill"))
    parser.add_argument("arguments", nargs=REMAINDER, metavar="RECIPE key=value", help="as of the command")
    options = parser.parse_args(arguments)
    if not options.dry_run:
        HfApi().create_repo(options.repo, private=not options.public, exist_ok=True)
    code = tercet([options.command, *options.arguments, f"output={OUTPUT}"])
    flags = {"--private": not options.public, "--dry-run": options.dry_run}
    return code or tercet(["push", str(OUTPUT), options.repo, *(flag for flag in flags if flags[flag])])


if __name__ == "__main__":
    sys.exit(main())
