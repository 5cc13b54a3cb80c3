"""Bidirectional language modeling: which words are targets, and what the model learns and scores."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from tercet import TercetElmoForLanguageModeling
from tercet.data.tokenizers.tokenization import tokenize
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.pretraining.objectives.bidirectional_language_modeling import BidirectionalLanguageModelingRecipe
from tercet.pretraining.objectives.recipes import ObjectiveContext

from ...small_elmo import SENTENCES, TEXTS, small_config

RECIPE = BidirectionalLanguageModelingRecipe("bidirectional_language_modeling")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, "words", 540)


@pytest.fixture(scope="module")
def objective(tokenizer):
    return RECIPE.build(ObjectiveContext(tokenizer, 64))


@pytest.fixture(scope="module")
def model(tokenizer) -> TercetElmoForLanguageModeling:
    torch.manual_seed(0)
    model = TercetElmoForLanguageModeling(small_config())
    assert RECIPE.taught(model, tokenizer) is model
    return model.eval()


@pytest.fixture(scope="module")
def batch(objective, tokenizer):
    sequences = [tokenizer(" ".join(words))["input_ids"] for words in SENTENCES]
    return objective.collate([{"input_ids": np.array(ids)} for ids in sequences], 0)


def test_every_word_but_one_of_a_sequence_is_a_target_in_each_direction(objective, batch):
    # The tokens that begin and end a text are words, too.
    expected = torch.tensor(sum(len(words) + 1 for words in SENTENCES))
    assert objective.targets(batch) == {"forward": expected, "backward": expected}


@pytest.mark.parametrize("is_training", [True, False])
def test_losses_are_sums_over_sequences_by_themselves(objective, model, batch, tokenizer, is_training):
    losses = objective.losses(model.train(is_training), batch)
    alone = {"forward": 0, "backward": 0}
    for words in SENTENCES:
        ids = tokenizer(" ".join(words), return_tensors="pt")["input_ids"]
        output = model(ids, labels=ids, reduction="sum")
        alone["forward"] += output.forward_loss
        alone["backward"] += output.backward_loss
    assert_close(losses, alone)


def test_scores_are_the_losses_and_count_hits(objective, model, batch):
    scores = objective.scores(model.eval(), batch)
    for term, loss in objective.losses(model, batch).items():
        assert_close(scores[term]["loss"], loss)
        assert 0 <= scores[term]["accuracy"] <= objective.targets(batch)[term]


def test_a_model_that_is_certain_is_always_right(objective, batch, tokenizer):
    """Of a certain model, which only ever says "unknown", the hits are the unknown words."""
    model = TercetElmoForLanguageModeling(small_config()).eval()
    model.learn_spelling(tokenizer)
    torch.nn.init.constant_(model.lm_head.bias[tokenizer.unk_token_id], 100.0)
    known = tokenizer.get_vocab()
    unknown = sum(word not in known for words in SENTENCES for word in words)
    scores = objective.scores(model, batch)
    assert scores["forward"]["accuracy"] == scores["backward"]["accuracy"] == unknown == 4


def test_the_share_of_unknown_words_is_told(tokenizer):
    corpus = tokenize([" ".join(words) for words in SENTENCES], tokenizer)
    assert RECIPE.share_of_unknown([corpus], tokenizer) == pytest.approx(4 / 10)
    assert RECIPE.share_of_unknown([corpus, corpus], tokenizer) == pytest.approx(4 / 10)


def test_examples_stand_between_the_ends_of_a_text(tokenizer):
    corpus = tokenize([" ".join(words) for words in SENTENCES], tokenizer)
    source = RECIPE.examples(corpus, ObjectiveContext(tokenizer, 32))
    for number in range(len(source)):
        ids = source[number]["input_ids"]
        assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert RECIPE.full_sequence(32).tokens == 32


def test_other_tokenizers_are_refused():
    with pytest.raises(ValueError, match=r"tokenizer\.kind: words"):
        RECIPE.build(ObjectiveContext(train_tokenizer(TEXTS, "wordpiece", 60), 32))
