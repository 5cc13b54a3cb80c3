"""Static vectors: a word has its own, its n-grams' or none, and the words are saved with the weights."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel

from tercet import TercetWordVectorsConfig, TercetWordVectorsModel
from tercet.modeling.recurrent.static_vectors import Lexicon, hash_of, rows_of, sizes

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


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_words": 0}, "num_words is 0"),
        ({"vocab_size": 100}, "vocab_size is 100"),
        ({"longest_ngram": 2}, "longest_ngram is 2: choose 3 or more"),
    ],
)
def test_impossible_fields_are_refused(fields, words):
    with pytest.raises(Exception, match=words):
        TercetWordVectorsConfig(**fields)
