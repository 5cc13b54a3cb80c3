"""Beside a model that gives vectors: the three small files by which sentence-transformers reads it."""

import json
from pathlib import Path

from ..modeling import TercetConfig
from ..training.disk import replace_text

MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
"""sentence-transformers' names of what makes a vector -> folders of their settings."""

POOLINGS = {
    "mean": "pooling_mode_mean_tokens",
    "first": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}
"""`classifier_pooling` -> its name there."""


def describe_vectors(config: TercetConfig, folder: Path) -> None:
    """Write into a model's folder that its vectors are pooled states of length 1."""
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{name}"}
        for idx, (name, path) in enumerate(MODULES.items())
    ]
    pooling = {"word_embedding_dimension": config.hidden_size} | {
        name: config.classifier_pooling == ours for ours, name in POOLINGS.items()
    }
    replace_text(folder / "modules.json", json.dumps(modules, indent=2) + "\n")
    for path in filter(None, MODULES.values()):
        (folder / path).mkdir(exist_ok=True)
    replace_text(folder / MODULES["Pooling"] / "config.json", json.dumps(pooling, indent=2) + "\n")
