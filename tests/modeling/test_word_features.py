"""What embedders say of words is remembered: frozen ones always say what they say in evaluation."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from tercet.conversion.word_tokenizer import word_tokenizer
from tercet.modeling import word_features

from ..small_taggers import MAKERS, build_new_tagger, save_sources

SENTENCES = [["the", "cat", "sat"], ["Größe"], ["a", "dog", "?", "under", "trees"]]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    return save_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def build_tagger(sources):
    """Build a tagger on the word vectors of some models, for evaluation."""
    return lambda *names, **fields: build_new_tagger(sources, *names, **fields).eval()


@pytest.fixture
def tagger(build_tagger):
    return build_tagger("static", "characters", "elmo", num_hidden_layers=2, projection_size=12)


def padded(sentences, **options):
    tokenizer = word_tokenizer()
    return tokenizer([" ".join(words) for words in sentences], padding=True, return_tensors="pt", **options)


def test_embedders_are_frozen_and_drop_nothing(tagger):
    before = {name: value.clone() for name, value in tagger.model.features.state_dict().items()}
    tagger.train()
    assert not any(module.training for module in tagger.model.features.modules())
    optimizer = torch.optim.Adam([each for each in tagger.parameters() if each.requires_grad], 0.1)
    inputs = padded(SENTENCES)
    tagger(**inputs, labels=torch.zeros_like(inputs["input_ids"])).loss.backward()
    optimizer.step()
    assert_close(tagger.model.features.state_dict(), before, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", MAKERS)
def test_what_is_remembered_of_a_new_tagger_is_what_it_says_in_evaluation(name, sources):
    tagger = build_new_tagger(sources, name)
    assert tagger.training
    word_features.KEPT.clear()
    tagger.remember(SENTENCES)
    features = tagger.eval().model.features
    kept = word_features.KEPT[features.digest()]
    expected = features.compute_frozen(SENTENCES)
    assert_close([kept[tuple(words)] for words in SENTENCES], expected, rtol=0, atol=0)


def test_embedders_learn_along_if_they_are_not_frozen(build_tagger):
    tagger = build_tagger("characters", "elmo", freezes_embeddings=False).train()
    inputs = padded(SENTENCES)
    tagger(**inputs, labels=torch.zeros_like(inputs["input_ids"])).loss.backward()
    gradients = {name: each.grad for name, each in tagger.model.features.named_parameters()}
    assert all(each is not None and each.any() for each in gradients.values())
    tagger.remember(SENTENCES)
    assert tagger.model.features.digest() not in word_features.KEPT


def test_what_is_remembered_is_not_computed_again(tagger, monkeypatch):
    expected = tagger(**padded(SENTENCES))
    tagger.remember(SENTENCES)
    monkeypatch.setattr(tagger.model.features, "compute", None)
    found = tagger(**padded(SENTENCES))
    assert_close(found.logits, expected.logits, **CLOSE)
    assert tagger.model.features(SENTENCES)[1] is tagger.model.features(SENTENCES[1:2])[0]


def test_other_weights_remember_nothing_of_these(tagger):
    tagger.remember(SENTENCES)
    with torch.no_grad():
        tagger.model.features.parts[0].model.word_vectors.weight.zero_()
    (found, *_) = tagger.model.features(SENTENCES)
    assert not found[0, :10].any()


def test_other_descriptions_of_the_same_weights_remember_nothing_of_these(build_tagger):
    one, same, other = (build_tagger("static").model.features for _ in range(3))
    other.descriptions[0]["ngram_lengths"] = [2, 3]
    assert one.digest() == same.digest() != other.digest()
