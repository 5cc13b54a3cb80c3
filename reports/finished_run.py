"""What a run left, read back from its folder: the model, and the facts about it.

    OUTPUT/model/            config.json, weights, tokenizer, recipe.yaml, perhaps certificate.json, README.md
    OUTPUT/model/task.json   what a fine-tuned model can do, for `tercet predict`
    OUTPUT/evaluation.json   how far it came, its scores, on what it was trained
    OUTPUT/texts.json        names, sizes and hashes of what it read
    OUTPUT/log.jsonl         losses, speed and operations
    OUTPUT/*.png             plots

A model without a run around it is complete, too: less can be said of it then.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from ..configs.documents import read_facts
from ..configs.model_paths import MODEL
from ..configs.model_paths import TASK as TASK
from ..configs.named_files import require_inside, require_own_contents
from ..modeling.saved.foreign_folder import require_own_files
from ..modeling.saved.model_folder import CERTIFICATE, CONFIG
from ..training.run_folder import CURVES, EVALUATION, RECIPE, TEXTS, writing

LOG = "log.jsonl"

PLOTS = (CURVES, "confusions.png", "comparison.png")
"""Files that show what runs of all kinds have learned."""

WITHOUT_PATHS = ("task", "control_tokens")
"""Keys of a recipe under which a value that looks like a path is none: labels, prompts, names of tokens."""

Facts = dict[str, Any]
"""Plain data, empty where the run left none."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its model, and what is known of how it came about."""

    folder: Path
    """Where the run has written its facts; of a model without a run, the model's own."""
    model: Path
    """The folder that `from_pretrained` loads; there is none of an evaluation with prompts."""
    config: Facts
    """The model's configuration."""
    recipe: Facts
    """What the run was told."""
    texts: Facts
    """For each split, the texts: their names with sizes and hashes, or the data set with its fingerprint."""
    evaluation: Facts
    """Progress and scores at the end."""
    flops: float | None
    """Floating-point operations of all steps."""
    certificate: Facts
    """What was proved about the model."""
    plots: list[Path]
    """Loss curves first."""

    @property
    def scored_split(self) -> str:
        """The part of the texts that the scores are of."""
        return self.evaluation.get("split", "validation")

    @property
    def task(self) -> str | None:
        """The kind of task that the model was fine-tuned for, if it was."""
        return (self.recipe.get("task") or {}).get("kind")

    @property
    def teacher(self) -> str | None:
        """The model that it has last learned from, if it was distilled."""
        steps = (self.recipe.get(name) or {} for name in ("task", "general"))
        return next((step["teacher"] for step in steps if "teacher" in step), None)


def find_run(folder: Path, *, needs_model: bool = True) -> FinishedRun:
    """Read what a run left.

    Args:
        folder: The run's, or its `model` folder, or any folder that `save_pretrained` wrote.
        needs_model: Whether a run that makes no model, but scores others, is none.
    """
    model = require_inside(folder / MODEL, folder) if (folder / MODEL / CONFIG).exists() else folder
    if not (model / CONFIG).exists() and (needs_model or not (folder / EVALUATION).exists()):
        raise ValueError(
            f"{folder} has no trained model (there is no {CONFIG}): name the folder that `tercet "
            "pretrain` or `save_pretrained` wrote"
        )
    require_own_files(model)
    is_of_run = model.name == MODEL and (model.parent / EVALUATION).exists()
    output = model.parent if is_of_run else model  # what else lies beside a run has other scores
    for name in (TEXTS, EVALUATION, LOG, CERTIFICATE):
        require_inside(output / name, output)
    certificate = next(
        (path / CERTIFICATE for path in (model, output) if (path / CERTIFICATE).exists()), None
    )
    return FinishedRun(
        folder=output,
        model=model,
        config=read_facts(model / CONFIG),
        recipe=without_folders(read_facts(model / RECIPE)),
        texts=published_texts(read_facts(output / TEXTS)),
        evaluation=read_facts(output / EVALUATION),
        flops=operations(output / LOG),
        certificate=without_folders(read_facts(certificate)) if certificate else {},
        plots=find_plots(output),
    )


def report_on(folder: Path, write_report: Callable[[FinishedRun], None], *, makes_model: bool = True) -> None:
    """Make the report of a finished run in its folder, where nothing else is written meanwhile."""
    require_own_contents(folder)
    run = find_run(folder, needs_model=makes_model)
    with writing(run.folder, remedy=f"make the report with tercet report {folder}"):
        write_report(run)


def operations(log: Path) -> float | None:
    """Find the operations of all steps in a run's log, if it counted them."""
    if not log.exists():
        return None
    try:
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith("\n")]
    except ValueError as error:
        raise ValueError(f"{log} is damaged ({error}): copy it again, or remove it") from error
    return next((record["flops"] for record in reversed(records) if "flops" in record), None)


def find_plots(output: Path) -> list[Path]:
    return [require_inside(output / name, output) for name in PLOTS if (output / name).exists()]


def published_texts(texts: Facts) -> Facts:
    """Shorten paths in what says which texts were read; `dataset` stays where it is a data set of the Hub."""
    return without_folders(
        {
            split: [
                {key: value for key, value in text.items() if key != "dataset" or is_of_hub(value)}
                for text in each
            ]
            for split, each in texts.items()
        }
    )


def is_of_hub(dataset: str) -> bool:
    """Return whether a data set's name is an id of the Hub, and no folder or file here."""
    try:
        validate_repo_id(dataset)
    except HFValidationError:
        return False
    return not Path(dataset).exists()


def without_folders(value: Any) -> Any:
    """Shorten absolute paths, and relative ones that go upward, to their names; texts of a task stay.

    Where things lie on a machine is nobody else's business.

    >>> from tercet.reports.finished_run import without_folders
    >>> without_folders({"corpus": {"train": ["/home/me/books.txt", "data/more.txt"]}, "steps": 3})
    {'corpus': {'train': ['books.txt', 'data/more.txt']}, 'steps': 3}
    >>> without_folders(["../../client/letters.txt", "runs/../../client/model", "It ends ..."])
    ['letters.txt', 'model', 'It ends ...']
    >>> without_folders({"task": {"prefix": "/no_think Translate a/b: "}})
    {'task': {'prefix': '/no_think Translate a/b: '}}
    >>> without_folders({"task": {"teacher": "/home/me/reviews/model"}})
    {'task': {'teacher': 'model'}}
    """
    if isinstance(value, dict):
        return {
            key: entry if key in WITHOUT_PATHS and not is_step(entry) else without_folders(entry)
            for key, entry in value.items()
        }
    if isinstance(value, list):
        return [without_folders(entry) for entry in value]
    if isinstance(value, str) and (value.startswith(("/", "~")) or ".." in Path(value).parts):
        return Path(value).name
    return value


def is_step(task: Any) -> bool:
    """Return whether a `task` is a step of a distillation, which names a teacher and files, and no text."""
    return isinstance(task, dict) and "teacher" in task
