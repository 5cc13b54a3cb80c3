"""Scores and texts by the contents of the request: equal requests of an evaluation are computed once."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tqdm import tqdm

from ..prompts.request import Request, Score, Scorer


class AnswerCache:
    """Answers by their keys."""

    def __init__(self) -> None:
        self.answers = dict[str, Any]()

    def get(self, keys: Sequence[str], find: Callable[[list[int]], Iterator[tuple[int, Any]]]) -> list[Any]:
        """Return the answer to every key; what is not known is computed, and kept.

        Args:
            keys: Keys of the requests; equal ones are computed once.
            find: Given numbers of requests, yields places in that list and answers.
        """
        unknown = list({key: number for number, key in enumerate(keys) if key not in self.answers}.values())
        if unknown:
            bar = tqdm(find(unknown), "answers", len(unknown), disable=None, leave=False, dynamic_ncols=True)
            for place, answer in bar:
                self.answers[keys[unknown[place]]] = answer
        return [self.answers[key] for key in keys]


class ScoreCache:
    """A scorer whose scores are kept."""

    def __init__(self, scorer: Scorer):
        self.scorer, self.answers = scorer, AnswerCache()

    def score_all(self, requests: Sequence[Request]) -> list[Score]:
        """Return the scores in the order of the requests."""

        def find(numbers: list[int]) -> Iterator[tuple[int, Score]]:
            for place, score in self.scorer.score([requests[number] for number in numbers]):
                if any(value != value for value in score.log_likelihoods):  # no numbers
                    raise ValueError(
                        f"the model gives an answer the log-likelihoods "
                        f"{list(score.log_likelihoods)!r:.60}: its numbers overflow, so set "
                        f"prompting.precision=fp32, and check the model with tercet doctor"
                    )
                yield place, score

        return self.answers.get([request.digest for request in requests], find)
