"""Scores and texts are cached by the contents of the request, so that an evaluation goes on where it was.

A file belongs to weights and settings, both in its name. A line that a killed run has not finished is left
out, and computed again.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..training.disk import replace_text
from .request import Request, Score, Scorer


class AnswerCache:
    """Answers by their keys, in a file of JSON lines that only grows; it is read with the first request."""

    def __init__(self, file: Path):
        self.file = file

    @cached_property
    def answers(self) -> dict[str, Any]:
        """What the file holds, and what has been found since."""
        if not self.file.exists():
            return {}
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            replace_text(self.file, "".join(lines[:-1]))
            del lines[-1]
        return dict(json.loads(line) for line in lines)

    def get(self, keys: Sequence[str], find: Callable[[list[int]], Iterator[tuple[int, Any]]]) -> list[Any]:
        """Return the answer to every key; what is not known is computed, and kept at once.

        Args:
            keys: Of the requests; equal ones are computed once.
            find: Given numbers of requests, yields places in that list and answers, which JSON can hold.
        """
        unknown = list({key: number for number, key in enumerate(keys) if key not in self.answers}.values())
        if unknown:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as lines:
                bar = tqdm(
                    find(unknown), "answers", len(unknown), disable=None, leave=False, dynamic_ncols=True
                )
                for place, answer in bar:
                    key = keys[unknown[place]]
                    self.answers[key] = answer
                    lines.write(json.dumps([key, answer]) + "\n")
                    lines.flush()
        return [self.answers[key] for key in keys]


class ScoreCache:
    """A scorer with a cache.

    Args:
        scorer: Scores what is not known.
        file: Where scores are kept.
    """

    def __init__(self, scorer: Scorer, file: Path):
        self.scorer, self.answers = scorer, AnswerCache(file)
        self.num_scored = 0
        """Requests that the model has read."""

    def score_all(self, requests: Sequence[Request]) -> list[Score]:
        """Return the scores in the order of the requests."""

        def find(numbers: list[int]) -> Iterator[tuple[int, Any]]:
            self.num_scored += len(numbers)
            for place, score in self.scorer.score([requests[number] for number in numbers]):
                yield place, [require_numbers(score.log_likelihoods), score.is_greedy]

        answers = self.answers.get([request.digest for request in requests], find)
        return [Score(tuple(values), is_greedy) for values, is_greedy in answers]


def require_numbers(log_likelihoods: Sequence[float]) -> list[float]:
    """Return the scores of an answer's tokens, or raise a `ValueError` if one is no number."""
    if any(value != value for value in log_likelihoods):
        raise ValueError(
            f"the model gives an answer the log-likelihoods {list(log_likelihoods)!r:.60}: its numbers "
            f"overflow, so set prompting.precision=fp32, and check the model with tercet doctor"
        )
    return list(log_likelihoods)


def name_of_cache(*settings: object) -> str:
    """Name the file of what a model computes with these settings."""
    return sha256(repr(settings).encode()).hexdigest()[:16] + ".jsonl"
