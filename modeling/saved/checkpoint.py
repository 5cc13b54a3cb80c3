"""A model on disk: opened once by the name that its user gave, and asked by everybody who reads it.

    name -> folder -> config.json, header of the weights, tokenizer, sentence vectors -> member, max_length
                                                                          |
                                                                        model

Each file is read when it is first asked for, and then kept.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, cast

import torch
import transformers
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ... import modeling
from ...configs.hashes import hash_of_model
from ..configuration_tercet import TercetConfig
from ..pretrained import NeuralPreTrainedModel, TercetPreTrainedModel
from .length import max_length
from .model_folder import CONFIG, find_folder, load_config, load_tokenizer
from .weights import StoredWeights, inspect_weights, load_whole, tell_of_unread

Member = Literal["encoder", "decoder", "seq2seq"]

MAPPINGS = {
    "AutoModelForMaskedLM": transformers.MODEL_FOR_MASKED_LM_MAPPING,
    "AutoModelForCausalLM": transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
    "AutoModelForSeq2SeqLM": transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    "AutoModelForPreTraining": transformers.MODEL_FOR_PRETRAINING_MAPPING,
    "AutoModelForSequenceClassification": transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    "AutoModelForTokenClassification": transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    "AutoModelForQuestionAnswering": transformers.MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    "AutoModelForMultipleChoice": transformers.MODEL_FOR_MULTIPLE_CHOICE_MAPPING,
    "AutoModelForNextSentencePrediction": transformers.MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING,
    "AutoModel": transformers.MODEL_MAPPING,
}
"""The Auto classes whose models can be examined, and the models that each has for a configuration."""


@dataclass(frozen=True)
class Checkpoint:
    """A model's folder, here or fetched from the Hub, and what is known of it."""

    name: str
    """As its user wrote it."""
    folder: Path
    """Where it lies on this machine."""
    trust_remote_code: bool | None = None
    """Whether code that it brings along is run; `None` where no command asks."""

    @classmethod
    def open(
        cls, name: str, revision: str | None = None, *, trust_remote_code: bool | None = None
    ) -> "Checkpoint":
        """Find a model's folder, or fetch the files of a repository on the Hub, at a revision of it."""
        return cls(name, find_folder(name, revision), trust_remote_code)

    @cached_property
    def config(self) -> PreTrainedConfig:
        """The configuration; the counts in it are no more than the weights have."""
        return load_config(self.folder, trust_remote_code=self.trust_remote_code)

    @cached_property
    def weights(self) -> StoredWeights:
        return inspect_weights(self.folder)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer beside the model, if there is one; whoever changes it takes a copy."""
        return load_tokenizer(self.folder, trust_remote_code=self.trust_remote_code)

    @cached_property
    def hash(self) -> str:
        return hash_of_model(self.folder)

    @property
    def is_ours(self) -> bool:
        return self.config.model_type.startswith("tercet")

    @cached_property
    def member(self) -> Member:
        """Which of the three Transformers it is, with the head that its weights are for."""
        named, heads = (self.config.architectures or [""])[0], classes_of(self.config)
        if self.config.is_encoder_decoder:
            return "seq2seq"
        if self.config.model_type == "tercet_decoder":  # whose language model also reads in both directions
            return "encoder" if named in heads["AutoModelForMaskedLM"] else "decoder"
        is_causal = "AutoModelForCausalLM" in heads and "AutoModelForMaskedLM" not in heads
        return "decoder" if is_causal or named.endswith(("ForCausalLM", "LMHeadModel")) else "encoder"

    @cached_property
    def max_length(self) -> int:
        """How many tokens of a text it reads at most."""
        told = None if self.tokenizer is None else self.tokenizer.model_max_length
        return max_length(self.config, told)

    def required_tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError(
                f"{self.name} has no tokenizer: save the one that it was trained with in the same folder"
            )
        return self.tokenizer

    def own_tokenizer(self) -> PreTrainedTokenizerBase:
        """Return a copy of the tokenizer, which may be changed; there has to be one."""
        return deepcopy(self.required_tokenizer())

    def require_transformer(self) -> None:
        """Raise a `ValueError` if a member of the family is no Transformer, which most commands work on."""
        if self.is_ours and not isinstance(self.config, TercetConfig):
            raise ValueError(
                f"{self.name} is a {self.config.model_type}, which this command does not read: name an "
                "encoder, a decoder or a sequence-to-sequence model"
            )

    def ours(self, model_class: type[NeuralPreTrainedModel] | None = None) -> NeuralPreTrainedModel:
        """Load a model of ours, whatever member it is; with a `model_class`, its own head may stay unread."""
        config = self.config
        if not self.is_ours:
            raise ValueError(f"{self.name} is a {config.model_type}: import it with tercet import first")
        start = getattr(config, "decoder_start_token_id", None)
        if start is not None and start not in range(config.vocab_size):
            raise ValueError(
                f"{self.folder / CONFIG} says decoder_start_token_id = {start}, but the model has vectors "
                f"for ids below {config.vocab_size:,}: name the token that the decoder was trained to "
                "begin with"
            )
        loader = model_class or getattr(modeling, (config.architectures or [""])[0], AutoModel)
        has_other_head = model_class is not None
        model, _ = load_whole(
            loader, self.folder, may_leave=lambda name: has_other_head and not name.startswith("model.")
        )
        return cast(NeuralPreTrainedModel, model)

    def transformer(self, model_class: type[TercetPreTrainedModel] | None = None) -> TercetPreTrainedModel:
        """Load a model of ours as `ours` does, for what only Transformers can do."""
        self.require_transformer()
        return cast(TercetPreTrainedModel, self.ours(model_class))

    def require_sound(self) -> None:
        """Make sure that it is whole and finite, ours or a stock one; other code than that is not run."""
        loader = getattr(transformers, (self.config.architectures or [""])[0], None)
        if self.is_ours:
            self.ours()
        elif isinstance(loader, type) and issubclass(loader, PreTrainedModel):
            load_whole(loader, self.folder, may_leave=lambda name: True)

    def stock(
        self, head: str | None = None, may_lack: Callable[[str], bool] = lambda name: False
    ) -> PreTrainedModel:
        """Load a stock model in float32; a warning names what is left of the files.

        The Auto class `head` loads it, by default that of the architecture which it names. `may_lack` tells
        of a tensor's name whether it may be drawn.
        """
        model, fit = load_whole(
            getattr(transformers, head or loader_of(self.config)),
            self.folder,
            may_lack=may_lack,
            may_leave=lambda name: True,
            trust_remote_code=bool(self.trust_remote_code),
            dtype=torch.float32,
        )
        tell_of_unread(fit, self.folder)
        return model


Opener = Callable[..., Checkpoint]
"""What finds a model by its name and, if given, its revision."""


def opening_once() -> Opener:
    """Return a `Checkpoint.open` for one run, which opens each name once."""
    opened = cache(Checkpoint.open)
    return lambda name, revision=None: opened(name, revision)


def classes_of(config: PreTrainedConfig) -> dict[str, set[str]]:
    """Name the models that each Auto class has for a configuration, be they known or brought along."""
    brought = getattr(config, "auto_map", None) or {}
    heads = {}
    for auto_class, mapping in MAPPINGS.items():
        known: Any = mapping.get(type(config), ())
        names = {model.__name__ for model in (known if isinstance(known, tuple) else (known,))}
        if auto_class in brought:
            names.add(brought[auto_class].rpartition(".")[2])
        if names:
            heads[auto_class] = names
    return heads


def loader_of(config: PreTrainedConfig) -> str:
    """Name the Auto class that loads the architecture which a configuration names, by default the base."""
    architecture = (config.architectures or [None])[0]
    heads = classes_of(config)
    if architecture is None and "AutoModel" in heads:
        return "AutoModel"
    for auto_class, names in heads.items():
        if architecture in names:
            return auto_class
    raise ValueError(
        f"architectures of config.json names {architecture}, which is not supported: use a model that is "
        f"loaded by one of {', '.join(MAPPINGS)}"
    )
