"""From dialogues to what a decoder reads, by the tokenizer's chat template, and to the tokens it learns.

    messages --chat template--> text --tokenizer--> ids        targets: the tokens of the assistant's turns

The template says which these are if it marks them with `{% generation %}`. Otherwise a turn is what the text
of the dialogue up to its end has more than the text up to its beginning with the generation prompt.

A template is a program by whoever made the tokenizer. It runs in the process of
`data/files/template_process.py`, with limits of time and memory.
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...configs.messages import first_line
from ...data.files.bad_rows import RowError
from ...data.files.template_process import PROCESS
from ...data.files.template_program import Chat
from ...data.tokenizers.special_tokens import required_token_id
from ...data.tokenizers.words import token_spans
from ..encoding import tell_of_cuts

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

Span = tuple[int, int]
"""Characters of a text: the first, and the one behind the last."""

AT_ONCE = 64
"""Dialogues that are sent to the process of templates together."""


class EncodedDialogue(NamedTuple):
    """A dialogue as a model reads it."""

    ids: np.ndarray
    """Its tokens (T,)."""
    is_target: np.ndarray
    """Which of them the assistant writes (T,)."""


def give_template(tokenizer: PreTrainedTokenizerBase) -> None:
    """Set the default chat template of a tokenizer that has none."""
    if not tokenizer.chat_template:
        required_token_id(tokenizer, "eos", "chat")
        tokenizer.chat_template = DEFAULT_TEMPLATE


def end_of_answers(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the added tokens that a template puts behind an answer, as far as they are learned."""
    dialogue = [{"role": "user", "content": ANSWER}, {"role": ASSISTANT, "content": ANSWER}]
    try:
        text, spans = next(marked_texts([dialogue], tokenizer))
    except RowError as error:
        raise ValueError(
            f"the tokenizer's chat template cannot write a message of the user and its answer "
            f"({first_line(error.__cause__)}): correct it"
        ) from error
    encoded = encoded_dialogue(text, spans, tokenizer)
    starts, _ = token_spans(tokenized(text, tokenizer)["offset_mapping"])
    is_behind = starts >= text.rindex(ANSWER) + len(ANSWER)
    added = np.isin(encoded.ids, list(tokenizer.added_tokens_decoder))
    return encoded.ids[encoded.is_target & is_behind & added].tolist()


def encode_dialogues(
    dialogues: Sequence[Dialogue], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> list[EncodedDialogue]:
    """Encode dialogues with their answers; a warning counts those that are too long, and lose their end."""
    marked = [*marked_texts(dialogues, tokenizer)]
    tell_of_left_out(dialogues, [text for text, _ in marked])
    encoded = [encoded_dialogue(text, spans, tokenizer) for text, spans in marked]
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
    """Encode dialogues that the assistant is to answer, with the generation prompt."""
    chats = ([Chat([*dialogue], is_prompt=True)] for dialogue in dialogues)
    texts = [text for [(text, _)] in rendered(chats, tokenizer)]
    tell_of_left_out(dialogues, texts)
    return [np.array(tokenized(text, tokenizer)["input_ids"], dtype=np.int64) for text in texts]


def tell_of_left_out(dialogues: Sequence[Dialogue], texts: Sequence[str]) -> None:
    """Warn of messages that the chat template leaves out, or writes otherwise than they are."""
    lost = Counter(
        message["role"]
        for dialogue, text in zip(dialogues, texts, strict=True)
        for message in dialogue
        if message["content"].strip() not in text
    )
    if lost:
        told = ", ".join(f"{count:,} of {role!r}" for role, count in lost.most_common())
        warnings.warn(
            f"of the messages in {len(dialogues):,} dialogues, the tokenizer's chat template leaves out or "
            f"changes {told}: the model does not read them as they are",
            stacklevel=2,
        )


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
    return cast(str, tokenizer.get_chat_template())


def encoded_dialogue(text: str, spans: Sequence[Span], tokenizer: PreTrainedTokenizerBase) -> EncodedDialogue:
    """Encode a dialogue's text; the tokens that hold a character of an answer are its targets."""
    encoded = tokenized(text, tokenizer)
    starts, ends = token_spans(encoded["offset_mapping"])
    is_target = np.zeros(len(starts), dtype=bool)
    for begin, end in spans:
        is_target |= (ends > begin) & (starts < end)
    return EncodedDialogue(np.array(encoded["input_ids"], dtype=np.int64), is_target)


def marked_texts(
    dialogues: Sequence[Dialogue], tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, list[Span]]]:
    """Write each dialogue as its text, with the spans of its answers."""
    if MARKS_ANSWERS.search(template_of(tokenizer)):
        chats = ([Chat([*dialogue], marks_answers=True)] for dialogue in dialogues)
        for [marked] in rendered(chats, tokenizer):
            yield marked
        return
    for row, written in enumerate(rendered(map(prefixes, dialogues), tokenizer)):
        yield by_prefixes([text for text, _ in written], row)


def prefixes(dialogue: Dialogue) -> list[Chat]:
    """List what is to be written of a dialogue: all of it, and what is there before and after each answer."""
    found = [Chat([*dialogue])]
    for place, message in enumerate(dialogue):
        if message["role"] == ASSISTANT:
            found.append(Chat([*dialogue[:place]], is_prompt=True))
            found.append(Chat([*dialogue[: place + 1]]))
    return found


def by_prefixes(texts: Sequence[str], row: int) -> tuple[str, list[Span]]:
    """Find the answers in a dialogue's text by the texts of its `prefixes`: what each adds to the last."""
    text, *others = texts
    spans = []
    for before, after in zip(others[::2], others[1::2], strict=True):
        if not (text.startswith(after) and after.startswith(before)):
            raise refused(row, "without {% generation %}, it must only add to the text with each turn")
        spans.append((len(before), len(after)))
    return text, spans


def rendered(
    rows: Iterator[list[Chat]], tokenizer: PreTrainedTokenizerBase
) -> Iterator[list[tuple[str, list[Span]]]]:
    """Write the chats of each row, with the spans of the answers where these are asked for."""
    source = template_of(tokenizer), dict(tokenizer.special_tokens_map)
    first = 0
    while together := [*islice(rows, AT_ONCE)]:
        answers = PROCESS.ask_all("chat", source, [chat for chats in together for chat in chats])
        values = iter(answers.values)
        for row, chats in enumerate(together, first):
            own = [*islice(values, len(chats))]
            if len(own) < len(chats):
                raise refused(row, answers.problem)
            yield own
        first += len(together)


def refused(row: int, problem: str) -> RowError:
    """Return the error of a row that the template refuses, whose cause is what the template says."""
    cause = ValueError(problem)
    error = RowError(
        row, f"cannot be written by the tokenizer's chat template ({first_line(cause)}): correct it"
    )
    error.__cause__ = cause
    return error


def tokenized(text: str, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Encode a text that has its special tokens already."""
    return tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
