"""What finished models do with held-out text, for people to read: fill masks, judge pairs, continue, restore.

Whatever is shown is chosen by a rule and never by success: texts stand evenly spaced in the held-out
documents, and in each, the same position is shown. Models come from the Auto classes, as any user's would.

Legend: V vocabulary, T tokens of a text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..objectives.span_corruption import SpanCorruption, splice
from ..text.sentences import split_sentences
from ..text.special_tokens import required_token_id, sentinel_ids
from ..text.tokenizer import frame_ids
from ..training.objective import Example

SHORTEST_WORD = 5
"""Letters of a word that is worth hiding: shorter ones are mostly grammar."""

NUM_GUESSES = 5
PROMPT_WORDS = 14
CONTINUATION_TOKENS = 32
PASSAGE_TOKENS = 45
RESTORED_TOKENS = 60
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
class JudgedPair:
    """Two passages, and how likely a model thinks that the second follows the first."""

    first: str
    second: str
    follows: bool
    probability: float


@dataclass(frozen=True)
class Continuation:
    """The beginning of a text, how it goes on, and how a model goes on."""

    prompt: str
    truth: str
    greedy: str
    sampled: str


@dataclass(frozen=True)
class RestoredSpans:
    """A text cut where spans begin and end: what stood there, and what a model wrote there."""

    pieces: Sequence[tuple[str, str | None]]
    """The true text, and the model's in its place; `None` where nothing was hidden."""


Sample = FilledMask | JudgedPair | Continuation | RestoredSpans
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


@torch.no_grad()
def fill_mask(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentence: str,
    following: str,
    start: int,
    stop: int,
) -> FilledMask:
    """Hide a word of a sentence and predict it."""
    hidden = f"{sentence[:start]}{tokenizer.mask_token}{sentence[stop:]}"
    inputs = tokenizer(hidden, following, truncation="only_second", return_tensors="pt").to(model.device)
    logits = model(**inputs).logits[inputs["input_ids"] == tokenizer.mask_token_id][0]  # (V,)
    best = logits.float().softmax(dim=-1).topk(NUM_GUESSES)
    guesses = [
        (decode(tokenizer, [token]).strip(), probability)
        for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    truth = sentence[start:stop]
    as_token = decode(tokenizer, tokenizer(truth, add_special_tokens=False)["input_ids"]).strip()
    return FilledMask(sentence[:start], truth, sentence[stop:], guesses, as_token)


@torch.no_grad()
def judge_pairs(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], count: int
) -> list[JudgedPair]:
    """Ask of pairs of passages whether they belong together: in turns a true pair, and the same one's first
    passage with the second one of another document.

    Args:
        model: From `AutoModelForNextSentencePrediction`.
        tokenizer: Its own.
        documents: Held-out texts.
        count: How many first passages; there are twice as many pairs.
    """
    pairs = [pair for text in documents if (pair := passages(text, tokenizer)) is not None]
    chosen = evenly_spaced(pairs, count)
    judged = []
    for (first, second), (_, other) in zip(chosen, [*chosen[1:], *chosen[:1]], strict=True):
        for follows, candidate in ((True, second), (False, other)):
            inputs = tokenizer(first, candidate, truncation=True, return_tensors="pt").to(model.device)
            probability = model(**inputs).logits[0].float().softmax(dim=-1)[0].item()
            judged.append(JudgedPair(first, candidate, follows, probability))
    return judged


def passages(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[str, str] | None:
    """Cut two passages of whole sentences from the middle of a text, the second right after the first."""
    sentences = split_sentences(text)
    lengths = [len(ids) for ids in tokenizer(sentences, add_special_tokens=False)["input_ids"]]
    found, start = [], len(sentences) // 2
    for _ in range(2):
        stop, tokens = start, 0
        while stop < len(sentences) and tokens < PASSAGE_TOKENS:
            tokens, stop = tokens + lengths[stop], stop + 1
        if tokens < PASSAGE_TOKENS:
            return None
        found.append(" ".join("".join(sentences[start:stop]).split()))
        start = stop
    return found[0], found[1]


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
    prompt = " ".join(words[:PROMPT_WORDS])
    ids = [*frame_ids(tokenizer)[0], *tokenizer(prompt, add_special_tokens=False)["input_ids"]]
    inputs = torch.tensor([ids], device=model.device)
    rest = " ".join(words[PROMPT_WORDS:])
    truth = tokenizer(rest, add_special_tokens=False)["input_ids"][:CONTINUATION_TOKENS]

    def go_on(**options) -> str:
        torch.manual_seed(SEED)
        written = cast(Any, model).generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=CONTINUATION_TOKENS,
            pad_token_id=tokenizer.pad_token_id,
            **options,
        )
        return decode(tokenizer, written[0, len(ids) :], skip_special_tokens=True)

    return Continuation(
        prompt,
        decode(tokenizer, truth),
        go_on(do_sample=False),
        go_on(do_sample=True, temperature=0.8, top_p=0.9),
    )


@torch.no_grad()
def restore_spans(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], count: int
) -> list[RestoredSpans]:
    """Hide spans of paragraphs as span corruption does, and let a model write them.

    Args:
        model: From `AutoModelForSeq2SeqLM`.
        tokenizer: Its own.
        documents: Held-out texts.
        count: How many paragraphs, of 30 words or more, cut to `RESTORED_TOKENS`.
    """
    chosen = evenly_spaced(paragraphs(documents, fewest_words=30), count)
    options = {"add_special_tokens": False, "truncation": True, "max_length": RESTORED_TOKENS}
    ids = [np.array(tokenizer(text, **options)["input_ids"]) for text in chosen]
    objective = SpanCorruption(tokenizer, model.config.decoder_start_token_id, longest=RESTORED_TOKENS)
    examples: list[Example] = [{"input_ids": row} for row in ids]
    restored = []
    for source, target in zip(*objective.pairs(examples, np.random.default_rng(SEED)), strict=True):
        written = cast(Any, model).generate(
            torch.tensor(source[None], device=model.device), max_new_tokens=len(target) + 8, do_sample=False
        )
        truth = pieces(tokenizer, source, target.tolist())
        guess = pieces(tokenizer, source, written[0, 1:].tolist())
        is_hidden = np.isin(source[source != tokenizer.eos_token_id], sentinel_ids(tokenizer))
        restored.append(
            RestoredSpans(
                [
                    (true, guessed if hidden else None)
                    for true, guessed, hidden in zip(truth, guess, is_hidden, strict=True)
                ]
            )
        )
    return restored


def pieces(tokenizer: PreTrainedTokenizerBase, source: np.ndarray, target: Sequence[int]) -> list[str]:
    """Put a target's runs into their places, and cut the text by the tokens of the source.

    A token's text depends on those before it (a space, half a character), so prefixes are compared.
    """
    signs, end = sentinel_ids(tokenizer), required_token_id(tokenizer, "eos", "span corruption")
    source = source[source != end]
    texts = [decode(tokenizer, splice(source[:stop], target, signs, end)) for stop in range(len(source) + 1)]
    return [text[len(earlier) :] for earlier, text in pairwise(texts)]


def decode(tokenizer: PreTrainedTokenizerBase, ids: Any, **options: bool) -> str:
    """Write the ids of one text."""
    return cast(str, tokenizer.decode(ids, **options))
