"""The folder of a fine-tuning run: what lies in it, and when a run may write there.

recipe.yaml        what the run does            scores.json         all scores, of every seed
seed-0/            log.jsonl, checkpoints while it learns; then its scores, predictions and model
model/             the model of the best seed   evaluation.json     its scores, for `tercet push`
predictions.jsonl  its predictions of the last split that was measured
report.md, report.html, curves.png, confusions.png                  what there is to see
grid/, grid.json   what a grid tried            texts.json          names, sizes and hashes of the rows
adaptation/        further pretraining          before/             the runs without it
"""

from dataclasses import fields
from pathlib import Path

from ..training.run_folder import (
    RunFolder,
)
from .recipe import FineTuningRecipe, FineTuningTraining

PREDICTIONS = "predictions.jsonl"
CONFUSIONS = "confusions.png"
SEED = "seed-"
"""What the name of a seed's folder begins with."""
ADAPTER = "adapter"
"""Folder of what LoRA learned, in that of a seed."""
GRID = "grid"
GRID_SCORES = "grid.json"
ADAPTED = "adaptation"
BEFORE = "before"

MAY_CHANGE = {
    *("seeds", "tokens_per_micro_batch", "gradient_checkpointing", "cpu_offload", "num_workers"),
    *("trackers", "save_code"),
}
"""Keys of `training` that a resumed run may change: others change what the finished seeds have learned."""

WHAT_IS_LEARNED = (
    *("model", "task", "data", "lora", "adaptation", "grid"),
    *(f"training.{key.name}" for key in fields(FineTuningTraining) if key.name not in MAY_CHANGE),
)
"""Keys of a recipe that a resumed run may not change."""


def run_folder(recipe: FineTuningRecipe) -> RunFolder:
    """Return where a run writes and what it reads."""
    return RunFolder(
        recipe,
        kept=WHAT_IS_LEARNED,
        models=("model.path", "model.tagger.beside", "adaptation.corpus.cache"),
        texts=(
            *("data.train", "data.validation", "data.test"),
            *("adaptation.corpus.train", "adaptation.corpus.validation"),
        ),
    )


def seed_folder(folder: Path, seed: int) -> Path:
    return folder / f"{SEED}{seed}"
