"""A finished model beside what needs no learning, on the same held-out text.

The trigram reads whole documents, the others the run's sequences.

untrained   the model's own architecture with the random weights that it began with
unigram     how frequent each answer is in the training text (for pairs of sentences: about a coin)
trigram     interpolated Kneser-Ney on the same text, where each token is predicted from those before it
trained     the model, read back from its folder
"""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...data.corpus import TokenizedCorpus
from ...data.documents import Documents
from ...data.mixed_documents import single_texts
from ...data.steps.batches import StepDataset, one_pass
from ...data.steps.examples import ExampleSource
from ...data.steps.objective import IGNORE, Batch, Objective
from ...data.tokenizers.tokenizer import frame_ids
from ...pretraining.model import build_model
from ...pretraining.objectives.character_language_modeling import CharacterLanguageModeling, targets_of
from ...pretraining.objectives.masked_pairs import PAIR_LABELS
from ...pretraining.recipe import PretrainingRecipe
from ...pretraining.text import build_held_out, context_of, open_texts, tokenize, training_source
from ...training.devices.precision import build_accelerator
from ...training.evaluation import evaluate, micro_batches, ratio
from ...training.token_objective import TokenObjective
from .baselines import TrigramModel, UnigramModel, nats_per_token

NEXT_TOKENS = ("causal_language_modeling", "hybrid_language_modeling")
"""The kinds of objectives some of whose targets a trigram predicts, too: those of the term `clm`."""

MOST_COUNTED = 20_000_000
"""Tokens of a training text that are counted: within five seconds, and less than a gigabyte."""

Scores = dict[str, float]
"""As `evaluate` names them: `term/loss`, `term/perplexity`, `term/accuracy`, ..."""

Answers = dict[str, np.ndarray]
"""The right answers of each term, in one row."""


def compare(
    recipe: PretrainingRecipe, trained: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Scores]:
    """Score a model and what it must beat; `trigram` is there for causal language modeling alone."""
    objective = recipe.objective.build(context_of(recipe, tokenizer, trained.config))
    accelerator = build_accelerator(recipe.training, recipe.folder)
    texts = open_texts(recipe)
    held_out = build_held_out(recipe, texts["validation"], tokenizer)
    assert held_out.source is not None
    batches = list(batches_of(held_out.source, objective, recipe, accelerator.device))

    def score(model: nn.Module) -> Scores:
        prepared = accelerator.prepare_model(model, evaluation_mode=True)
        return evaluate(prepared, objective, batches, accelerator, num_bytes=held_out.num_bytes)

    source = training_source(recipe, texts["train"], tokenizer)(recipe.corpus.sequence_length)
    learned_from = batches_of(source, objective, recipe, accelerator.device)
    seen, targets = answers(objective, learned_from), answers(objective, batches)
    vocab_size = trained.config.vocab_size
    scores = {
        "untrained": score(build_model(recipe, tokenizer)),
        "unigram": unigram_scores(seen, targets, vocab_size, held_out.num_bytes),
    }
    if recipe.objective.kind == NEXT_TOKENS[0]:
        train, validation = (
            cast(TokenizedCorpus, tokenize(recipe, documents, tokenizer)) for documents in texts.values()
        )
        scores["trigram"] = trigram_scores(train, validation, frame_ids(tokenizer)[1], vocab_size)
    return scores | {"trained": score(trained)}


def batches_of(
    source: ExampleSource, objective: Objective, recipe: PretrainingRecipe, device: torch.device
) -> Iterable[Batch]:
    """Cut a source's epoch 0 into batches, in its order: those of a run's evaluation, if it is held out."""
    training = recipe.training
    steps = StepDataset(
        source,
        objective.at(1.0),
        tokens_per_step=min(training.tokens_per_step, int(source.epoch(0).lengths.sum())),
        tokens_per_micro_batch=training.tokens_per_micro_batch or training.tokens_per_step,
        seed=training.seed,
        shuffle=False,
    )
    return micro_batches(one_pass(steps), device)


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


def unigram_scores(seen: Answers, held_out: Answers, vocab_size: int, num_bytes: Mapping[str, int]) -> Scores:
    """Score answers by how often each one was right in training; the most frequent one is the guess."""
    scores: Scores = {}
    for term, targets in held_out.items():
        model = UnigramModel.fit(seen[term], PAIR_LABELS.get(term, vocab_size))
        loss = nats_per_token(model.log_probability, targets, np.array([0, len(targets)]))
        accuracy = ratio(int((targets == model.log_probabilities.argmax()).sum()), len(targets))
        scores |= named(term, loss) | {f"{term}/accuracy": accuracy}
        if term in num_bytes:
            scores[f"{term}/bits_per_byte"] = ratio(loss * len(targets), num_bytes[term] * math.log(2))
    return scores


@dataclass(frozen=True)
class TokenLosses:
    """A model's losses on the tokens of documents, one after another."""

    nats: np.ndarray
    """Of each token that is predicted, the ends of documents included."""

    @property
    def loss(self) -> float:
        """Return the mean over all tokens."""
        return ratio(float(self.nats.sum()), len(self.nats))

    def between(self, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add up the stretches between places (D + 1,): nats and tokens of each (D,)."""
        return np.diff(np.concatenate([[0.0], np.cumsum(self.nats)])[bounds]), np.diff(bounds)


def trigram_losses(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> dict[str, TokenLosses]:
    """Return the trigram's losses on a finished run's held-out text, by the term that they are of.

    There are none where anything but next tokens is learned, where the text is a stream, and where it has
    more than `MOST_COUNTED` tokens, which would take long to count. The texts are found in the cache, and
    what is wrong with them has been told.
    """
    if recipe.objective.kind not in NEXT_TOKENS or recipe.corpus.streaming:
        return {}
    texts = open_texts(recipe)

    def tokenized(*documents: Documents) -> TokenizedCorpus:
        return cast(TokenizedCorpus, tokenize(recipe, documents, tokenizer))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Several texts are joined in memory, which has room for so many.
        if sum(tokenized(text).num_tokens for text in single_texts(texts["train"][0])) > MOST_COUNTED:
            return {}
        train, held_out = (tokenized(*documents) for documents in texts.values())
    return {"clm": token_losses(train, held_out, frame_ids(tokenizer)[1], len(tokenizer))}


def token_losses(
    train: TokenizedCorpus, held_out: TokenizedCorpus, end_ids: list[int], vocab_size: int
) -> TokenLosses:
    """Score the tokens of held-out documents, their ends included, after the two tokens before each."""
    model = TrigramModel.fit(*with_ends(train, end_ids), vocab_size)
    return TokenLosses(-model.log_probability(*with_ends(held_out, end_ids)))


def trigram_scores(
    train: TokenizedCorpus, held_out: TokenizedCorpus, end_ids: list[int], vocab_size: int
) -> Scores:
    """Score held-out documents by `token_losses`, in all."""
    losses = token_losses(train, held_out, end_ids, vocab_size)
    bits_per_byte = ratio(float(losses.nats.sum()), int(held_out.document_bytes.sum()) * math.log(2))
    return named("clm", losses.loss) | {"clm/bits_per_byte": bits_per_byte}


def with_ends(corpus: TokenizedCorpus, end_ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Put the end of text behind each document; its tokens, and where documents begin among them."""
    offsets = corpus.token_offsets
    places = np.repeat(offsets[1:], len(end_ids))
    tokens = np.insert(corpus.tokens.astype(np.int64), places, end_ids * corpus.num_documents)
    return tokens, offsets + np.arange(len(offsets)) * len(end_ids)


def named(term: str, loss: float) -> Scores:
    """Return a loss with its perplexity."""
    return {f"{term}/loss": loss, f"{term}/perplexity": math.exp(loss)}
