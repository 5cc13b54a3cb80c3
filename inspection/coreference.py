"""Which heads look from a pronoun to what it stands for: a probe, beside what distance alone finds.

Sentences come in pairs that differ behind "because" alone, and whose pronouns stand for different nouns: "The
animal did not cross the street because it was too tired", "... too wide". A rule that always takes the nearer
noun, or the first one, is right in one of the two, 50 % of all, whatever the distances are (as in Levesque,
Davis and Morgenstern, 2012). So is a head that does not know what follows the pronoun. In some pairs, the
pronoun itself decides, by number or gender.

The best of many heads is better than 50 % by chance. Two baselines say by how much: the score that the best
of as many coins exceeds once in twenty times, and the score of a head that was chosen by half of the pairs,
on the other half.

Shapes: L attention modules, H heads, P pairs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from scipy.stats import binom
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .attention_maps import attention_maps, inputs_of


class Pair(NamedTuple):
    """Two sentences that begin alike; the first word of each ending is the pronoun.

    Args:
        beginning: What both begin with.
        first: The noun that the pronoun of the first sentence stands for.
        second: That of the second sentence.
        of_first: Ending of the first sentence.
        of_second: Ending of the second.
    """

    beginning: str
    first: str
    """The noun that the pronoun of the first sentence stands for."""
    second: str
    of_first: str
    of_second: str


SENTENCES = """
The [animal] did not cross the [street] because | it was too tired. | it was too wide.
The [ladder] did not reach the [window] because | it was too short. | it was too high.
The [truck] could not pass the [tunnel] because | it was too tall. | it was too low.
The [bottle] leaked onto the [letter] until | it was empty. | it was unreadable.
The [rope] broke under the [crate] because | it was worn. | it was heavy.
The [dog] chased the [cat] until | it gave up. | it was caught.
The [knife] did not cut the [bread] because | it was blunt. | it was frozen.
The [boat] could not enter the [harbour] because | it was too large. | it was closed.
The [storm] damaged the [roof] because | it was violent. | it was rotten.
The [chair] did not fit under the [table] because | it was too high. | it was too low.
The [shirt] did not fit into the [drawer] because | it was too thick. | it was too full.
The [plant] stood behind the [stone] because | it needed shade. | it gave shade.
The [train] waited for the [ferry] because | it was early. | it was late.
The [fox] could not catch the [hare] because | it was too slow. | it was too fast.
The [bus] could not climb the [hill] because | it was overloaded. | it was too steep.
The [teacher] thanked the [pupil] because | she had received help. | she had helped.
The [nurse] called the [doctor] because | she needed advice. | she knew the answer.
The [guard] let the [visitor] in because | he had checked a list. | he was on a list.
The [singer] hired the [drummer] because | she needed a band. | she played so well.
The [cook] blamed the [waiter] because | he had to wait. | he had been slow.
The [boys] thanked the [nurse] because | they were polite. | she was kind.
The [queen] visited the [soldiers] because | she was curious. | they were brave.
The [parents] drove the [girl] home after | they had eaten. | she had eaten.
The [king] trusted the [princess] because | he was old. | she was wise.
The [uncle] called the [twins] before | he went to bed. | they went to bed.
The [actress] praised the [boy] because | she was generous. | he sang well.
The [pilots] answered the [mayor] when | they had landed. | he had finished.
The [waitress] told the [man] that | she was hungry. | he was late.
"""
"""A pair in each line: what both sentences begin with, its nouns in brackets, and how each ends.

Written for this probe: 20 that the ending decides, then 8 that the pronoun decides.
"""


def pairs_of(lines: str) -> list[Pair]:
    """Read pairs of sentences, one in a line.

    >>> pairs_of("The [cup] hit the [box] because | it fell. | it stood there.")
    [Pair(beginning='The cup hit the box because', first='cup', second='box', of_first='it fell.', \
of_second='it stood there.')]
    """
    parts = ([part.strip() for part in line.split("|")] for line in lines.strip().splitlines())
    return [
        Pair(re.sub(r"[\[\]]", "", beginning), *re.findall(r"\[(.+?)\]", beginning), *endings)
        for beginning, *endings in parts
    ]


PAIRS = pairs_of(SENTENCES)
"""The shipped pairs."""

Reader = Literal["pronoun", "end"]
"""Whose attention is read: the pronoun's, or the last token's."""


@dataclass(frozen=True)
class CoreferenceScores:
    """What each head finds.

    Args:
        is_right: 1 where a head gives the right noun more weight, 0.5 where both have the same, (L, H, P, 2).
        nearest: Share of pronouns that stand for the nearer noun.
        first: Share that stand for the first one.
        reader: Whose attention was read.
    """

    is_right: Tensor
    nearest: float
    first: float
    reader: Reader

    @property
    def accuracy(self) -> Tensor:
        """Share of sentences in which each head finds the noun, (L, H)."""
        return self.is_right.mean(dim=(2, 3))

    @property
    def consistency(self) -> Tensor:
        """Share of pairs in both of whose sentences it does, (L, H); 25 % by guessing, 0 by distance."""
        return (self.is_right == 1).all(dim=3).float().mean(dim=2)

    @property
    def best_by_chance(self) -> float:
        """Accuracy that the best of as many heads that guess exceeds once in twenty times."""
        num_heads, num_sentences = self.accuracy.numel(), self.is_right[0, 0].numel()
        return float(binom.ppf(0.95 ** (1 / num_heads), num_sentences, 0.5)) / num_sentences

    @property
    def held_out(self) -> float:
        """Accuracy of the head that is best on every other pair, on the others; the mean of both ways."""
        halves = self.is_right.flatten(0, 1)
        parts = halves[:, ::2].mean(dim=(1, 2)), halves[:, 1::2].mean(dim=(1, 2))
        return float(parts[1][parts[0].argmax()] + parts[0][parts[1].argmax()]) / 2


def coreference_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[Pair] = PAIRS,
    reader: Reader | None = None,
) -> CoreferenceScores:
    """Measure for each head whether it looks at the noun that a pronoun stands for.

    Args:
        model: A model with self-attention; of a sequence-to-sequence model, the encoder's counts.
        tokenizer: Its tokenizer, which knows where tokens stand in the text.
        pairs: Pairs of sentences; the shipped ones are English.
        reader: By default the pronoun, but the last token of a decoder, whose pronoun does not see the end.

    Raises:
        ValueError: The tokenizer does not say where tokens stand, or a noun or pronoun has no token.
    """
    found, is_nearest, is_first = [], [], []
    for pair in pairs:
        for ending in (pair.of_first, pair.of_second):
            text = f"{pair.beginning} {ending}"
            places = [(text.index(f" {noun} ") + 1, len(noun)) for noun in (pair.first, pair.second)]
            pronoun = (len(pair.beginning) + 1, len(ending.split()[0]))
            ids, (one, other, own) = tokens_at(tokenizer, text, [*places, pronoun])
            maps = attention_maps(model, inputs_of(model, torch.tensor([ids], device=model.device)))
            weights = torch.stack([each[0] for each in maps.get("self") or maps["encoder"]])  # (L, H, T, T)
            if reader is None:
                reader = "end" if bool((weights.triu(1) == 0).all()) else "pronoun"
            read = weights[:, :, own[-1] if reader == "pronoun" else -1]  # (L, H, T)
            right, wrong = (one, other) if ending is pair.of_first else (other, one)
            is_first.append(right[0] < wrong[0])
            is_nearest.append(abs(right[-1] - own[0]) < abs(wrong[-1] - own[0]))
            found.append(0.5 + 0.5 * (read[..., right].sum(-1) - read[..., wrong].sum(-1)).sign())
    is_right = torch.stack(found, dim=-1).float().cpu().unflatten(-1, (len(pairs), 2))
    nearest, first = (sum(each) / len(found) for each in (is_nearest, is_first))
    return CoreferenceScores(is_right, nearest, first, reader or "pronoun")


def tokens_at(
    tokenizer: PreTrainedTokenizerBase, text: str, places: Sequence[tuple[int, int]]
) -> tuple[list[int], list[list[int]]]:
    """Return the ids of a text, and the tokens at each place, which is a first character and a length."""
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} does not say where tokens stand: load a fast tokenizer")
    encoded: Any = tokenizer(text, return_offsets_mapping=True)
    spans = encoded["offset_mapping"]
    tokens = [
        [
            number
            for number, (begin, end) in enumerate(spans)
            if begin < start + length and end > start and end > begin
        ]
        for start, length in places
    ]
    if not all(tokens):
        raise ValueError(
            f"a noun or the pronoun of {text!r} has no token: pass pairs in the model's language"
        )
    return encoded["input_ids"], tokens
