"""The model that a pretraining run begins with: a preset with random weights, or one that goes on learning.

The objective chooses the head, the tokenizer the vocabulary's size and the special ids; the preset says the
rest. A model that goes on learning is in `continuation.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedTokenizerBase

from ..configs.messages import first_line
from ..configs.recipe import load_preset, wrong_member
from ..configs.schema import require_fields
from ..modeling import NeuralConfig
from ..modeling.configuration_rotary import join_overrides
from ..modeling.saved.checkpoint import Checkpoint, Opener
from ..modeling.saved.length import most_positions
from ..modeling.saved.model_folder import num_ids
from .objectives.recipes import BaseObjectiveRecipe, Trainable
from .recipe import CorpusRecipe, ModelRecipe

SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
"""Fields of a configuration that repeat what the tokenizer says."""


@dataclass(frozen=True)
class FirstModel:
    """The model that a run begins with, before its tokenizer is known: a preset's, with random weights."""

    name: str
    """Name of the preset, or of the model that goes on learning."""
    objective: BaseObjectiveRecipe
    """What it learns, which chooses its head."""
    config: NeuralConfig
    """Configuration of the model in the folder `model`; `fit` gives it a vocabulary."""
    overrides: Mapping[str, Any]
    """Fields of the configuration that the recipe gives."""

    is_trained: ClassVar[bool] = False
    """Whether its weights have learned already."""

    @property
    def former_tokenizer(self) -> PreTrainedTokenizerBase | None:
        return None

    def fit(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Set room for a tokenizer's ids, unless the recipe gives one, and its special ids.

        A decoder that begins with the preset's eos token (BART) will begin with the tokenizer's, and so on.
        """
        config, needed, is_anew = self.config, num_ids(tokenizer), self.is_numbered_anew(tokenizer)
        if "vocab_size" not in self.overrides:
            config.vocab_size = needed if is_anew else max(self.room, needed)
        if config.vocab_size < needed:
            raise ValueError(
                f"model.overrides.vocab_size is {config.vocab_size:,}, but the tokenizer's ids need "
                f"{needed:,}: leave it out, or train a smaller tokenizer (tokenizer.vocab_size)"
            )
        if config.is_encoder_decoder:
            start = config.decoder_start_token_id
            role = next((name for name in SPECIAL_IDS if getattr(config, name) == start), "pad_token_id")
            config.decoder_start_token_id = getattr(tokenizer, role)
        for name in SPECIAL_IDS:
            own, given = getattr(tokenizer, name), getattr(config, name)
            if is_anew or not (isinstance(given, list) and own in given):  # several tokens may end a text
                setattr(config, name, own)

    @property
    def room(self) -> int:
        """Rows of the vocabulary that the model has already."""
        return 0

    def is_numbered_anew(self, tokenizer: PreTrainedTokenizerBase) -> bool:
        """Return whether the model has tokens already, which a tokenizer numbers otherwise."""
        return False

    def positions_with(self, tokenizer: PreTrainedTokenizerBase, *, is_own: bool) -> int | None:
        """Count the positions to which a tokenizer, perhaps the model's own, cuts texts; `None`: no bound."""
        return most_positions(self.config)

    def build(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> Trainable:
        """Build what is trained, with weights that are a function of the seed."""
        self.fit(tokenizer)
        torch.manual_seed(seed)
        return self.objective.taught(self.objective.build_model(self.config), tokenizer)

    def tell_of_rate(self, rate: float | None) -> None:
        """Show on the screen if the model is to learn too fast; random weights never do."""


def first_model(
    model: ModelRecipe,
    objective: BaseObjectiveRecipe,
    corpus: CorpusRecipe,
    open_model: Opener = Checkpoint.open,
) -> FirstModel:
    """Find the model that a run begins with."""
    if model.path is not None:
        from .continuation import ContinuedModel

        return ContinuedModel.find(model, objective, corpus, open_model)
    if model.preset is None:
        raise ValueError(
            "model.preset and model.path are both empty: name a preset (`tercet recipes`) to train from "
            "random weights, or a model to go on with"
        )
    values, overrides = load_preset(model.preset), model.applied_overrides
    config = overridden(values, f"model.preset {model.preset}", overrides, objective, corpus.sequence_length)
    return FirstModel(model.preset, objective, config, overrides)


def overridden(
    values: dict[str, Any],
    origin: str,
    overrides: Mapping[str, Any],
    objective: BaseObjectiveRecipe,
    sequence_length: int,
) -> NeuralConfig:
    """Join the fields of a configuration with a recipe's overrides."""
    classes = [cast(type[NeuralConfig], model.config_class) for model in objective.model_classes]
    model_type = values.pop("model_type")
    values.pop("auto_map", None)  # code beside the weights that a model begins with stays there
    config_class = next((known for known in classes if known.model_type == model_type), None)
    if config_class is None:
        members = [known.model_type for known in classes]
        raise ValueError(wrong_member(origin, model_type, objective.kind, members))
    require_fields(config_class, list(overrides))
    try:
        config = config_class(**values | join_overrides(values, overrides))
    except StrictDataclassError as error:
        raise ValueError(f"model.overrides: {first_line(error)}") from None
    require_positions(config, sequence_length)
    return config


def require_positions(
    config: NeuralConfig,
    sequence_length: int,
    key: str = "corpus.sequence_length",
    model: str = "model",
    remedy: str = "raise model.overrides.max_position_embeddings",
) -> None:
    """Raise a `ValueError` if sequences are longer than the model has positions for."""
    positions = most_positions(config)
    if positions is not None and sequence_length > positions:
        raise ValueError(
            f"{key} is {sequence_length}, but the {model} has {positions} positions: "
            f"shorten the sequences, or {remedy}"
        )
