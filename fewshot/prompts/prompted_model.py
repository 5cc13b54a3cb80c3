"""A model with what a task needs of it: prompts become requests, requests scores or texts."""

from collections.abc import Sequence
from typing import Any

from ...data.files.template_program import Row
from ..recipe import PromptingRecipe
from ..scoring.score_cache import AnswerCache, ScoreCache
from ..scoring.writing import Writer
from ..subject import Subject
from .boundary import NEXT_SENTINEL, Prompt
from .prompting import Prompter, Query
from .request import Request, Score


class PromptedModel:
    """A model that is prompted.

    Args:
        subject: The model.
        prompter: Writes its prompts.
        recipe: How it is prompted.
        columns: A row, for the names of its columns.
    """

    def __init__(self, subject: Subject, prompter: Prompter, recipe: PromptingRecipe, columns: Row):
        self.subject, self.prompter, self.recipe, self.columns = subject, prompter, recipe, columns

    def score_cache(self) -> ScoreCache:
        """Return what scores requests.

        Raises:
            ValueError: The model is an encoder whose tokenizer has no mask.
        """
        recipe = self.recipe
        scorer = self.subject.scorer(
            recipe.tokens_at_once, recipe.pseudo_log_likelihood, one_by_one=recipe.one_by_one
        )
        return ScoreCache(scorer)

    def writer(self, stop: tuple[str, ...], max_new_tokens: int) -> Writer:
        """Return what continues contexts.

        Raises:
            ValueError: The model is an encoder.
        """
        stop = (*stop, NEXT_SENTINEL) if self.recipe.sentinel else stop
        lead = self.prompter.encoder.lead
        return Writer(self.subject, AnswerCache(), stop, max_new_tokens, self.recipe.tokens_at_once, lead)

    def encode(self, prompts: Sequence[Prompt]) -> list[list[Request]]:
        """Return the requests of prompts of which many are equal, cut where they are too long."""
        prompter, different = self.prompter, list(dict.fromkeys(prompts))
        requests = [
            [prompter.shortened(each, prompter.excess(own)) for each in own]
            for own in prompter.encoder.encode(different)
        ]
        found = dict(zip(different, requests, strict=True))
        return [found[prompt] for prompt in prompts]

    def describe_answers(self, query: Query, scores: Sequence[Score]) -> list[dict[str, Any]]:
        """Return of each answer which tokens were scored, and their log-likelihoods."""
        tokens_of = self.subject.tokenizer.convert_ids_to_tokens
        return [
            {
                "text": text,
                "tokens": tokens_of(list(request.answer)),
                "log_likelihoods": list(score.log_likelihoods),
            }
            for text, request, score in zip(query.item.answers, query.requests, scores, strict=True)
        ]
