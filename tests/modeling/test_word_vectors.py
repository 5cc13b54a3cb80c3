"""Vectors of words: the states on both sides of each word, whatever else is in the batch.

Static vectors: a word has its own, its n-grams' or none, and the words are saved with the weights.

Words as bytes: what a tagger reads is what was written.
"""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel

from tercet import TercetWordVectorsConfig, TercetWordVectorsModel
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling import TercetCharacterConfig, TercetCharacterModel
from tercet.modeling.recurrent import character as word_vectors
from tercet.modeling.recurrent.static_vectors import Lexicon, hash_of, rows_of, sizes
from tercet.modeling.recurrent.word_tokenizer import word_tokenizer
from tercet.modeling.recurrent.words import UNREADABLE, read_words

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


WORDS = {"the": 0, "caté": 1, "\ud800": 2}


def model_of(**fields) -> TercetWordVectorsModel:
    """Build vectors of three words, drawn at random."""
    torch.manual_seed(0)
    num_words, num_bytes = sizes(WORDS)
    config = TercetWordVectorsConfig(hidden_size=6, num_words=num_words, num_word_bytes=num_bytes, **fields)
    model = TercetWordVectorsModel(config).eval()
    model.words.learn(WORDS)
    return model


def test_a_hash_is_that_of_fowler_noll_and_vo():
    assert hash_of("") == 2166136261
    assert hash_of("foobar") == 0xBF9CF968  # a test vector of its authors


def test_words_have_their_own_vectors_and_others_the_mean_of_their_ngrams():
    model = model_of(num_ngram_rows=50)
    (found,) = model.embed_words([["caté", "unseen", "the", "caté"]])
    own, ngrams = model.word_vectors.weight, model.ngram_vectors.weight
    expected = [own[1], ngrams[rows_of("unseen", 3, 6, 50)].mean(0), own[0], own[1]]
    assert_close(found, torch.stack(expected))


def test_without_ngrams_other_words_are_looked_up_in_lower_case():
    model = model_of()
    (found,) = model.embed_words([["THE", "Caté", "unseen"]])
    own = model.word_vectors.weight
    assert_close(found, torch.stack([own[0], own[1], torch.zeros(6)]))


@pytest.mark.parametrize("rows", [0, 50])
def test_words_and_vectors_are_saved_together(rows, tmp_path):
    model = model_of(num_ngram_rows=rows)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.words.entries == WORDS
    sentences = [["the", "\ud800"], ["unseen"]]
    assert_close(loaded.embed_words(sentences), model.embed_words(sentences), rtol=0, atol=0)


def test_every_byte_has_the_vector_of_its_word():
    model = model_of(num_ngram_rows=50)
    ids = torch.tensor([[1 + byte for byte in b"the new"], [1 + byte for byte in b"the"] + [0] * 4])
    states = model(ids).last_hidden_state
    (the, new), (same,) = model.embed_words([["the", "new"], ["the"]])
    assert_close(states[0], torch.stack([the] * 4 + [new] * 3))
    assert_close(states[1], torch.stack([same] * 3 + [torch.zeros(6)] * 4))
    packed = model(torch.cat([ids[0], ids[1, :3]])[None], cu_seq_lens_q=torch.tensor([0, 7, 10]))
    assert_close(packed.last_hidden_state[0], torch.cat([states[0], states[1, :3]]))


def test_ids_that_are_no_bytes_are_refused():
    with pytest.raises(ValueError, match="ids from 5 to 300, but bytes have those below 257"):
        model_of()(torch.tensor([[5, 300]]))


def test_a_lexicon_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="3 texts of 11 bytes do not fit into a lexicon of 2 texts"):
        Lexicon(2, 5).learn(WORDS)


def test_a_lexicon_follows_its_buffers():
    lexicon = Lexicon(2, 2)
    lexicon.learn({"a": 4, "b": 5})
    assert lexicon.entries == {"a": 4, "b": 5}
    lexicon.learn({"c": 1, "d": 0})
    assert lexicon.entries == {"c": 1, "d": 0}


def test_words_are_read_as_they_are():
    ids = word_tokenizer()(" a\u3000b  Größe ", return_tensors="pt")["input_ids"]
    words, texts = read_words(ids)
    assert texts == [["a\u3000b", "Größe"]]
    assert words.lengths.tolist() == [2]
    assert read_words(word_tokenizer()("  ", return_tensors="pt")["input_ids"])[1] == [[UNREADABLE]]
    assert word_tokenizer().decode(ids[0]) == " a\u3000b  Größe "


def test_a_name_of_a_special_token_is_a_word():
    ids = word_tokenizer()("a [PAD] b", return_tensors="pt")["input_ids"]
    assert read_words(ids)[1] == [["a", "[PAD]", "b"]]
