"""Requests: how likely is an answer in its context? And their scores.

Requests are ids, not text. The same ids with the same weights have the same score, so that no request is
scored twice (`fewshot/scoring/score_cache.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Literal

Hiding = Literal["original", "within_word", "whole_answer"]
"""Which tokens of an answer are masked together."""


@dataclass(frozen=True)
class Request:
    """An answer in its context, as ids."""

    context: tuple[int, ...]
    """What is read before the answer, with what opens a text; of a sequence-to-sequence model, the source."""
    answer: tuple[int, ...]
    """The tokens that are scored."""
    suffix: tuple[int, ...] = ()
    """What an encoder reads behind the answer, with what closes a text."""
    lead: tuple[int, ...] = ()
    """What a sequence-to-sequence model's decoder reads before the answer: its start token at least."""
    words: tuple[int, ...] = field(default=())
    """Number of the word that each token of the answer belongs to, for encoders."""

    @cached_property
    def ids(self) -> tuple[int, ...]:
        return self.context + self.answer + self.suffix

    @cached_property
    def digest(self) -> str:
        """Name the request by its contents."""
        parts = (self.context, self.answer, self.suffix, self.lead, self.words)
        return sha256(repr(parts).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Score:
    """How likely an answer is."""

    log_likelihoods: tuple[float, ...]
    """Log-likelihood of each token, in nats."""
    is_greedy: bool
    """Whether each token is likelier in its place than every other one; of equals, none is."""

    @property
    def total(self) -> float:
        return sum(self.log_likelihoods)


class Scorer(ABC):
    """Scores requests with a model in evaluation mode. Abstract: each member reads them in its own way."""

    @abstractmethod
    def score(self, requests: Sequence[Request]) -> Iterator[tuple[int, Score]]:
        """Yield the number and the score of every request, in the order in which they are found."""

    def score_all(self, requests: Sequence[Request]) -> list[Score]:
        found = dict(self.score(requests))
        return [found[number] for number in range(len(requests))]
