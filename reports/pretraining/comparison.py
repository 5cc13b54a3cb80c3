"""What needs no learning, on the text on which a finished model was measured.

answers    the right ones, by whose frequency the best guess without context goes
trigram    interpolated Kneser-Ney on the training text; each token of whole documents after those before it
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np

from ...data.corpus import TokenizedCorpus
from ...data.documents import single_texts
from ...data.steps.batches import StepDataset
from ...data.steps.examples import ExampleSource
from ...data.steps.objective import IGNORE, Batch, Objective
from ...data.tokenizers.tokenizer import frame_ids
from ...pretraining.objectives.character_language_modeling import CharacterLanguageModeling, targets_of
from ...pretraining.text import TextReader, Texts
from ...training.evaluation import ratio
from ...training.recipe import TrainingRecipe
from ...training.token_objective import TokenObjective
from .baselines import TrigramModel

NEXT_TOKENS = ("causal_language_modeling", "hybrid_language_modeling")
"""The kinds of objectives some of whose targets a trigram predicts, too: those of the term `clm`."""

MOST_COUNTED = 20_000_000
"""Tokens of a training text that are counted: within five seconds, and less than a gigabyte."""

Answers = dict[str, np.ndarray]
"""The right answers of each term, in one row."""


def answers(objective: Objective, batches: Iterable[Batch]) -> Answers:
    """Collect the right answers of an objective's terms: first those on tokens, then those on pairs, if any.

    A model of characters has two terms of tokens, one for each direction.
    """
    found = []
    for batch in batches:
        if isinstance(objective, CharacterLanguageModeling):
            kinds = [targets[targets != IGNORE] for targets in targets_of(batch).values()]
        elif isinstance(objective, TokenObjective):
            kinds = [objective.output_positions(batch).labels, batch.get("next_sentence_label")]
        else:
            kinds = [batch["labels"][batch["labels"] != IGNORE], batch.get("next_sentence_label")]
        found.append([labels.cpu().numpy() for labels in kinds if labels is not None])
    return dict(zip(objective.weights, map(np.concatenate, zip(*found, strict=True)), strict=True))


@dataclass(frozen=True)
class TokenLosses:
    """A model's losses on the tokens of documents, one after another."""

    nats: np.ndarray
    """Loss of each token that is predicted, the ends of documents included."""

    @property
    def loss(self) -> float:
        return ratio(float(self.nats.sum()), len(self.nats))

    def between(self, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add up the stretches between places (D + 1,): nats and tokens of each (D,)."""
        return np.diff(np.concatenate([[0.0], np.cumsum(self.nats)])[bounds]), np.diff(bounds)


def steps_in_order(source: ExampleSource, objective: Objective, training: TrainingRecipe) -> StepDataset:
    """Cut held-out examples into the steps of a run's evaluation, on one process."""
    tokens = min(training.tokens_per_step, int(source.epoch(0).lengths.sum()))
    return StepDataset(
        source,
        objective.at(1.0),
        tokens_per_step=tokens,
        tokens_per_micro_batch=training.tokens_per_micro_batch or tokens,
        seed=training.seed,
        shuffle=False,
    )


def trigram_losses(reader: TextReader, texts: Texts) -> dict[str, TokenLosses]:
    """Return the trigram's losses on a finished run's held-out text, by the term that they are of.

    There are none where anything but next tokens is learned, where the text is a stream, and where it has
    more than `MOST_COUNTED` tokens, which would take long to count. The texts are found in the cache, and
    what is wrong with them has been told.
    """
    if reader.objective.kind not in NEXT_TOKENS or reader.corpus.streaming:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Several texts are joined in memory, which has room for so many.
        counted = (cast(TokenizedCorpus, reader.tokenize([text])) for text in single_texts(texts["train"][0]))
        if sum(corpus.num_tokens for corpus in counted) > MOST_COUNTED:
            return {}
        train, held_out = (cast(TokenizedCorpus, reader.tokenize(texts[split])) for split in texts)
    tokenizer = reader.tokenizer
    return {"clm": token_losses(train, held_out, frame_ids(tokenizer)[1], len(tokenizer))}


def token_losses(
    train: TokenizedCorpus, held_out: TokenizedCorpus, end_ids: list[int], vocab_size: int
) -> TokenLosses:
    """Score the tokens of held-out documents, their ends included, after the two tokens before each."""
    model = TrigramModel.fit(*with_ends(train, end_ids), vocab_size)
    return TokenLosses(-model.log_probability(*with_ends(held_out, end_ids)))


def with_ends(corpus: TokenizedCorpus, end_ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Put the end of text behind each document; its tokens, and where documents begin among them."""
    offsets = corpus.token_offsets
    places = np.repeat(offsets[1:], len(end_ids))
    tokens = np.insert(corpus.tokens.astype(np.int64), places, end_ids * corpus.num_documents)
    return tokens, offsets + np.arange(len(offsets)) * len(end_ids)
