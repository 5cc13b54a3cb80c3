"""Static vectors from gensim and from files are what their makers say."""

import gzip

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, AutoTokenizer

from tercet.tools.convert.static_vectors import (
    build,
    from_fasttext,
    read_word_vectors,
    save_word_vectors,
    train_word_vectors,
)

SENTENCES = [["the", "cat", "saw", "the", "Dög"], ["a", "dog", "saw", "a", "cat"]] * 10
LINES = "the 1 2.5 -3\nNew\u00a0York 0 1e-3 4\n"


def test_vectors_of_gensim_are_the_same_here():
    fasttext = pytest.importorskip("gensim.models").FastText
    stock = fasttext(SENTENCES, vector_size=8, min_count=2, sg=1, bucket=30, seed=1, workers=1, epochs=1)
    model = from_fasttext(stock.wv)
    words = ["cat", "Dög", "unseen", "日本語", "a"]
    assert not all(word in stock.wv.key_to_index for word in words)
    (found,) = model.embed_words([words])
    assert_close(found.detach(), torch.from_numpy(np.stack([stock.wv[word] for word in words])))


def test_training_is_the_same_again():
    pytest.importorskip("gensim")
    options = {"width": 8, "epochs": 2, "smallest_count": 2, "num_ngram_rows": 30}
    once, again = (train_word_vectors(SENTENCES, **options) for _ in range(2))
    assert once.words.entries == again.words.entries
    assert_close(once.state_dict(), again.state_dict(), rtol=0, atol=0)
    with pytest.raises(ValueError, match="no word occurs 100 times"):
        train_word_vectors(SENTENCES, smallest_count=100)


@pytest.mark.parametrize("header", ["", "2 3\n"])
@pytest.mark.parametrize("ending", ["txt", "vec.gz"])
def test_lines_of_words_and_numbers_are_read(header, ending, tmp_path):
    file = tmp_path / f"vectors.{ending}"
    written = (header + LINES).encode()
    file.write_bytes(gzip.compress(written) if ending.endswith("gz") else written)
    model = read_word_vectors(file)
    (found,) = model.embed_words([["the", "New\u00a0York", "The", "other"]])
    expected = [[1, 2.5, -3], [0, 1e-3, 4], [1, 2.5, -3], [0, 0, 0]]
    assert_close(found.detach(), torch.tensor(expected))
    assert read_word_vectors(file, largest=1).words.entries == {"the": 0}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "has no vectors"),
        ("the 1 2\ncat 1\n", "line 2 of .* has no 2 numbers behind its word"),
        ("the 1 2\ncat 1 x\n", "line 2 of .* has no 2 numbers behind its word"),
        ("the 1 2\ncat nan 1\n", r"line 2 of .* has numbers that are not finite \('cat nan 1'\): correct"),
        ("the 1 -inf\n", "line 1 of .* has numbers that are not finite"),
        ("the 1 1e39\n", "line 1 of .* has numbers that are not finite"),
        ("the\t1\t2\n", r"line 1 of .* has no space \('the\\t1\\t2'\): separate a word and its numbers"),
        ("2 3\nthe\t1\t2\n", "line 2 of .* has no space"),
        ("\n \n", "has no vectors"),
        (b"the 1 2\ncaf\xe9 1 2\n", r"line 2 of .*vectors.txt is not UTF-8 \(b'caf\\xe9 1 2'\): convert"),
        (b"1 2\nthe \x00\x00\x80\x3f\xff", "line 2 of .*vectors.txt is not UTF-8"),
    ],
)
def test_damaged_files_are_refused(lines, words, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_bytes(lines if isinstance(lines, bytes) else lines.encode())
    with pytest.raises(ValueError, match=words):
        read_word_vectors(file)


def test_blank_lines_are_skipped(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("\n2 3\n" + LINES.replace("\n", "\n\n") + " \n", encoding="utf-8")
    assert read_word_vectors(file).words.entries == {"the": 0, "New\u00a0York": 1}


def test_each_word_needs_one_vector():
    with pytest.raises(ValueError, match="the word 'a' is given twice: give each word once"):
        build(["a", "b", "a"], torch.zeros(3, 2))
    with pytest.raises(ValueError, match="2 words are given, but 3 vectors: give one vector for each word"):
        build(["a", "b"], torch.zeros(3, 2))


def test_a_folder_is_loaded_by_auto_classes(tmp_path):
    (tmp_path / "vectors.txt").write_text(LINES, encoding="utf-8")
    save_word_vectors(read_word_vectors(tmp_path / "vectors.txt"), tmp_path / "model")
    model = AutoModel.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    states = model(**tokenizer("the", return_tensors="pt")).last_hidden_state
    assert_close(states[0].detach(), torch.tensor([[1, 2.5, -3]] * 3))
