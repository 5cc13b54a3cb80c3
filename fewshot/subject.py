"""The model that is evaluated: found, loaded, and known by a hash of its weights, which do not change."""

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..ground.saved_weights import load_whole, tell_of_unread
from ..modeling import (
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
)
from ..storage.heads import Member
from ..storage.length import ROBERTA_LIKE, positions_of_pads
from ..storage.model_folder import find_folder, load_config, require_fit, require_tokenizer
from ..storage.own_model import load_transformer
from .boundary import (
    DecoderPrompts,
    EncoderPrompts,
    PromptEncoder,
    Seq2SeqPrompts,
    SpecialTokenPolicy,
    required_id,
)
from .decoder_scoring import CacheScorer, TreeScorer
from .definition import OneByOne
from .encoder_scoring import EncoderScorer, Hiding
from .member import HEADS, Head, member_of, require_choice_of_head
from .request import Request, Scorer
from .seq2seq_scoring import Seq2SeqScorer

Precision = Literal["fp32", "bf16"]

AUTO_CLASSES: dict[Member, str] = {
    "encoder": "AutoModelForMaskedLM",
    "decoder": "AutoModelForCausalLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
}
"""What loads a stock member with its LM head."""

OURS: dict[Member, tuple[str, ...]] = {
    "encoder": ("TercetEncoderForMaskedLM", "TercetEncoderForPreTraining", "TercetDecoderForMaskedLM"),
    "decoder": ("TercetDecoderForCausalLM",),
    "seq2seq": ("TercetSeq2SeqForConditionalGeneration",),
}
"""Classes of ours with an LM head."""

UNLIMITED = 10**6
"""Tokens that a tokenizer must claim to read for nobody to have set its limit."""

TOKENS = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "bad_words_ids",
    "suppress_tokens",
)
"""What says with which tokens a text begins and ends, and which ones are none of a text."""

DEFAULT_LENGTH = 2048
"""Tokens that a model reads that has no limit of its own."""


@dataclass(frozen=True)
class Subject:
    """A model to be evaluated."""

    name: str
    """As the user gave it."""
    model: PreTrainedModel
    """In evaluation mode."""
    tokenizer: PreTrainedTokenizerBase
    member: Member
    precision: Precision = "fp32"

    @cached_property
    def max_length(self) -> int:
        """Tokens that the model reads at once."""
        config: Any = self.model.config
        for name in ("n_positions", "max_position_embeddings", "n_ctx"):
            if getattr(config, name, None):
                return getattr(config, name) - positions_of_pads(config)
        told = self.tokenizer.model_max_length
        return int(told) if told < UNLIMITED else DEFAULT_LENGTH

    def prompts(self, policy: SpecialTokenPolicy) -> PromptEncoder:
        """Return what turns prompts into this model's requests.

        Raises:
            ValueError: The tokenizer lacks what the policy needs.
        """
        if self.member == "seq2seq":
            start = self.model.config.decoder_start_token_id
            forced = self.model.generation_config.forced_bos_token_id  # pyright: ignore[reportOptionalMemberAccess]
            return Seq2SeqPrompts(self.tokenizer, policy, start, forced)
        if isinstance(self.model, TercetDecoderForMaskedLM):  # whose first token nothing predicts
            policy = replace(policy, opening="bos")
        return (DecoderPrompts if self.member == "decoder" else EncoderPrompts)(self.tokenizer, policy)

    def scorer(self, tokens_at_once: int, hiding: Hiding, *, one_by_one: bool = False) -> Scorer:
        """Return what scores this model's requests: fast, or by definition.

        Raises:
            ValueError: An encoder's tokenizer has no mask.
        """
        mask_id = -1
        if self.member == "encoder":
            mask_id = required_id(self.tokenizer, "mask", f"cloze scoring with {self.name} needs a mask")
        if one_by_one:
            return OneByOne(self.model, self.member, hiding, mask_id)
        if self.member == "encoder":
            return EncoderScorer(self.model, tokens_at_once, hiding, mask_id)
        if self.member == "seq2seq":
            return Seq2SeqScorer(self.model, tokens_at_once)
        if isinstance(self.model, TercetDecoderForCausalLM):
            return TreeScorer(self.model, tokens_at_once)
        return CacheScorer(self.model, tokens_at_once)

    def excess(self, request: Request) -> int:
        """Count the tokens of the context that are too many; what remains must hold the answer.

        Raises:
            ValueError: The answer, or what follows it, is longer than what the model reads.
        """
        own = len(request.lead) + len(request.answer) + len(request.suffix) - (self.member != "encoder")
        room = self.max_length - (self.member != "seq2seq")
        if own > room:
            is_long = own - len(request.suffix) > room
            behind = "" if is_long else f" with {len(request.suffix):,} behind it"
            raise ValueError(
                f"an answer of {len(request.answer):,} tokens{behind} is longer than the maximum length of "
                f"{self.name} ({self.max_length:,} tokens): shorten {'it' if is_long else 'the suffix'}, or "
                f"choose a model with a larger maximum length"
            )
        length = len(request.context) + (0 if self.member == "seq2seq" else own)
        return max(0, length - self.max_length)


def load_subject(
    name: str, precision: Precision = "fp32", head: Head = "auto", *, trust_remote_code: bool = False
) -> Subject:
    """Load a model with its LM head, and its tokenizer, onto the GPU if there is one.

    Args:
        name: A folder, or an id on the Hub; of Tercet's, or stock.
        precision: Number format of weights and products.
        head: How a decoder of ours is read.
        trust_remote_code: Run the code that the model brings along.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: It has no LM head or no tokenizer, its files are damaged or incomplete, or `head` is given
            for a model that is no decoder of ours.
    """
    folder = find_folder(name)
    config = load_config(folder, trust_remote_code=trust_remote_code)
    member = member_of(config)
    require_choice_of_head(head, name, config)
    tokenizer = require_tokenizer(folder, name, trust_remote_code=trust_remote_code)
    if config.model_type.startswith("tercet"):
        model: PreTrainedModel = load_transformer(str(folder), HEADS.get(head))
        if isinstance(model, TercetDecoderForMaskedLM):
            member = "encoder"
        require_lm_head(name, model, member)
    else:
        model = load_foreign(folder, name, member, trust_remote_code)
    require_fit(tokenizer, model.config)
    require_scorable(name, model)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if model.can_generate():
        model.generation_config = naming_tokens_only(model.generation_config)
    return Subject(name, model.eval().to(device=device, dtype=dtype), tokenizer, member, precision)  # pyright: ignore[reportCallIssue]


def require_lm_head(name: str, model: PreTrainedModel, member: Member) -> None:
    """Raise a `ValueError` if a model of ours gives no probabilities of tokens."""
    if type(model).__name__ not in OURS[member]:
        raise ValueError(
            f"{name} is a {type(model).__name__}, which has no LM head: name a model with the head of its "
            f"pretraining ({' or '.join(OURS[member])})"
        )


def require_scorable(name: str, model: PreTrainedModel) -> None:
    """Raise a `ValueError` if a model's scores would depend on its batch."""
    config: Any = model.config
    if config.model_type in ROBERTA_LIKE and config.pad_token_id is None:
        raise ValueError(
            f"{name} is of type {config.model_type}, which counts positions from its pad_token_id, but its "
            f"configuration has none: set it in config.json (1 in published models)"
        )
    if getattr(config, "attention_type", "") == "block_sparse":
        raise ValueError(
            f"{name} uses sparse attention for long texts and full attention for short ones, so that the "
            f"score of a text depends on its batch: set attention_type to original_full in config.json"
        )


def load_foreign(folder: Path, name: str, member: Member, trust_remote_code: bool) -> PreTrainedModel:
    """Load a stock model with its LM head; a warning names what is left of the files."""
    auto_class = AUTO_CLASSES[member]
    try:
        model, fit = load_whole(
            getattr(transformers, auto_class),
            folder,
            may_leave=lambda name: True,
            trust_remote_code=trust_remote_code,
            dtype=torch.float32,
        )
    except ValueError as error:
        if "Unrecognized configuration class" in str(error):
            raise ValueError(f"{name} cannot be evaluated: {auto_class} does not support it") from error
        raise
    tell_of_unread(fit, folder)
    return model


def naming_tokens_only(config: GenerationConfig) -> GenerationConfig:
    """Keep what names tokens of a model's generation configuration: it shall decode greedily."""
    return GenerationConfig(**{name: getattr(config, name, None) for name in TOKENS})


def hash_weights(model: PreTrainedModel) -> str:
    """Return the SHA-256 of all parameters and saved buffers, by their names."""
    digest = sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
