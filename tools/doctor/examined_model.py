"""A model to be examined, with what loading it has revealed.

It is loaded, or one line says why that is impossible.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ...configs.messages import quietly
from ...modeling.saved.checkpoint import Checkpoint, Member, classes_of, loader_of
from ...modeling.saved.weights import NO_KERNELS, Fit, compare_weights


@dataclass(frozen=True)
class ExaminedModel:
    """A model and what it was loaded from.

    Args:
        name: The folder, or the name on the Hub, as the user gave it.
        model: In evaluation mode and float32.
        tokenizer: None where the folder has none.
        fit: How the tensors of its files fit it, if it was loaded to be examined.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    fit: Fit | None = None

    @property
    def config(self) -> PreTrainedConfig:
        return self.model.config

    @property
    def rows(self) -> int:
        """How many tokens the table of embeddings knows."""
        return len(self.embeddings)

    @property
    def embeddings(self) -> Tensor:
        """The table of embeddings, (V, C)."""
        return cast(nn.Embedding, self.model.get_input_embeddings()).weight

    @property
    def member(self) -> Member:
        """Which of the three Transformers it is, by what it can do."""
        if self.config.is_encoder_decoder:
            return "seq2seq"
        if self.config.model_type == "tercet_decoder":  # whose language model also reads in both directions
            return "encoder" if self.is_one_of("AutoModelForMaskedLM") else "decoder"
        heads = classes_of(self.config)
        is_causal = "AutoModelForCausalLM" in heads and "AutoModelForMaskedLM" not in heads
        return "decoder" if is_causal or self.model.can_generate() else "encoder"

    def is_one_of(self, *auto_classes: str) -> bool:
        heads = classes_of(self.config)
        return any(type(self.model).__name__ in heads.get(auto_class, ()) for auto_class in auto_classes)

    @property
    def reads_twice(self) -> bool:
        """Whether encoder and decoder read the same text, for a task; otherwise the decoder has a target."""
        return self.member == "seq2seq" and self.is_one_of(
            "AutoModelForSequenceClassification",
            "AutoModelForTokenClassification",
            "AutoModelForQuestionAnswering",
            "AutoModelForMultipleChoice",
        )


HARMLESS = 10**8
"""Parameters that any machine has room for, however few of them are in the files."""


def load_examined_model(checkpoint: Checkpoint) -> ExaminedModel:
    """Load a model to examine it, whatever its files lack."""
    folder, config = checkpoint.folder, checkpoint.config
    if not getattr(config, "reads_any_ids", True):
        checkpoint.require_transformer()
    loader = getattr(transformers, loader_of(config))
    trusts = bool(checkpoint.trust_remote_code)
    arguments: Any = {"config": config, "dtype": torch.float32, "trust_remote_code": trusts}
    stored = checkpoint.weights
    fit = compare_weights(loader, folder, **arguments)
    numbers, needed = sum(stored.parameters.values()), fit.model.num_parameters()
    if needed > max(2 * numbers, HARMLESS):  # what files lack is drawn at random, and takes memory
        raise ValueError(
            f"config.json describes a model of {needed:,} parameters, but {stored.files[0]} has {numbers:,}: "
            "use the config.json that was saved with these weights"
        )
    with quietly():
        model = loader.from_pretrained(
            folder, use_safetensors=True, ignore_mismatched_sizes=True, **NO_KERNELS, **arguments
        )
    return ExaminedModel(checkpoint.name, model.eval(), checkpoint.tokenizer, fit)
