"""What stands around the texts of a task, made part of the tokenizer: whoever calls it gets what was learned.

    A </s>            a text that is read or written by a sequence-to-sequence model (`end_texts`)
    A </s> B          a pair (`separate_pairs`)
    A </s> B </s>     a pair of which the last token stands for "no answer" (`end_pairs`)

Frames that a tokenizer has of its own stay. Those of decoders often frame nothing, or open a text alone; the
token that ends a text then stands between the two of a pair, as it did between documents in pretraining.
"""

import json
from typing import Any, Literal

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..data.tokenizers.special_tokens import any_text, required_token_id
from ..modeling.saved.model_folder import keep_option
from .encoding import backend_of

FIRST, SECOND = ({"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB"))
"""The two texts of a frame, as `tokenizer.json` has them."""


def end_texts(tokenizer: PreTrainedTokenizerBase) -> None:
    """Let the end-of-sequence token stand behind a text, if it does not."""
    if required_token_id(tokenizer, "eos", "generation") not in behind(tokenizer, any_text(tokenizer)):
        put_end(tokenizer, "single", FIRST)


def separate_pairs(tokenizer: PreTrainedTokenizerBase) -> None:
    """Let the end-of-sequence token stand between the two texts of a pair, if nothing does."""
    first, second = texts_of_pair(tokenizer)
    if first.stop == second.start:
        put_end(tokenizer, "pair", FIRST)


def end_pairs(tokenizer: PreTrainedTokenizerBase) -> None:
    """Separate the two texts of a pair, and end them with the end-of-sequence token, if nothing does."""
    separate_pairs(tokenizer)
    if not behind(tokenizer, *[any_text(tokenizer)] * 2):
        put_end(tokenizer, "pair", SECOND)


def texts_of_pair(tokenizer: PreTrainedTokenizerBase) -> list[slice]:
    """Return where the two texts of a pair lie among its tokens."""
    text = any_text(tokenizer)
    numbers = backend_of(tokenizer).encode(text, text).sequence_ids
    return [slice(numbers.index(text), len(numbers) - numbers[::-1].index(text)) for text in (0, 1)]


def behind(tokenizer: PreTrainedTokenizerBase, text: str, other: str | None = None) -> list[int]:
    """Return the ids that stand behind a text or a pair."""
    encoding = backend_of(tokenizer).encode(text, other)
    of_texts = [place for place, number in enumerate(encoding.sequence_ids) if number is not None]
    return encoding.ids[max(of_texts, default=-1) + 1 :]


def put_end(
    tokenizer: PreTrainedTokenizerBase, side: Literal["single", "pair"], text: dict[str, Any]
) -> None:
    """Put the end-of-sequence token behind one of the texts of a tokenizer's frame.

    A tokenizer of a class of its own becomes one of the general class: some classes build their frames anew
    when they are loaded.
    """
    token, number = tokenizer.eos_token, tokenizer.eos_token_id
    if token is None:
        raise ValueError(
            "the tokenizer has no eos token to separate the two texts of a row: set its eos_token, or join "
            "the texts in one column"
        )
    backend = backend_of(tokenizer)
    told = json.loads(backend.to_str())
    own = told["post_processor"]
    parts = own["processors"] if own and own["type"] == "Sequence" else [own] if own else []
    template = next((part for part in parts if part["type"] == "TemplateProcessing"), None)
    if template is None:
        template = {"single": [FIRST], "pair": [FIRST, SECOND], "special_tokens": {}}
        template |= {"type": "TemplateProcessing"}
        parts.append(template)
    names = [part.get("Sequence", {}).get("id") for part in template[side]]
    place = names.index(text["Sequence"]["id"]) + 1
    kind = template[side][place - 1]["Sequence"]["type_id"]
    end = {"SpecialToken": {"id": token, "type_id": kind}}
    template[side] = [*template[side][:place], end, *template[side][place:]]
    template["special_tokens"][token] = {"id": token, "ids": [number], "tokens": [token]}
    told["post_processor"] = parts[0] if len(parts) == 1 else {"type": "Sequence", "processors": parts}
    backend.post_processor = Tokenizer.from_str(json.dumps(told)).post_processor
    tokenizer.__class__ = PreTrainedTokenizerFast
    for name in ("model_input_names", "padding_side"):
        keep_option(tokenizer, name, getattr(tokenizer, name))
