"""Pairs of sentence runs as Devlin et al. (2019) draw them, and the objective of two terms."""

import numpy as np
import pytest
import torch

from tercet.objectives import sentence_pairs
from tercet.objectives.masked_language_modeling import MaskedLanguageModeling
from tercet.objectives.masked_pairs import MaskedLanguageModelingWithPairs
from tercet.objectives.masking import Corruption, DynamicMasking
from tercet.objectives.next_sentence import NEXT, RANDOM, NextSentencePairs
from tercet.objectives.sentence_pairs import shorten
from tercet.text.corpus import TokenizedCorpus

from ..pretraining.conftest import make_corpus

CLS, SEP = 1, 2
BIG_AND_SMALL = [[8] * 2000, *[[9, 7]] * 20]
"""A document that has more stretches than all others together."""


def random_documents(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 30, rng.integers(2, 40)).tolist() for _ in range(count)]


def document_of(corpus: TokenizedCorpus, places: np.ndarray) -> np.ndarray:
    return np.searchsorted(corpus.token_offsets, places, side="right") - 1


def test_layout_of_a_pair(pair_tokenizer):
    corpus = make_corpus([[3, 2], [4, 4]])
    source = NextSentencePairs(corpus, pair_tokenizer, 16, seed=0, short_sequence_probability=0.0)
    pairs = next(pairs for pairs in map(source.epoch, range(9)) if NEXT in pairs.labels)
    example = pairs[pairs.labels.tolist().index(NEXT)]
    first, second = (
        ([10, 11, 12], [13, 14]) if example["input_ids"][1] == 10 else ([15, 16, 17, 18], [19, 20, 21, 22])
    )
    assert example["input_ids"].tolist() == [CLS, *first, SEP, *second, SEP]
    assert example["token_type_ids"].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert len(example["word_starts"]) == len(example["input_ids"])


@pytest.mark.parametrize("block", [1, 50])
def test_blocks_hold_every_document(pair_tokenizer, monkeypatch, block):
    monkeypatch.setattr(sentence_pairs, "BLOCK", block)
    corpus = make_corpus(random_documents(60))
    pairs = NextSentencePairs(corpus, pair_tokenizer, 4096, seed=1).epoch(0)
    assert set(document_of(corpus, pairs.first[:, 0])) == set(range(60))
    assert len(pairs) == len(pairs.first) == len(pairs.second)


def test_labels_say_where_the_second_part_is_from(pair_tokenizer):
    """A true B begins where A ended, but for what was cut; a random one is never of A's document."""
    corpus = make_corpus(random_documents(600))
    source = NextSentencePairs(corpus, pair_tokenizer, 128, seed=1)
    pairs = source.epoch(0)
    same = document_of(corpus, pairs.first[:, 0]) == document_of(corpus, pairs.second[:, 0])
    assert np.array_equal(same, pairs.labels == NEXT)
    assert not (document_of(corpus, pairs.second[:, 1] - 1) != document_of(corpus, pairs.second[:, 0])).any()
    uncut = (pairs.lengths < 128) & (pairs.labels == NEXT)
    gaps = pairs.second[uncut, 0] - pairs.first[uncut, 1]
    assert gaps.min() == 0
    assert (gaps > 0).mean() < 0.05, "only where the partner's part is shorter"


@pytest.mark.parametrize("documents", [random_documents(800), BIG_AND_SMALL, [[8, 8]] * 7])
def test_labels_are_fifty_fifty(pair_tokenizer, documents):
    """Within the two pairs of a couple, and the one that only borrows."""
    source = NextSentencePairs(make_corpus(documents), pair_tokenizer, 64, seed=2)
    for labels in (source.epoch(number).labels for number in range(5)):
        assert abs(2 * int((labels == RANDOM).sum()) - len(labels)) <= 3


def test_a_single_couple_is_traded_in_every_other_epoch(pair_tokenizer):
    source = NextSentencePairs(make_corpus([[5, 5], [6, 6]]), pair_tokenizer, 64, seed=2)
    labels = np.array([source.epoch(number).labels for number in range(200)])
    assert (labels[:, 0] == labels[:, 1]).all()
    assert abs(labels[:, 0].mean() - 0.5) <= 3 * np.sqrt(0.25 / 200)


def test_every_sentence_is_read_once(pair_tokenizer):
    """All second parts are equally long, so that none is cut."""
    documents = [[7] * 2] * 50 + [[40, 7], [300, 7]]
    corpus = make_corpus(documents)
    pairs = NextSentencePairs(corpus, pair_tokenizer, 4096, seed=3, short_sequence_probability=0.0).epoch(0)
    places = np.concatenate([np.arange(*part) for part in (*pairs.first, *pairs.second)])
    assert np.array_equal(np.sort(places), np.arange(corpus.num_tokens))


def test_little_is_cut_where_lengths_differ(pair_tokenizer):
    corpus = make_corpus(random_documents(800))
    pairs = NextSentencePairs(corpus, pair_tokenizer, 4096, seed=3, short_sequence_probability=0.0).epoch(0)
    assert set(document_of(corpus, pairs.first[:, 0])) == set(range(800))
    assert 0.98 < (pairs.lengths - 3).sum() / corpus.num_tokens <= 1


def test_random_parts_are_as_often_of_a_document_as_true_ones(pair_tokenizer):
    """Also first sentences: they begin no second part."""
    corpus = make_corpus([[8] * 20] * 30 + [[8] * 200] * 30)
    source = NextSentencePairs(corpus, pair_tokenizer, 67, seed=4, short_sequence_probability=0.0)
    begins, labels = [], []
    for pairs in map(source.epoch, range(10)):
        begins.append(document_of(corpus, pairs.second[:, 0]))
        labels.append(pairs.labels)
        assert not np.isin(pairs.second[:, 0], corpus.token_offsets).any()
    is_small, is_random = np.concatenate(begins) < 30, np.concatenate(labels) == RANDOM
    shares = [is_small[is_random].mean(), is_small[~is_random].mean()]
    expected = is_small.mean()
    assert abs(shares[0] - shares[1]) <= 3 * np.sqrt(4 * expected * (1 - expected) / len(is_small))


def test_pairs_fill_the_sequence_and_a_tenth_aims_shorter(pair_tokenizer):
    corpus = make_corpus([[8] * 400] * 40)
    pairs = NextSentencePairs(corpus, pair_tokenizer, 67, seed=5).epoch(0)
    assert pairs.lengths.max() == 67
    # Aims of 2 to 56 of the 64 tokens end below 64, and the last pair of a document may be short as well.
    short = (pairs.lengths < 67).mean()
    expected = 0.1 * 55 / 63
    assert abs(short - expected) <= 3 * np.sqrt(expected / len(pairs)) + 40 / len(pairs)
    assert all(len(pairs[i]["input_ids"]) == pairs.lengths[i] for i in range(0, len(pairs), 50))


def test_long_pairs_are_cut_from_the_longer_part():
    first, second = np.array([[0, 10], [0, 3], [0, 7]]), np.array([[50, 53], [50, 60], [50, 57]])
    shorten(first, second, 8, np.random.default_rng(0))
    assert (first[:, 1] - first[:, 0]).tolist() == [5, 3, 4]
    assert (second[:, 1] - second[:, 0]).tolist() == [3, 5, 4]
    assert (first >= 0).all()
    assert (second >= 50).all()
    fronts = []
    for seed in range(300):
        part = np.array([[0, 12]])
        shorten(part, np.array([[50, 54]]), 8, np.random.default_rng(seed))
        fronts.append(part[0, 0])
    assert abs(np.mean(fronts) - 4) <= 3 * np.sqrt(8 / 4 / 300)


def test_documents_of_one_sentence_are_left_out_and_counted(pair_tokenizer):
    corpus = make_corpus([[5], *[[8, 8, 8]] * 20, [4]])
    pairs = NextSentencePairs(corpus, pair_tokenizer, 64, seed=0).epoch(0)
    (left_out,) = pairs.left_out
    assert left_out[:5] == ("documents", 2, 22, 9, corpus.num_tokens)
    assert left_out.reason.startswith("have one sentence")
    documents = document_of(corpus, np.concatenate([pairs.first, pairs.second])[:, 0])
    assert sorted(documents.tolist()) == sorted([*range(1, 21)] * 2)


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        (
            [[5, 5]],
            r"has 1, and 0 of 1 documents \(0.0% of the tokens\) have one sentence: put one sentence on",
        ),
        ([[5]] * 30, r"has 0, and 30 of 30 documents \(100.0% of the tokens\) have one sentence: put"),
        ([[5, 5]] * 4 + [[5]] * 9, r"has 4, and 9 of 13 documents \(52.9% of the tokens\) have one sentence"),
        ([[], []], r"has 0, and 0 of 0 documents .* or choose masked_language_modeling"),
    ],
)
def test_a_corpus_that_cannot_serve_is_refused(pair_tokenizer, documents, told):
    with pytest.raises(ValueError, match=told):
        NextSentencePairs(make_corpus(documents), pair_tokenizer, 64, seed=0)


class TwoHeads(torch.nn.Module):
    """Answers positions with the logits of what they read, and pairs with the logits of their number."""

    def forward(self, input_ids, logits_to_keep, **inputs):
        assert not {"labels", "next_sentence_label"} & inputs.keys()
        generator = torch.Generator().manual_seed(0)
        table, pairs = torch.randn(60, 60, generator=generator), torch.randn(99, 2, generator=generator)
        num_pairs = len(inputs["cu_seq_lens_q"]) - 1
        self.answers = {
            "prediction_logits": table[input_ids[0, logits_to_keep]][None],
            "seq_relationship_logits": pairs[:num_pairs],
        }
        return type("Output", (), self.answers)


def test_objective_has_two_terms(pair_tokenizer):
    corpus = make_corpus(random_documents(10), numbered=False)
    pairs = NextSentencePairs(corpus, pair_tokenizer, 64, seed=0).epoch(0)
    objective = MaskedLanguageModelingWithPairs(
        MaskedLanguageModeling(DynamicMasking(Corruption(pair_tokenizer))), "nsp"
    )
    batch = objective.collate([pairs[i] for i in range(8)], np.random.default_rng(0))
    assert batch["next_sentence_label"].tolist() == pairs.labels[:8].tolist()
    assert batch["token_type_ids"].shape == batch["input_ids"].shape
    targets = objective.targets(batch)
    assert targets["nsp"] == 8
    assert targets["mlm"] == (batch["labels"] != -100).sum()
    model = TwoHeads()
    scores = objective.scores(model, batch)
    answered = model.answers["seq_relationship_logits"]
    torch.testing.assert_close(
        scores["nsp"]["loss"],
        torch.nn.functional.cross_entropy(answered, batch["next_sentence_label"], reduction="sum"),
    )
    assert scores["nsp"]["accuracy"] == (answered.argmax(-1) == batch["next_sentence_label"]).sum()
    assert scores.keys() == objective.weights.keys() == targets.keys()
