"""A tagger on the word vectors of pretrained models, built for a task: see `modeling/recurrent/tagger.py`."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedTokenizerBase

from ..configs.messages import first_line
from ..configs.schema import require_fields
from ..modeling import TercetTaggerConfig, TercetTaggerForTokenClassification
from ..modeling.configuration_neural import NeuralConfig
from ..modeling.recurrent.tagger import WordFeatures
from ..modeling.recurrent.word_embedders import adopt, describe
from ..modeling.recurrent.word_tokenizer import word_tokenizer
from ..modeling.saved.checkpoint import Checkpoint
from .tasks.task import Task

OF_TAGGERS = ("embeddings",)
"""Fields of the configuration that a recipe cannot override, because the models say them."""


def build_tagger(
    models: Sequence[Checkpoint],
    task: Task,
    seed: int,
    overrides: Mapping[str, Any],
    from_scratch: bool = False,
) -> tuple[TercetTaggerForTokenClassification, PreTrainedTokenizerBase, list[str]]:
    """Build a tagger around pretrained models: the tagger, its tokenizer, and its tensors that are drawn."""
    if task.head != "ForTokenClassification":
        raise ValueError(
            f"model.tagger labels words, but the task is {task.recipe.kind}: leave model.tagger out, or "
            "choose the task tagging"
        )
    if from_scratch:
        raise ValueError(
            "model.from_scratch = true would randomize the word vectors that model.tagger reads: remove "
            "one of them"
        )
    require_fields(TercetTaggerConfig, list(overrides))
    for name in OF_TAGGERS:
        if name in overrides:
            raise ValueError(f"model.overrides.{name}: name the models by model.path and model.tagger.beside")
    sources: list[tuple[Any, PreTrainedTokenizerBase | None]]
    sources = [(each.ours(), each.tokenizer) for each in models]
    embeddings = [describe(cast(NeuralConfig, source.config), tokenizer) for source, tokenizer in sources]
    try:
        config = TercetTaggerConfig(embeddings=embeddings, **task.config_fields, **overrides)
    except StrictDataclassError as error:
        raise ValueError(f"model.overrides: {first_line(error)}") from None
    torch.manual_seed(seed)
    tagger = TercetTaggerForTokenClassification(config)
    features = cast(WordFeatures, tagger.model.features)
    for embedder, (source, tokenizer) in zip(features.parts, sources, strict=True):
        adopt(embedder, source, tokenizer)
    own = sorted(name for name, each in tagger.named_parameters() if ".features." not in name)
    return tagger, word_tokenizer(config.max_position_embeddings), own
