"""What finished models do with texts, for people to read: fill masks and continue.

Whatever is shown is chosen by a rule and never by success: first the prompts of `prompts.py`, then texts that
stand evenly spaced in the held-out documents, and in each, the same position is shown. Models come from the
Auto classes, as any user's would.

Legend: V vocabulary, T tokens of a text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..text.sentences import split_sentences
from ..text.tokenizer import frame_ids

SHORTEST_WORD = 5
"""Letters of a word that is worth hiding: shorter ones are mostly grammar."""

NUM_GUESSES = 5
PROMPT_WORDS = 14
CONTINUATION_TOKENS = 32
SEED = 0


@dataclass(frozen=True)
class FilledMask:
    """A sentence with one word hidden, and what a model thinks that it was."""

    before: str
    truth: str
    after: str
    guesses: Sequence[tuple[str, float]]
    """The likeliest words with their probabilities, best first."""
    truth_as_token: str
    """The truth as guesses are spelled."""


@dataclass(frozen=True)
class Continuation:
    """The beginning of a text, how it goes on, and how a model goes on."""

    prompt: str
    truth: str
    """Empty where a prompt is made up."""
    greedy: str
    sampled: str


Sample = FilledMask | Continuation
"""Anything that a model did for people to read."""


def evenly_spaced(things: Sequence, count: int) -> list:
    """Pick `count` things at equal distances, the middle of each stretch; all of them if they are fewer."""
    count = min(count, len(things))
    return [things[(2 * number + 1) * len(things) // (2 * count)] for number in range(count)]


def fill_masks(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], count: int
) -> list[FilledMask]:
    """Hide a word in each of some sentences: the one nearest the middle that is one token.

    Args:
        model: From `AutoModelForMaskedLM`.
        tokenizer: Its own.
        documents: Held-out texts.
        count: How many sentences, of 10 to 30 words; the model also reads the sentence that follows.
    """
    sentences = list(neighbours(documents, tokenizer))
    return [fill_mask(model, tokenizer, *sentence) for sentence in evenly_spaced(sentences, count)]


def neighbours(
    documents: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, str, int, int]]:
    """Find sentences to hide a word in, each with the next one, and where that word begins and ends."""
    for text in documents:
        sentences = [sentence.strip() for sentence in split_sentences(text)]
        for sentence, following in pairwise(sentences):
            if 10 <= len(sentence.split()) <= 30 and (place := middle_word(sentence, tokenizer)) is not None:
                yield sentence, following, *place


def middle_word(sentence: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int] | None:
    """Find the word nearest the middle of a sentence that is one token of five letters or more."""
    encoding = tokenizer(sentence, add_special_tokens=False, return_offsets_mapping=True)
    words = encoding.word_ids()
    whole = [
        (start, stop)
        for word, (start, stop) in zip(words, encoding["offset_mapping"], strict=True)
        if words.count(word) == 1 and stop - start >= SHORTEST_WORD and sentence[start:stop].isalpha()
    ]
    return min(whole, key=lambda place: abs(sum(place) - len(sentence)), default=None)


def long_words(tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return which tokens are words of five letters or more, (V,)."""
    words = [decode(tokenizer, [token]).strip() for token in range(len(tokenizer))]
    return torch.tensor([len(word) >= SHORTEST_WORD and word.isalpha() for word in words])


@torch.no_grad()
def fill_mask(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentence: str,
    following: str,
    start: int,
    stop: int,
    *,
    allowed: Tensor | None = None,
) -> FilledMask:
    """Hide a word of a sentence and predict it; the model also reads what follows the sentence.

    Args:
        model: From `AutoModelForMaskedLM`.
        tokenizer: Its own.
        sentence: With the word.
        following: The next sentence, or nothing.
        start: Where the word begins.
        stop: Where it ends.
        allowed: Which tokens may be guessed, (V,); all if left out.
    """
    hidden = f"{sentence[:start]}{tokenizer.mask_token}{sentence[stop:]} {following}".strip()
    inputs = tokenizer(hidden, truncation=True, return_tensors="pt").to(model.device)
    logits = model(**inputs).logits[inputs["input_ids"] == tokenizer.mask_token_id][0]  # (V,)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    best = logits.float().softmax(dim=-1).topk(NUM_GUESSES)
    guesses = [
        (decode(tokenizer, [token]).strip(), probability)
        for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    truth = sentence[start:stop]
    as_token = decode(tokenizer, tokenizer(truth, add_special_tokens=False)["input_ids"]).strip()
    return FilledMask(sentence[:start], truth, sentence[stop:], guesses, as_token)


def paragraphs(documents: Sequence[str], fewest_words: int) -> list[str]:
    """List the paragraphs of some words or more."""
    return [line for text in documents for line in text.splitlines() if len(line.split()) >= fewest_words]


@torch.no_grad()
def continue_texts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], count: int
) -> list[Continuation]:
    """Let a model go on from the first words of paragraphs, by its best guesses and by chance.

    Args:
        model: From `AutoModelForCausalLM`.
        tokenizer: Its own.
        documents: Held-out texts.
        count: How many paragraphs, of 40 words or more.
    """
    return [
        continue_text(model, tokenizer, paragraph)
        for paragraph in evenly_spaced(paragraphs(documents, fewest_words=40), count)
    ]


def continue_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, paragraph: str) -> Continuation:
    """Let a model go on from the first words of a paragraph."""
    words = paragraph.split()
    prompt, rest = " ".join(words[:PROMPT_WORDS]), " ".join(words[PROMPT_WORDS:])
    truth = tokenizer(rest, add_special_tokens=False)["input_ids"][:CONTINUATION_TOKENS]
    return go_on_from(model, tokenizer, prompt, decode(tokenizer, truth))


@torch.no_grad()
def go_on_from(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, truth: str = ""
) -> Continuation:
    """Let a model go on from a prompt, to the end of the paragraph at most."""
    ids = [*frame_ids(tokenizer)[0], *tokenizer(prompt, add_special_tokens=False)["input_ids"]]
    inputs = torch.tensor([ids], device=model.device)

    def go_on(**options) -> str:
        torch.manual_seed(SEED)
        written = cast(Any, model).generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=CONTINUATION_TOKENS,
            pad_token_id=tokenizer.pad_token_id,
            **options,
        )
        text = decode(tokenizer, written[0, len(ids) :], skip_special_tokens=True)
        return text.lstrip("\n").partition("\n")[0]

    return Continuation(
        prompt,
        truth,
        go_on(do_sample=False),
        go_on(do_sample=True, temperature=0.8, top_p=0.9),
    )


def decode(tokenizer: PreTrainedTokenizerBase, ids: Any, **options: bool) -> str:
    """Write the ids of one text."""
    return cast(str, tokenizer.decode(ids, **options))
