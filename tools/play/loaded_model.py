"""A model to play with: loaded once, with its tokenizer, its task and what is known of its origin."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...configs.messages import quietly
from ...configs.named_files import require_inside
from ...finetune.prediction import Predictor
from ...finetune.tasks.task import Task
from ...modeling.saved.checkpoint import Checkpoint, Member
from ...modeling.saved.model_folder import CONFIG, require_fit
from ...reports.blocks import name_of_model
from ...reports.finished_run import TASK, FinishedRun, find_run
from ...training.finite_numbers import finite_outputs
from ..push.model_card import KINDS, origin

WORD_VECTORS = "tercet_word_vectors"
"""Type of the models that are tables."""

NAMES_OF_MEMBERS: dict[Member, str] = {
    "encoder": "encoder",
    "decoder": "decoder",
    "seq2seq": "sequence-to-sequence Transformer",
}
"""What pages call the members."""

NAMES_OF_DEPTH = ("num_hidden_layers", "decoder_num_hidden_layers", "decoder_layers")
"""What they call the layers of the encoder, or the only ones, and those of the decoder."""


class LoadedModel:
    """A model in evaluation mode, on the GPU if there is one.

    Args:
        name: The folder or the Hub id, as the user gave it.
        run: What is known of its training.
        predictor: What answers rows of its task, if `tercet finetune` made it.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint,
        model: PreTrainedModel,
        run: FinishedRun,
        predictor: Predictor | None,
    ):
        self.name = name
        self.title = name_of_model(name)
        """A short name for headings."""
        self.checkpoint = checkpoint
        self.run = run
        self.predictor = predictor
        self.model = model
        self.tokenizer: PreTrainedTokenizerBase = checkpoint.required_tokenizer()

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def member(self) -> Member:
        return self.checkpoint.member

    @property
    def task(self) -> Task | None:
        """What `tercet finetune` made of the model."""
        return self.predictor.task if self.predictor else None

    @property
    def device(self) -> torch.device:
        return self.model.device

    @cached_property
    def has_lm_head(self) -> bool:
        """Whether the model gives probabilities of tokens."""
        return self.task is None and self.model.get_output_embeddings() is not None

    @property
    def max_length(self) -> int:
        """Tokens that the model reads at once."""
        return self.checkpoint.max_length

    @cached_property
    def facts(self) -> dict[str, str]:
        number, config = self.model.num_parameters(), self.config
        layers = [getattr(config, name, None) for name in NAMES_OF_DEPTH]
        shape = " + ".join(str(each) for each in layers if each)
        return {
            "kind": KINDS.get(config.model_type, f"{NAMES_OF_MEMBERS[self.member]} ({config.model_type})"),
            "class": type(self.model).__name__,
            "parameters": f"{number / 1e6:,.1f} million" if number >= 1e5 else f"{number:,}",
            "layers": f"{shape} of width {getattr(config, 'hidden_size', '?')}",
            "vocabulary": f"{config.vocab_size:,} tokens",
            "reads at most": f"{self.max_length:,} tokens",
        } | ({"origin": about} if (about := origin(self.run).replace("\\", "")) else {})

    def inputs(self, *texts: str, special: bool = True) -> dict[str, Tensor]:
        """Encode a text, or a pair, as a batch of one."""
        encoded = self.tokenizer(*texts, return_tensors="pt", add_special_tokens=special, verbose=False)
        length: int = encoded["input_ids"].shape[1]  # pyright: ignore[reportAttributeAccessIssue]
        if length == 0:
            raise ValueError("the text has no token that the model knows: write another text")
        if length > self.max_length:
            raise ValueError(
                f"the text has {length:,} tokens, but {self.title} reads at most {self.max_length:,}: "
                "shorten the text"
            )
        accepted = {"input_ids", "attention_mask"}
        if getattr(self.config, "type_vocab_size", 0) > 1:
            accepted.add("token_type_ids")
        return {name: value.to(self.device) for name, value in encoded.items() if name in accepted}

    def opened(self, ids: list[int]) -> list[int]:
        """Put the bos token before a decoder's text where it stood in training, if the tokenizer does not.

        It did in texts of Tercet's models, also where the model was exported, and of models like GPT-2, where
        one token separates documents. Of other stock models the tokenizer is trusted.
        """
        if not (self.member == "decoder" and self.has_lm_head):
            return ids
        begin: Any = self.tokenizer.bos_token_id
        is_ours = self.checkpoint.is_ours or bool(self.run.certificate)
        is_wanted = is_ours or begin == self.tokenizer.eos_token_id
        return [begin, *ids] if is_wanted and begin not in (None, ids[0]) else ids

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let one thread use a model at a time, without gradients, whatever model the others want."""
        model: Any = self.model
        parts = {model, model.base_model, model.get_encoder() if self.member == "seq2seq" else model}
        with torch.no_grad(), quietly(), finite_outputs(*parts):
            yield


def load_model(name: str) -> LoadedModel:
    """Load a model with the head that its weights are for.

    Args:
        name: A folder that `save_pretrained` wrote, a run's folder, or the name of a model on the Hub.
    """
    within = Path(name).expanduser() / "model"
    is_run = (within / CONFIG).is_file()
    checkpoint = Checkpoint.open(str(require_inside(within, within.parent)) if is_run else name)
    if checkpoint.config.model_type == WORD_VECTORS:
        raise ValueError(
            f"{name} holds static vectors of words, which read no text by themselves: train a tagger on them "
            f"(`tercet finetune conll2003-tagger model.path={name} model.tagger.beside=[]`) and play with it"
        )
    run = find_run(checkpoint.folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = checkpoint.required_tokenizer()
    with quietly():
        predictor = Predictor(checkpoint) if (checkpoint.folder / TASK).exists() else None
        model = predictor.model if predictor else load_any(checkpoint)
    require_fit(tokenizer, model.config)
    model = model.to(device).eval()  # pyright: ignore[reportArgumentType]
    return LoadedModel(name, checkpoint, model, run, predictor)


def load_any(checkpoint: Checkpoint) -> PreTrainedModel:
    """Load one of our models, or a stock one, in float32."""
    if checkpoint.is_ours:
        return checkpoint.ours().float()
    return checkpoint.stock(may_lack=lambda name: "pooler" in name)
