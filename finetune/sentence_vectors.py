"""The files by which sentence-transformers reads a model that gives vectors."""

from typing import Any

from ..modeling import TercetConfig

MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
"""sentence-transformers' names of what makes a vector -> folders of their settings."""

POOLINGS = {
    "mean": "pooling_mode_mean_tokens",
    "first": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}
"""`classifier_pooling` -> its name there."""


def vector_files(config: TercetConfig) -> dict[str, Any]:
    """Say that a model's vectors are pooled states of length 1: names of JSON files and what they hold."""
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{name}"}
        for idx, (name, path) in enumerate(MODULES.items())
    ]
    pooling = {name: config.classifier_pooling == ours for ours, name in POOLINGS.items()}
    return {
        "modules.json": modules,
        f"{MODULES['Pooling']}/config.json": {"word_embedding_dimension": config.hidden_size} | pooling,
        f"{MODULES['Normalize']}/config.json": {},
    }
