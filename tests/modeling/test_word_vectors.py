"""Vectors of words: the states on both sides of each word, whatever else is in the batch."""

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import TercetCharacterConfig, TercetCharacterModel
from tercet.modeling.recurrent import character as word_vectors
from tercet.text.tokenizer import train_tokenizer

SENTENCES = [
    ["The", "grass", "is", "green", "."],
    ["Unbelievable"],
    ["green", "Grass", "[SEP]", "is", "ünknown", "two words"],
    ["It", "is"],
]


@pytest.fixture(scope="module")
def tokenizer():
    texts = [" ".join(sentence) for sentence in SENTENCES[:2]] * 5
    return train_tokenizer(texts, "characters", 60, template="plain")


@pytest.fixture(scope="module")
def model(tokenizer) -> TercetCharacterModel:
    torch.manual_seed(0)
    config = TercetCharacterConfig(vocab_size=len(tokenizer), hidden_size=16, initializer_range=0.5)
    return TercetCharacterModel(config).eval()


def embed_slowly(model, tokenizer, sentence: list[str]) -> torch.Tensor:
    """The definition: read up to the last character of a word, and from the other end down to its first."""
    vocabulary = tokenizer.get_vocab()
    text = " ".join(sentence)
    ids = [vocabulary.get(character, tokenizer.unk_token_id) for character in text]
    ids = torch.tensor([[tokenizer.eos_token_id, *ids, tokenizer.eos_token_id]])
    vectors, begin = [], 1
    for word in sentence:
        end = begin + len(word)
        forward = model.forward_reader(ids[:, :end].T)[-1, 0]
        backward = model.backward_reader(ids[:, begin:].flip(1).T)[-1, 0]
        vectors.append(torch.cat([forward, backward]))
        begin = end + 1
    return torch.stack(vectors)


@pytest.mark.parametrize("at_once", [1, 40, 10_000])
def test_vectors_are_the_states_on_both_sides_of_a_word(at_once, model, tokenizer, monkeypatch):
    monkeypatch.setattr(word_vectors, "CHARACTERS_AT_ONCE", at_once)
    found = model.embed_words(tokenizer, SENTENCES)
    expected = [embed_slowly(model, tokenizer, sentence) for sentence in SENTENCES]
    assert_close(list(found), expected)


def test_the_vector_of_a_word_depends_on_its_sentence(model, tokenizer):
    first, second = model.embed_words(tokenizer, [["It", "is", "green"], ["grass", "is", "green"]])
    assert not torch.allclose(first[1], second[1])


def test_gradients_reach_both_directions(model, tokenizer):
    (vectors,) = model.embed_words(tokenizer, [["It", "is"]])
    vectors.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.zero_grad()


def test_no_sentences_have_no_vectors(model, tokenizer):
    assert model.embed_words(tokenizer, []) == []


def test_what_cannot_be_embedded_is_named(model, tokenizer):
    with pytest.raises(ValueError, match="sentence 1 has no words: leave it out"):
        model.embed_words(tokenizer, [["It"], []])
    with pytest.raises(ValueError, match="word 1 of sentence 0 has no characters"):
        model.embed_words(tokenizer, [["It", "", "is"]])
