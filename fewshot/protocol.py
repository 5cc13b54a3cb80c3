"""How an evaluation has scored, in few words: what others need to get the same numbers, or to see why not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ..configs.recipe import recipe_data
from ..reporting.blocks import Block, Example, Examples, Heading, Line, Prose, Run
from .boundary import PromptEncoder
from .recipe import FewShotRecipe
from .subject import Subject
from .task import Task

READINGS = {"decoder": "causal_lm", "encoder": "masked_lm", "seq2seq": "seq2seq_lm"}
"""What gives a member's probabilities of tokens, by the names of `prompting.head`."""


def protocol_of(recipe: FewShotRecipe, task: Task) -> dict[str, Any]:
    """Return what all models of an evaluation have in common, for its results.

    Args:
        recipe: Of the evaluation.
        task: The task.
    """
    prompting, data = recipe.prompting, recipe.data
    return {
        "task": chosen_fields(recipe),
        "scored": task.scored,
        "normalization": getattr(task, "normalization", None),
        "opening": prompting.opening,
        "ends_answer": prompting.ends_answer,
        "num_fewshot": list(prompting.num_fewshot),
        "draw": prompting.draw,
        "seeds": list(prompting.seeds),
        "orders": prompting.orders,
        "balanced": prompting.balanced,
        "test": data.test,
        "demonstrations": data.demonstrations,
        "where": data.where,
        "limit": data.limit,
        "precision": prompting.precision,
    }


def chosen_fields(recipe: FewShotRecipe) -> dict[str, Any]:
    """Return the fields of the task that have no default, or another value than that."""
    values = recipe_data(recipe.task)
    chosen = (each.name for each in fields(recipe.task) if getattr(recipe.task, each.name) != each.default)
    return {"kind": recipe.task.kind} | {name: values[name] for name in chosen}


def reading_of(recipe: FewShotRecipe, subject: Subject, encoder: PromptEncoder) -> dict[str, Any]:
    """Return how one model is read.

    Args:
        recipe: Of the evaluation.
        subject: The model.
        encoder: What turns prompts into its requests.
    """
    name = subject.tokenizer.convert_ids_to_tokens
    is_masked = subject.member == "encoder"
    return {
        "reading": READINGS[subject.member],
        "pseudo_log_likelihood": recipe.prompting.pseudo_log_likelihood if is_masked else None,
        "opening": name(list(encoder.opening)),
        "target_opening": name(list(encoder.lead)),
        "max_length": subject.max_length,
    }


def protocol(results: Mapping[str, Any], names: Sequence[str]) -> Iterator[Block]:
    """Show how was scored: a line for each part, and one for each model.

    Args:
        results: Of the evaluation.
        names: What the report calls each model.
    """
    told = results["protocol"]
    draws = f"{told['draw']} draw, seeds {listed(told['seeds'])}, orders: {told['orders']}"
    balanced = "balanced over answers" if told["balanced"] else "not balanced"
    shots = f"K = {listed(told['num_fewshot'])}"
    if any(told["num_fewshot"]):
        shots += f"; {draws}, {balanced}; from {told['demonstrations'] or told['test']}"
    lines = {
        "task": "; ".join(f"{name}: {value!r}" for name, value in told["task"].items()),
        "scored": told["scored"],
        "normalization": told["normalization"],
        "special tokens": f"opening: {told['opening']}; end of the answer: "
        f"{'scored' if told['ends_answer'] else 'not scored'}",
        "demonstrations": shots,
        "rows": f"{results['items']:,} of {told['test']}"
        + (f", where {told['where']}" if told["where"] else "")
        + (f", at most {told['limit']:,}" if told["limit"] else ""),
        "precision": told["precision"],
    }
    yield Heading("Protocol")
    yield Prose("What has to be the same for scores to be comparable; results.json has it as well.")
    common = [Line(name, [Run(text)]) for name, text in lines.items() if text]
    pairs = zip(names, results["models"], strict=True)
    own = [Line(name, [Run(said_of(model))]) for name, model in pairs]
    yield Examples([Example([*common, *own])])


def said_of(model: Mapping[str, Any]) -> str:
    """Describe how a model was read, and how much of its prompts did not fit."""
    told, shots = model["protocol"], model["shots"].values()
    masked = told["pseudo_log_likelihood"]
    parts = [
        f"reading: {told['reading']}" + (f", masked together: {masked}" if masked else ""),
        f"texts begin with {' '.join(told['opening']) or 'nothing'}",
        *([f"targets begin with {' '.join(told['target_opening'])}"] if told["target_opening"] else []),
        f"at most {told['max_length']:,} tokens",
        f"{sum(own['dropped'] for own in shots):,} demonstrations dropped",
        f"{sum(own['cut'] for own in shots):,} contexts cut",
    ]
    return "; ".join(parts)


def listed(values: list[int]) -> str:
    """Write numbers with commas between."""
    return ", ".join(map(str, values))
