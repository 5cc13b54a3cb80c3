"""The commands of `tercet` for pretraining and what belongs to it. A command's docstring is its help."""

import sys
from argparse import Namespace

from .endings import pretraining_ending, tell


def plan(options: Namespace) -> None:
    """Estimate the FLOPs, memory, communication, time and cost of a run on given machines.

    Reads no text and trains nothing. Prints parameters and FLOPs. For one device, DDP, ZeRO and FSDP2 it
    also prints the memory of a device by component, its communication, the speed at the share of peak FLOPs
    that similar models have reached (MFU), and device-hours. If a run does not fit, it prints what would.
    The tables are Markdown.

    Without `device`, the device of this machine is meant, and its speed is measured in a second. The numbers
    of others are their makers': a100, h100, h200, rtx3090, rtx4090, rtx5090, m1, m1-max, m2, m2-max, cpu.

    key=value describes the machines: devices, device, mfu, peak_flops, device_memory, usable_memory,
    bandwidth, devices_per_node, price_per_device_hour. Keys with a dot override values of the recipe, as in
    `tercet pretrain`.

    Examples:
      tercet plan encoder-english
      tercet plan my-recipe.yaml devices=8 device=a100 mfu=0.35 price_per_device_hour=1.80
    """
    from .planning.devices import THIS_MACHINE
    from .planning.plan import plan_run
    from .planning.recipe import load_plan
    from .planning.report import report_plan

    recipe, machines = load_plan(options.recipe, options.overrides)
    if machines.device == THIS_MACHINE:
        print("measuring this machine ...", file=sys.stderr)
    print(report_plan(plan_run(recipe, machines)))


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
    if PartialState().is_main_process:
        tell(pretraining_ending, recipe.folder)
        print(folder)


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
