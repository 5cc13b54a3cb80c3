"""The kinds of recipes: the command that runs each, where it lies, and its schema."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .configs.schema import Schema, schema_of

if TYPE_CHECKING:
    from .command import RecipeArgument


@dataclass(frozen=True)
class Kind:
    """A kind of recipe."""

    folder: str
    """The folder of its modules, and below `configs/` of its shipped recipes."""
    name: str
    """The dataclass, in the module `recipe` of the folder of the same name."""
    article: str
    """Its name in a sentence."""
    purpose: str
    """What its recipes are for."""
    corpus: tuple[str, ...] = ()
    """Keys that lead to the part which names texts."""
    rows: tuple[str, ...] = ()
    """Keys that lead to the part which names files of rows."""
    prepared: tuple[str, ...] = ()
    """What a run may find in its output folder."""
    above: str = ""
    """The package that contains the folder of its modules, if that is not `tercet` itself."""

    @property
    def recipe(self) -> Any:
        return getattr(import_module(f"{self.above}.{self.folder}.recipe", __package__), self.name)

    @property
    def schema(self) -> Schema:
        """Its schema, which needs neither the dataclass nor torch."""
        return schema_of(self.name)

    def run_function(self, command: str) -> Callable[..., Any]:
        """Return the function that carries a recipe out."""
        return getattr(import_module(f"{self.above}.{self.folder}.run", __package__), command)


KINDS = {
    "pretrain": Kind(
        "pretraining",
        "PretrainingRecipe",
        "a pretraining recipe",
        "pretrain a model on text",
        corpus=("corpus",),
        prepared=("recipe.yaml", "tokenizer", "texts.json"),
    ),
    "prepare": Kind(
        "prepare", "PreparationRecipe", "a preparation recipe", "tokenize a large corpus once", above=".tools"
    ),
    "finetune": Kind(
        "finetune",
        "FineTuningRecipe",
        "a fine-tuning recipe",
        "learn a task from labelled rows",
        corpus=("adaptation", "corpus"),
        rows=("data",),
    ),
    "distill": Kind(
        "distill",
        "DistillationRecipe",
        "a distillation recipe",
        "make a model smaller",
        corpus=("general", "corpus"),
        rows=("task", "data"),
        prepared=("recipe.yaml",),
    ),
    "fewshot": Kind(
        "fewshot", "FewShotRecipe", "a few-shot recipe", "evaluate models with prompts", rows=("data",)
    ),
}
"""Kinds of recipes by the command that runs them."""


def recipe_of(command: str) -> "RecipeArgument":
    """Return what a command declares of the recipe that it takes."""
    from .commands import COMMANDS

    recipe = COMMANDS[command].recipe
    assert recipe is not None, command
    return recipe


def kind_of(command: str) -> Kind:
    return KINDS[recipe_of(command).command]


def command_of(name: str) -> str | None:
    """Return the command that runs a shipped recipe; nothing for other names."""
    from .configs.recipe import recipe_folders

    folder = recipe_folders().get(name)
    return next((command for command, kind in KINDS.items() if kind.folder == folder), None)


def commands_for(keys: set[str]) -> list[str]:
    """Name the commands whose recipes have all of these keys, and need no others."""
    return [name for name, kind in KINDS.items() if kind.schema.needed <= keys <= {*kind.schema.names}]


def wrong_kind(source: str, right: str, command: str) -> str:
    """Describe which command a recipe is for."""
    kind = KINDS[right].article
    if command not in KINDS:
        return f"recipe {source} is {kind}; tercet {command} reads {kind_of(command).article}"
    run = f"call tercet.{right}" if source.startswith("(") else f"run `tercet {right} {source}`"
    return f"recipe {source} is {kind}: {run}"


def other_kind(own: Kind, data: dict[str, Any]) -> str | None:
    """Find the one other command whose recipes have all of the keys, if this one's do not have them."""
    if set(data) <= {*own.schema.names}:
        return None
    fitting = [name for name, kind in KINDS.items() if set(data) <= {*kind.schema.names}]
    return fitting[0] if len(fitting) == 1 else None
