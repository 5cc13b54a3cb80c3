"""From dialogues to what a decoder reads, by the tokenizer's chat template, and to the tokens it learns.

    messages --chat template--> text --tokenizer--> ids        targets: the tokens of the assistant's turns

The template says which these are if it marks them with `{% generation %}`. Otherwise a turn is what the text
of the dialogue up to its end has more than the text up to its beginning with the generation prompt.
"""

import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from ..ground.messages import first_line
from ..text.bad_records import RowError
from ..text.special_tokens import required_token_id
from ..text.words import token_spans
from .encoding import tell_of_cuts

ASSISTANT = "assistant"
"""Role of the messages that a model learns to write."""

DEFAULT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if not loop.first %}{{ '\\n' }}{% endif %}{{ message['role'] + ':\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '\\nassistant:\\n' }}{% endif %}"
)
"""What a tokenizer without a chat template gets. It needs no new tokens: `user:`, a line break, the
message; answers end with the end-of-sequence token."""

ANSWER = "It is so."
"""Stands for any message where what a template puts behind an answer is looked at."""

MARKS_ANSWERS = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""What a template has that says which tokens the assistant writes."""

Dialogue = Sequence[dict[str, str]]
"""Messages with a `role` and a `content`."""


class EncodedDialogue(NamedTuple):
    """A dialogue as a model reads it."""

    ids: np.ndarray
    """Its tokens (T,)."""
    is_target: np.ndarray
    """Which of them the assistant writes (T,)."""


def give_template(tokenizer: PreTrainedTokenizerBase) -> None:
    """Set the default chat template of a tokenizer that has none.

    Raises:
        ValueError: It has no token to end an answer with.
    """
    if not tokenizer.chat_template:
        required_token_id(tokenizer, "eos", "chat")
        tokenizer.chat_template = DEFAULT_TEMPLATE


def end_of_answers(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the added tokens that a template puts behind an answer, as far as they are learned.

    Raises:
        ValueError: It refuses a message and its answer.
    """
    dialogue = [{"role": "user", "content": ANSWER}, {"role": ASSISTANT, "content": ANSWER}]
    try:
        text, encoded = rendered(dialogue, tokenizer), encode(dialogue, tokenizer)
    except TemplateError as error:
        raise ValueError(
            f"the tokenizer's chat template cannot write a message of the user and its answer "
            f"({first_line(error)}): correct it"
        ) from error
    starts, _ = token_spans(tokenized(text, tokenizer)["offset_mapping"])
    is_behind = starts >= text.rindex(ANSWER) + len(ANSWER)
    added = np.isin(encoded.ids, list(tokenizer.added_tokens_decoder))
    return encoded.ids[encoded.is_target & is_behind & added].tolist()


def encode_dialogues(
    dialogues: Sequence[Dialogue], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> list[EncodedDialogue]:
    """Encode dialogues with their answers; those that are too long lose their end, and a warning counts them.

    Raises:
        RowError: The template refuses a dialogue, or it has no answer within `max_length` tokens.
    """
    encoded = [refusing(encode, dialogue, tokenizer, row) for row, dialogue in enumerate(dialogues)]
    lengths = [len(each.ids) for each in encoded]
    tell_of_cuts(lengths, max_length, [each[0]["content"] for each in dialogues], "dialogues")
    cut = [EncodedDialogue(each.ids[:max_length], each.is_target[:max_length]) for each in encoded]
    for row, each in enumerate(cut):
        if not each.is_target[1:].any():
            raise RowError(
                row,
                f"has no answer within {max_length} tokens: shorten it, or raise data.max_length",
            )
    return cut


def encode_prompts(dialogues: Sequence[Dialogue], tokenizer: PreTrainedTokenizerBase) -> list[np.ndarray]:
    """Encode dialogues that the assistant is to answer, with the generation prompt.

    Raises:
        RowError: The template refuses a dialogue.
    """
    return [refusing(prompt_ids, dialogue, tokenizer, row) for row, dialogue in enumerate(dialogues)]


def require_room(prompts: Sequence[np.ndarray], max_length: int) -> None:
    """Raise a `RowError` if a prompt leaves no room for an answer."""
    for row, ids in enumerate(prompts):
        if len(ids) >= max_length:
            raise RowError(row, f"has a dialogue of {len(ids)} tokens, but {max_length} fit: shorten it")


def tell_of_room(prompts: Sequence[np.ndarray], max_length: int) -> None:
    """Warn of prompts behind which no token of an answer fits, so that none is written."""
    if number := sum(len(ids) >= max_length for ids in prompts):
        warnings.warn(
            f"{number:,} of {len(prompts):,} dialogues have no room for their last answer within "
            f"{max_length} tokens: where they are held out, it counts as empty",
            stacklevel=2,
        )


def template_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a tokenizer's chat template."""
    return cast(str, tokenizer.get_chat_template())


def refusing(encode: Any, dialogue: Dialogue, tokenizer: PreTrainedTokenizerBase, row: int) -> Any:
    """Encode a dialogue; name its row if the template refuses it."""
    try:
        return encode(dialogue, tokenizer)
    except TemplateError as error:
        raise RowError(
            row, f"cannot be written by the tokenizer's chat template ({first_line(error)}): correct it"
        ) from error


def prompt_ids(dialogue: Dialogue, tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Encode a dialogue up to where the assistant begins, (T,)."""
    return np.array(tokenized(rendered(dialogue, tokenizer, True), tokenizer)["input_ids"], dtype=np.int64)


def encode(dialogue: Dialogue, tokenizer: PreTrainedTokenizerBase) -> EncodedDialogue:
    """Encode a dialogue; the tokens that hold a character of an answer are its targets."""
    text = rendered(dialogue, tokenizer)
    marks = MARKS_ANSWERS.search(template_of(tokenizer))
    spans = marked(dialogue, tokenizer) if marks else by_prefixes(dialogue, tokenizer, text)
    encoded = tokenized(text, tokenizer)
    starts, ends = token_spans(encoded["offset_mapping"])
    is_target = np.zeros(len(starts), dtype=bool)
    for begin, end in spans:
        is_target |= (ends > begin) & (starts < end)
    return EncodedDialogue(np.array(encoded["input_ids"], dtype=np.int64), is_target)


def marked(dialogue: Dialogue, tokenizer: PreTrainedTokenizerBase) -> list[tuple[int, int]]:
    """Find the answers in a dialogue's text, as spans of characters: the template marks them."""
    special_tokens: dict[str, Any] = dict(tokenizer.special_tokens_map)
    _, spans = render_jinja_template(
        conversations=[list(dialogue)],
        chat_template=template_of(tokenizer),
        return_assistant_tokens_mask=True,
        **special_tokens,
    )
    return [(int(begin), int(end)) for begin, end in spans[0]]


def by_prefixes(dialogue: Dialogue, tokenizer: PreTrainedTokenizerBase, text: str) -> list[tuple[int, int]]:
    """Find the answers in a dialogue's text, as spans of characters: what each adds to the text before it."""
    spans = []
    for place, message in enumerate(dialogue):
        if message["role"] == ASSISTANT:
            before = rendered(dialogue[:place], tokenizer, True)
            after = rendered(dialogue[: place + 1], tokenizer)
            if not (text.startswith(after) and after.startswith(before)):
                raise TemplateError("without {% generation %}, it must only add to the text with each turn")
            spans.append((len(before), len(after)))
    return spans


def rendered(dialogue: Dialogue, tokenizer: PreTrainedTokenizerBase, prompts: bool = False) -> str:
    """Write a dialogue as its text, with the generation prompt or without."""
    return cast(
        str, tokenizer.apply_chat_template(list(dialogue), tokenize=False, add_generation_prompt=prompts)
    )


def tokenized(text: str, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Encode a text that has its special tokens already."""
    return tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
