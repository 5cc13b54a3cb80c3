"""A model with what a task needs of it: prompts become requests, requests scores."""

from collections.abc import Sequence
from typing import Any

from ...data.files.template_program import Row
from ..recipe import PromptingRecipe
from ..scoring.score_cache import ScoreCache
from .boundary import Prompt
from .prompting import Prompter, Query
from .request import Request, Score


class PromptedModel:
    """A model that is prompted."""

    def __init__(self, prompter: Prompter, prompting: PromptingRecipe, columns: Row):
        self.subject, self.prompter = prompter.subject, prompter
        self.prompting, self.columns = prompting, columns

    def score_cache(self) -> ScoreCache:
        """Return what scores requests."""
        how = self.prompting
        scorer = self.subject.scorer(how.tokens_at_once, how.pseudo_log_likelihood, one_by_one=how.one_by_one)
        return ScoreCache(scorer)

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
