"""The model that is evaluated: found, loaded, and known by a hash of its weights, which do not change."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from .. import modeling
from ..modeling import TercetDecoderConfig
from ..modeling.saved.checkpoint import Checkpoint, Member
from ..modeling.saved.length import ROBERTA_LIKE
from ..modeling.saved.model_folder import require_fit
from .member import HEADS, Head, member_of
from .prompts.boundary import (
    DecoderPrompts,
    EncoderPrompts,
    PromptEncoder,
    Seq2SeqPrompts,
    SpecialTokenPolicy,
    required_id,
)
from .prompts.request import Hiding, Request, Scorer
from .recipe import Precision

if TYPE_CHECKING:
    from ..modeling import TercetDecoderForCausalLM

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


@dataclass(frozen=True)
class Subject:
    """A language model to be evaluated: loaded, and read as one of the three Transformers."""

    checkpoint: Checkpoint
    """The model on disk."""
    model: PreTrainedModel
    """In evaluation mode."""
    member: Member

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self.checkpoint.required_tokenizer()

    @property
    def is_our_decoder(self) -> bool:
        return isinstance(self.model.config, TercetDecoderConfig)

    def prompts(self, policy: SpecialTokenPolicy) -> PromptEncoder:
        """Return what turns prompts into this model's requests."""
        if self.member == "seq2seq":
            start = self.model.config.decoder_start_token_id
            forced = self.model.generation_config.forced_bos_token_id  # pyright: ignore[reportOptionalMemberAccess]
            return Seq2SeqPrompts(self.tokenizer, policy, start, forced)
        if self.is_our_decoder and self.member == "encoder":  # whose first token nothing predicts
            policy = replace(policy, opening="bos")
        return (DecoderPrompts if self.member == "decoder" else EncoderPrompts)(self.tokenizer, policy)

    def scorer(self, tokens_at_once: int, hiding: Hiding, *, one_by_one: bool = False) -> Scorer:
        """Return what scores this model's requests: fast, or by definition."""
        mask_id = -1
        if self.member == "encoder":
            needed_by = f"cloze scoring with {self.checkpoint.name} needs a mask"
            mask_id = required_id(self.tokenizer, "mask", needed_by)
        if one_by_one:
            from .scoring.definition import OneByOne

            return OneByOne(self.model, self.member, hiding, mask_id)
        if self.member == "encoder":
            from .scoring.encoder_scoring import EncoderScorer

            return EncoderScorer(self.model, tokens_at_once, hiding, mask_id)
        if self.member == "seq2seq":
            from .scoring.seq2seq_scoring import Seq2SeqScorer

            return Seq2SeqScorer(self.model, tokens_at_once)
        from .scoring.decoder_scoring import CacheScorer, TreeScorer

        if self.is_our_decoder:
            return TreeScorer(cast("TercetDecoderForCausalLM", self.model), tokens_at_once)
        return CacheScorer(self.model, tokens_at_once)

    def excess(self, request: Request) -> int:
        """Count the tokens of the context that are too many; what remains must hold the answer."""
        own = len(request.lead + request.answer + request.suffix) - (0 if self.member == "encoder" else 1)
        longest = self.checkpoint.max_length
        room = longest - (0 if self.member == "seq2seq" else 1)
        if own > room:
            is_long = own - len(request.suffix) > room
            behind = "" if is_long else f" with {len(request.suffix):,} behind it"
            raise ValueError(
                f"an answer of {len(request.answer):,} tokens{behind} is longer than the maximum length of "
                f"{self.checkpoint.name} ({longest:,} tokens): shorten {'it' if is_long else 'the suffix'}, "
                f"or choose a model with a larger maximum length"
            )
        length = len(request.context) + (0 if self.member == "seq2seq" else own)
        return max(0, length - longest)


def load_subject(checkpoint: Checkpoint, precision: Precision = "fp32", head: Head = "auto") -> Subject:
    """Load a model with its LM head, and its tokenizer, onto the GPU if there is one."""
    member, tokenizer = member_of(checkpoint, head), checkpoint.required_tokenizer()
    if checkpoint.is_ours:
        chosen = None if head == "auto" else getattr(modeling, HEADS[head])
        model: PreTrainedModel = checkpoint.transformer(chosen)
        if type(model).__name__ not in OURS[member]:
            raise ValueError(
                f"{checkpoint.name} is a {type(model).__name__}, which has no LM head: name a model with the "
                f"head of its pretraining ({' or '.join(OURS[member])})"
            )
    else:
        model = load_foreign(checkpoint, member)
    require_fit(tokenizer, model.config)
    require_scorable(checkpoint.name, model)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if model.can_generate():
        own = model.generation_config  # of which it keeps what names tokens: it shall decode greedily
        model.generation_config = GenerationConfig(**{name: getattr(own, name, None) for name in TOKENS})
    model = model.eval().to(device=device, dtype=dtype)  # pyright: ignore[reportCallIssue]
    return Subject(checkpoint, model, member)


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


def load_foreign(checkpoint: Checkpoint, member: Member) -> PreTrainedModel:
    """Load a stock model with its LM head; a warning names what is left of the files."""
    auto_class = AUTO_CLASSES[member]
    try:
        return checkpoint.stock(auto_class)
    except ValueError as error:
        if "Unrecognized configuration class" in str(error):
            raise ValueError(
                f"{checkpoint.name} cannot be evaluated: {auto_class} does not support it; name an "
                "encoder, a decoder or a sequence-to-sequence model"
            ) from error
        raise
