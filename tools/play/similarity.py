"""Similar texts: texts become vectors, whose cosine says how near they are.

A fine-tuned model of sentence vectors gives its own. Of other models, the states of the last layer are
pooled: their mean (Reimers and Gurevych, 2019, section 3), or what the model's sentence-transformers settings
name.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from ...finetune.tasks.ranking import Ranking as SearchTask
from ...modeling.saved.sentence_vectors import SentenceVectors, find_vectors
from ...reports.blocks import Entry, Note, Ranking, Result
from .ability import MOST_ANSWERS, Ability, Field, TextField, lines_of
from .loaded_model import LoadedModel

TEXTS = """\
How do I sort a list?
The list is empty.
Write the numbers in ascending order.
The dog sleeps in the garden.
An error is raised if the file does not exist.
A cat lies on the sofa."""


class FindSimilar(Ability):
    """The texts that are nearest to one."""

    name = "similar"
    title = "Similar texts"
    action = "Find similar texts"
    about = (
        "Ranks your texts by their similarity to the first one. The number is the cosine of two vectors: 1 "
        "for the same direction, 0 for nothing in common."
    )

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        # One that was fine-tuned for another task has lost states that can be compared.
        return model.task is None or isinstance(model.task, SearchTask)

    @property
    def fields(self) -> Sequence[Field]:
        return [
            TextField("query", "Look for"),
            TextField("texts", "Among these texts, one in a line", lines=8),
        ]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        return [
            ["Put the items in order.", TEXTS],
            ["A pet is resting.", TEXTS],
            ["A missing document", TEXTS],
        ]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        query, others = texts[0], lines_of(texts[1])
        if len(others) > MOST_ANSWERS:
            raise ValueError(f"there are {len(others)} texts: write at most {MOST_ANSWERS} lines")
        told = self.told or SentenceVectors("mean")
        asked = self.vectors([told.query_prompt + query])
        cosines = (asked @ self.vectors([told.document_prompt + text for text in others]).T)[0].tolist()
        ranked = sorted(zip(others, cosines, strict=True), key=lambda pair: -pair[1])
        results: list[Result] = [
            Ranking("Most similar first", [Entry(text, value, is_share=False) for text, value in ranked])
        ]
        if not self.is_trained:
            results.append(
                Note(
                    f"{self.model.title} was not trained for similarity: its cosines lie close together, and "
                    "only their order says something."
                )
            )
        return results

    @property
    def is_trained(self) -> bool:
        """Whether the vectors were trained to be compared."""
        return self.gives_vectors or self.told is not None

    @property
    def gives_vectors(self) -> bool:
        return type(self.model.model).__name__.endswith("ForSentenceEmbedding")

    def vectors(self, texts: Sequence[str]) -> Tensor:
        """Return a vector of length 1 for each text, (texts, C)."""
        return torch.stack([self.vector(text) for text in texts])

    def vector(self, text: str) -> Tensor:
        """Return the vector of a text, of length 1, (C)."""
        inputs = self.model.inputs(text)
        if self.gives_vectors:
            return self.model.model(**inputs).sentence_embeddings[0].float()
        encoder = self.model.model
        encoder = encoder.get_encoder() if self.model.member == "seq2seq" else encoder.base_model
        states = encoder(**inputs).last_hidden_state[0].float()
        pooling = self.told.pooling if self.told else "mean"
        pooled = {"mean": states.mean(dim=0), "first": states[0], "last": states[-1]}[pooling]
        return F.normalize(pooled, dim=0)

    @cached_property
    def told(self) -> SentenceVectors | None:
        """What the model's folder says of how its vectors are made, if it does."""
        return find_vectors(self.model.run.model, "try it in sentence-transformers")
