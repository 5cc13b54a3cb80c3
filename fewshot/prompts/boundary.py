"""Where a context ends and an answer begins, in tokens.

Context and answer are written as one text and cut as one text, as the model has learned to read it. The
answer begins at the first token that is not the same without it: " yes" begins with its space where a
vocabulary has the space within the token, and a token that joins the two belongs to the answer. All answers
to a query begin at the same token, so that their scores compare. Of encoders, which read on behind the
answer, the tokens are found by their characters.

Where nothing is joined this is what lm-evaluation-harness does, which encodes the context by itself and takes
as many tokens off the whole; where something is, that would score other tokens than the model reads.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase

from ...data.tokenizers.special_tokens import DroppedText, any_text
from ...data.tokenizers.words import token_spans, word_starts
from ..scoring.prefix_tree import common_length
from .request import Request

Opening = Literal["tokenizer", "bos", "none"]
"""What opens a text: what the tokenizer puts there, its bos token, or nothing."""

SENTINEL, NEXT_SENTINEL = "<extra_id_0>", "<extra_id_1>"

TEXTS_AT_ONCE = 1000
"""Texts that are cut together: what a tokenizer tells of each takes a hundred times its room."""


@dataclass(frozen=True)
class Prompt:
    """A context, and texts that may follow it."""

    context: str
    answers: tuple[str, ...]
    """Texts, one of which follows."""
    suffix: str = ""
    """What follows any of them; only encoders read it."""


@dataclass(frozen=True)
class SpecialTokenPolicy:
    """What stands around texts beside themselves."""

    opening: Opening = "tokenizer"
    ends_answer: bool = False
    """Whether the end-of-sequence token belongs to the answer, and is scored."""
    sentinel: bool = False
    """Whether prompts of sequence-to-sequence models are like span corruption: the source ends in
    `<extra_id_0>`, and the answer follows it in the target, up to `<extra_id_1>` where it is generated."""


class PromptEncoder(ABC):
    """Turns prompts into requests. Abstract: each member reads them in its own form."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, policy: SpecialTokenPolicy):
        self.tokenizer, self.policy = tokenizer, policy
        self.tell_of_dropped = DroppedText(tokenizer)
        opening, self.closing = frame_of(tokenizer)
        if policy.opening == "bos":
            instead = "set prompting.opening=tokenizer, "
            opening = (required_id(tokenizer, "bos", "prompting.opening is bos", instead),)
        self.opening = opening if policy.opening != "none" else ()
        self.lead: tuple[int, ...] = ()
        self.ending: tuple[int, ...] = ()
        if policy.ends_answer:
            self.ending = (required_id(tokenizer, "eos", "prompting.ends_answer"),)

    @abstractmethod
    def encode(self, prompts: Sequence[Prompt]) -> list[list[Request]]:
        """Return a request for each answer of each prompt."""

    def context_of(self, context: str) -> tuple[int, ...]:
        """Return the ids of a context that the model continues."""
        return self.beginning(self.ids_of([context])[0])

    def ids_of(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Cut texts, with nothing around them."""
        if not texts:
            return []
        self.tell_of_dropped(texts)
        encoded = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return [tuple(ids) for ids in encoded]  # pyright: ignore[reportArgumentType]

    def beginning(self, context: tuple[int, ...]) -> tuple[int, ...]:
        """Open a context; one that is empty begins with the bos token, or that of the end, as in training."""
        if opened := self.opening + context:
            return opened
        for role in ("bos", "eos", "cls"):
            if (token := getattr(self.tokenizer, f"{role}_token_id", None)) is not None:
                return (token,)
        raise ValueError(
            "the context is empty, and the tokenizer has neither a bos nor an eos token to start with: set "
            "task.description, or add a bos token to the tokenizer"
        )


class DecoderPrompts(PromptEncoder):
    """Prompts of decoders."""

    def encode(self, prompts: Sequence[Prompt]) -> list[list[Request]]:
        contexts = self.ids_of([prompt.context for prompt in prompts])
        wholes = iter(self.ids_of([p.context + answer for p in prompts for answer in p.answers]))
        requests = []
        for prompt, context in zip(prompts, contexts, strict=True):
            texts = [next(wholes) for _ in prompt.answers]
            begin = min((common_length(context, text) for text in texts), default=0)
            opened = self.beginning(context[:begin])
            for answer, text in zip(prompt.answers, texts, strict=True):
                require_tokens(text[begin:], answer)
            requests.append([Request(opened, text[begin:] + self.ending) for text in texts])
        return requests


class Seq2SeqPrompts(PromptEncoder):
    """Prompts of sequence-to-sequence models: the context is the source, the answer the target."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        policy: SpecialTokenPolicy,
        start_id: int | None,
        forced_id: int | None = None,
    ):
        super().__init__(tokenizer, policy)
        if start_id is None:
            raise ValueError(
                "the model has no decoder_start_token_id: set it in its config.json (T5: the pad token's id, "
                "BART: the eos token's)"
            )
        # BART's targets begin with a token of their own behind the start, mBART's with their language.
        self.lead = (start_id,) if forced_id is None else (start_id, forced_id)
        self.sentinel: tuple[int, ...] = ()
        if policy.sentinel:
            sentinel = tokenizer.get_vocab().get(SENTINEL)
            if sentinel is None:
                raise ValueError(
                    f"prompting.sentinel is true, but the tokenizer has no {SENTINEL}: set "
                    "prompting.sentinel=false"
                )
            self.lead, self.sentinel = (*self.lead, sentinel), (sentinel,)

    def context_of(self, context: str) -> tuple[int, ...]:
        return self.source(self.ids_of([context])[0])

    def source(self, context: tuple[int, ...]) -> tuple[int, ...]:
        return self.opening + context + self.sentinel + self.closing or self.beginning(())

    def encode(self, prompts: Sequence[Prompt]) -> list[list[Request]]:
        contexts = self.ids_of([prompt.context for prompt in prompts])
        answers = iter(self.ids_of([answer for prompt in prompts for answer in prompt.answers]))
        requests = []
        for prompt, context in zip(prompts, contexts, strict=True):
            source = self.source(context)
            own = [require_tokens(next(answers), answer) for answer in prompt.answers]
            requests.append([Request(source, ids + self.ending, lead=self.lead) for ids in own])
        return requests


class EncoderPrompts(PromptEncoder):
    """Prompts of encoders: the answer stands in its text, in the frame that the tokenizer gives it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, policy: SpecialTokenPolicy):
        super().__init__(tokenizer, policy)
        if not tokenizer.is_fast:
            raise ValueError(
                "locating answers for an encoder needs character offsets, which only fast tokenizers have: "
                "save the model with a fast tokenizer (tokenizer.json)"
            )

    def encode(self, prompts: Sequence[Prompt]) -> list[list[Request]]:
        texts = [prompt.context + answer + prompt.suffix for prompt in prompts for answer in prompt.answers]
        encodings = self.encodings_of(texts)
        return [
            [self.locate(prompt, answer, next(encodings)) for answer in prompt.answers] for prompt in prompts
        ]

    def encodings_of(self, texts: Sequence[str]) -> Iterator[Encoding]:
        """Cut texts, some at a time, and yield each with the characters and the cuts of its tokens."""
        for begin in range(0, len(texts), TEXTS_AT_ONCE):
            part = list(texts[begin : begin + TEXTS_AT_ONCE])
            self.tell_of_dropped(part)
            encoded = self.tokenizer(
                part, add_special_tokens=False, return_offsets_mapping=True, verbose=False
            )
            yield from (encoded[number] for number in range(len(part)))  # pyright: ignore[reportReturnType]

    def locate(self, prompt: Prompt, answer: str, encoding: Encoding) -> Request:
        """Find the tokens of an answer in its text, and the words that they belong to."""
        begin, end = len(prompt.context), len(prompt.context) + len(answer)
        ids, (starts, ends) = tuple(encoding.ids), token_spans(encoding.offsets)
        inside = np.flatnonzero((starts < end) & (ends > begin) & (starts < ends)).tolist()
        require_tokens(tuple(inside), answer)
        first, last = inside[0], inside[-1] + 1
        text = prompt.context + answer + prompt.suffix
        return Request(
            self.opening + ids[:first],
            ids[first:last],
            ids[last:] + self.closing,
            words=words_of(text, starts, encoding.word_ids)[first:last],
        )


def words_of(text: str, starts: np.ndarray, cuts: Sequence[int | None]) -> tuple[int, ...]:
    """Number the words that the tokens of a text belong to.

    A word begins where one begins in the text, and where the tokenizer cuts before its model. The latter
    alone, as in the code of Kauf and Ivanova (2023), suffices for BERT and RoBERTa. What SentencePiece calls
    a word has its marks with it, or is a whole text; in Chinese it may be a clause of a byte-level tokenizer.

    Args:
        text: What was tokenized.
        starts: The first character of each token (N,).
        cuts: What the tokenizer counts as the word of each token (`word_ids`), `None` for added tokens.
    """
    begins = word_starts(text, starts)
    begins[1:] |= np.array([one != other for one, other in pairwise(cuts)], dtype=bool)
    return tuple(begins.cumsum().tolist())


def frame_of(tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that a call of a tokenizer puts before and behind a text."""
    text = any_text(tokenizer)
    inner: Any = tokenizer(text, add_special_tokens=False)["input_ids"]
    framed: Any = tokenizer(text)["input_ids"]
    for begin in range(len(framed) - len(inner) + 1):
        if framed[begin : begin + len(inner)] == inner:
            return tuple(framed[:begin]), tuple(framed[begin + len(inner) :])
    raise ValueError(
        "the tokenizer gives other tokens for a text with special tokens than without: name a model whose "
        "tokenizer adds special tokens around a text and does not change it"
    )


def required_id(tokenizer: PreTrainedTokenizerBase, role: str, needed_by: str, instead: str = "") -> int:
    """Return the id of a special token by its role, or say who misses it, and what may be done instead."""
    token_id = getattr(tokenizer, f"{role}_token_id")
    if token_id is None:
        raise ValueError(
            f"{needed_by}, but the tokenizer has no {role}_token: {instead}add one "
            f"(tokenizer.add_special_tokens({{'{role}_token': ...}})), or name another model"
        )
    return token_id


def require_tokens(ids: tuple[int, ...], answer: str) -> tuple[int, ...]:
    """Return the tokens of an answer, or raise a `ValueError` if there are none."""
    if not ids:
        raise ValueError(
            f"the answer {answer!r} has no tokens of its own: correct the row or the template, so that the "
            f"answer has text"
        )
    return ids
