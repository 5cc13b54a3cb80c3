"""Small recipes of all commands, and runs that claim a folder and end at once."""

from contextlib import contextmanager

from tercet.configs.recipe import parse_recipe
from tercet.distill.output import run_folder as of_distillation
from tercet.distill.recipe import DistillationRecipe
from tercet.fewshot.output import run_folder as of_prompting
from tercet.fewshot.recipe import FewShotRecipe
from tercet.finetune.output import run_folder as of_fine_tuning
from tercet.finetune.recipe import FineTuningRecipe
from tercet.pretraining.output import run_folder as of_pretraining
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.training.run_folder import running

CORPUS = {"train": "a.txt", "validation": "b.txt"}
OBJECTIVE = {"kind": "causal_language_modeling"}
ROWS = {"train": "a.csv"}
LEARNING = {"corpus": CORPUS, "objective": OBJECTIVE, "training": {"steps": 1}}
DATA = {
    "pretrain": {"model": {"preset": "decoder-tiny"}, **LEARNING},
    "finetune": {"model": {"path": "m"}, "task": {"kind": "classification"}, "data": ROWS},
    "distill": {
        "general": {"teacher": "t", "cache": {}, **LEARNING},
        "task": {"teacher": "t", "data": ROWS},
    },
    "fewshot": {
        "task": {"kind": "multiple_choice", "context": "{{ a }}", "choices": "b", "target": "c"},
        "data": {"test": "a.jsonl"},
        "models": ["m"],
    },
}
"""Of every command, a small recipe."""

KINDS = {
    "pretrain": (PretrainingRecipe, of_pretraining),
    "finetune": (FineTuningRecipe, of_fine_tuning),
    "distill": (DistillationRecipe, of_distillation),
    "fewshot": (FewShotRecipe, of_prompting),
}


def folder_of(command, output, **changes):
    """Say what a small recipe's run has to do with a folder."""
    kind, run_folder = KINDS[command]
    return run_folder(parse_recipe(kind, DATA[command] | {"output": str(output)} | changes))


@contextmanager
def claimed(recipe, run_folder, *, resume=False, overwrite=False):
    """Claim a folder as a run does, which goes on inside."""
    with running(run_folder(recipe), resume=resume, overwrite=overwrite) as run:
        run.take()
        yield run.output


def claim(command, output, **options):
    """Claim a folder as a run does, and end at once."""
    kind, run_folder = KINDS[command]
    told = {name: options.pop(name) for name in ("resume", "overwrite") if name in options}
    recipe = parse_recipe(kind, DATA[command] | {"output": str(output)} | options)
    with claimed(recipe, run_folder, **told) as run:
        return run
