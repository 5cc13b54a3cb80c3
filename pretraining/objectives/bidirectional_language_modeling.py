"""Bidirectional language modeling: predict every word from those before it, and from those behind it
(Peters et al., 2018, section 3.1).

    sum over k of  log p(w_k | w_1 ... w_{k-1})  +  log p(w_k | w_{k+1} ... w_n)

Words are read as characters and predicted from a vocabulary. One that is not in it is many tokens to the
tokenizer, one word to the model, and unknown as a target. A sequence may begin or end inside such a word;
what is left of it counts as a word.

Legend: N packed tokens of the batch, W words, n targets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ...data.chunks import FullSequences
from ...data.corpus import TokenizedCorpus
from ...data.steps.examples import gather
from ...data.steps.objective import IGNORE, Batch, Example, Objective
from ...data.steps.streams import one_stream
from ...data.tokenizers.special_tokens import required_token_id
from ...data.tokenizers.tokenizer import frame_ids
from ...modeling import TercetElmoForLanguageModeling
from ...modeling.recurrent.elmo import known_words
from ...modeling.recurrent.spelling import TokenSpelling, spelling_of
from ...modeling.recurrent.words import Words, find_words
from ...modeling.sequences import find_sequences
from ...training.token_objective import token_scores, without_targets
from .recipes import BaseObjectiveRecipe, Corpus, FullSequence, ObjectiveContext, Trainable, single_text

OFFSETS = {"forward": 1, "backward": -1}
"""The terms, and which neighbour of a word each predicts."""


class BidirectionalLanguageModeling(Objective):
    """Predict the next word and the one before; the terms are `forward` and `backward`.

    Args:
        spelling: Tells which tokens are words.
        unknown_id: The target in place of a word of several tokens.
    """

    def __init__(self, spelling: TokenSpelling, unknown_id: int):
        self.weights = dict.fromkeys(OFFSETS, 0.5)
        self.spelling = spelling
        self.unknown_id = unknown_id

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        batch = one_stream(gather(examples, "input_ids"))
        return batch | {"labels": batch["input_ids"].clone()}

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        lengths = self.words(batch).lengths
        return dict.fromkeys(OFFSETS, (lengths - 1).clamp(min=0).sum())

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        outputs = model(**batch, reduction="sum")
        return {"forward": outputs.forward_loss, "backward": outputs.backward_loss}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        # a logit for each word of the vocabulary, where a word begins
        words = self.words(batch)
        outputs = model(**without_targets(batch, "labels"), logits_to_keep=words.positions)
        known = known_words(batch["labels"], words, self.unknown_id)
        scores = {}
        for term, logits in (("forward", outputs.forward_logits), ("backward", outputs.backward_logits)):
            labels = words.neighbours(known, OFFSETS[term], IGNORE).flatten()[words.positions]
            is_target = labels != IGNORE
            scores[term] = token_scores(logits[0, is_target], labels[is_target])
        return scores

    def words(self, batch: Batch) -> Words:
        ids = batch["input_ids"]
        sequences = find_sequences(ids, cu_seq_lens=batch["cu_seq_lens_q"])
        return find_words(sequences, self.spelling.begins_word(ids))


@dataclass(frozen=True)
class BidirectionalLanguageModelingRecipe(BaseObjectiveRecipe):
    """Predict the next word and the one before (ELMo)."""

    TERMS = {
        "forward": ("next characters", "text-generation"),
        "backward": ("previous characters", "other"),
    }
    model_class = TercetElmoForLanguageModeling
    template = "single"

    kind: Literal["bidirectional_language_modeling"]
    """Which objective this is."""

    def build(self, context: ObjectiveContext) -> BidirectionalLanguageModeling:
        unknown_id = required_token_id(context.tokenizer, "unk", self.kind)
        return BidirectionalLanguageModeling(spelling_of(context.tokenizer), unknown_id)

    def taught(self, model: Trainable, tokenizer: PreTrainedTokenizerBase) -> Trainable:
        assert isinstance(model, TercetElmoForLanguageModeling)
        model.learn_spelling(tokenizer)
        return model

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> FullSequences:
        begin, end = frame_ids(context.tokenizer)
        text = single_text(corpus, self.kind)
        alone = 1 if begin or end else 2  # a word without a neighbour predicts nothing
        return FullSequences(
            text, context.sequence_length, begin, end, context.isolate_documents, fewest_tokens=alone
        )

    def full_sequence(self, sequence_length: int) -> FullSequence:
        return FullSequence(sequence_length, 0, 2 * (sequence_length - 1))

    def share_of_unknown(
        self, corpora: Sequence[TokenizedCorpus], tokenizer: PreTrainedTokenizerBase
    ) -> float:
        # words of several tokens are unknown as targets
        spelling = spelling_of(tokenizer)
        num_words = num_unknown = 0
        for corpus in corpora:
            continues = np.append(spelling.continues.numpy()[corpus.tokens], False)
            num_words += int((~continues[:-1]).sum())
            num_unknown += int((~continues[:-1] & continues[1:]).sum())
        return num_unknown / num_words if num_words else float("nan")
