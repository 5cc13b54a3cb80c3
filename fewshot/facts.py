"""What an evaluation leaves in its folder: every item, facts of its models, and what is known of its rows.

`reports/fewshot/report.py` makes the report of these.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..data.files.atomic_writes import partial_path, replace_text
from ..data.tokenizers.special_tokens import lost_by_normalizing
from ..training.run_folder import EVALUATION
from .evaluation import Outcome
from .output import ROWS
from .rows import Items
from .subject import Subject

if TYPE_CHECKING:
    from .contamination import Contamination


@contextmanager
def partial_items(file: Path) -> Iterator[Any]:
    """Yield the function that logs an outcome's items; the log gets its name when all are in it."""
    partial, opened = partial_path(file), list[TextIO]()

    def log(model: str, outcome: Outcome) -> None:
        if not opened:
            opened.append(partial.open("w", encoding="utf-8"))
        for record in outcome.counted:
            opened[0].write(json.dumps({"model": model} | record, ensure_ascii=False) + "\n")

    try:
        yield log
        for each in opened:
            each.close()
            partial.replace(file)
    finally:
        for each in opened:
            each.close()
        partial.unlink(missing_ok=True)


def facts_of(subject: Subject, weights: tuple[str, str], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return what is known of a model, and of each of its conditions beside the records."""
    return {
        "name": subject.checkpoint.name,
        "member": subject.member,
        "class": type(subject.model).__name__,
        "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
        "max_length": subject.checkpoint.max_length,
        "lost_by_tokenizer": lost_by_normalizing(subject.tokenizer),
        "weights_sha256": weights[0],
        "weights_unchanged": weights[0] == weights[1],
        "conditions": [
            {
                **asdict(outcome.condition),
                "items": len(outcome.counted),
                "dropped": outcome.dropped,
                "cut": outcome.cut,
                "prompt_sha256": outcome.prompt_hash,
            }
            for outcome in outcomes
        ],
    }


def keep_facts(
    folder: Path,
    items: Items,
    models: Sequence[dict[str, Any]],
    contamination: "Contamination | None",
) -> None:
    """Write what was evaluated, and of each row what baselines and a corpus say of it."""
    baselines = items.task.baselines(items.test)
    lines = []
    for place, item in enumerate(items.test):
        row: dict[str, Any] = {"row": item.number}
        row["baselines"] = {name: worth[place] for name, worth in baselines.items()}
        if contamination is not None:
            row["is_touched"] = contamination.is_touched[place]
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    replace_text(folder / ROWS, "".join(lines))
    facts = {
        "task": items.task.recipe.kind,
        "items": len(items.test),
        "models": list(models),
        "contamination": None if contamination is None else contamination.as_data(),
    }
    replace_text(folder / EVALUATION, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
