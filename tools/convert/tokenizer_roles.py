"""A tokenizer that goes along when its model is read as another member: special tokens and frames of texts.

    encoder   [CLS] A [SEP], padded on the right; a mask token
    decoder   A, padded on the left, without token types: `generate` goes on where the text ends
    seq2seq   A [SEP], padded on the right

Frames are those of Tercet's own tokenizers. Tokenizers of other classes, which build them anew when they are
loaded, keep theirs.
"""

from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...data.tokenizers.tokenizer import Template, framing
from ...modeling.saved.model_folder import give_segments, keep_option

if TYPE_CHECKING:
    from .members import Member

MASK = "[MASK]"
"""Added to tokenizers that have no mask token."""

STAND_INS = {"bos_token": "cls_token", "eos_token": "sep_token"}
"""What opens and closes the texts of a decoder -> what does in BERT's tokenizer (Rothe et al., 2020, 4.1)."""

TEMPLATES: "dict[Member, Template]" = {"encoder": "pair", "decoder": "plain", "seq2seq": "end"}
"""How Tercet's own tokenizers frame the texts of each member."""


def prepare_tokenizer(tokenizer: PreTrainedTokenizerBase, to: "Member", *, has_segments: bool) -> None:
    """Set the special tokens that a member works with, and what frames a text.

    Args:
        tokenizer: It is changed.
        has_segments: Whether the model has vectors of segments.
    """
    if to == "encoder" and tokenizer.mask_token is None:
        tokenizer.add_special_tokens({"mask_token": MASK})
    if to != "encoder":
        for role, stand_in in STAND_INS.items():
            if getattr(tokenizer, role) is None and getattr(tokenizer, stand_in) is not None:
                setattr(tokenizer, role, getattr(tokenizer, stand_in))
    give_segments(tokenizer, to == "encoder" and has_segments)
    if type(tokenizer) is PreTrainedTokenizerFast:
        keep_option(tokenizer, "padding_side", "left" if to == "decoder" else "right")
        frame(tokenizer, to)


def frame(tokenizer: PreTrainedTokenizerFast, to: "Member") -> None:
    """Frame a text by the tokens between which the member reads it."""
    opening: list[Any] = [tokenizer.cls_token] if to == "encoder" and tokenizer.cls_token else []
    closing: list[Any] = [name for name in (tokenizer.sep_token, tokenizer.eos_token) if name][:1]
    frames = framing(TEMPLATES[to], tokenizer.get_vocab(), opening, closing)
    tokenizer.backend_tokenizer.post_processor = frames
