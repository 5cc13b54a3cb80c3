"""Pairs of sentence runs as Devlin et al. (2019) draw them, and the objective of two terms."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from tercet.pretraining import next_sentence
from tercet.pretraining.corpus import TokenizedCorpus
from tercet.pretraining.masked_language_modeling import Corruption, DynamicMasking, MaskedLanguageModeling
from tercet.pretraining.next_sentence import (
    NEXT,
    RANDOM,
    MaskedLanguageModelingWithNextSentence,
    NextSentencePairs,
    Walk,
    shorten,
)
from tercet.training.examples import Examples, ExampleSource, gather

SIGNS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
CLS, SEP = 1, 2


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    words = [*SIGNS, *(f"w{i}" for i in range(50))]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, "[UNK]")),
        **dict(zip(("pad_token", "cls_token", "sep_token", "mask_token", "unk_token"), SIGNS, strict=True)),
    )


def make_corpus(documents: list[list[int]], numbered: bool = True) -> TokenizedCorpus:
    """Documents as lists of sentence lengths; tokens are numbered from 10 so that each tells its place."""
    sizes = np.array([size for document in documents for size in document])
    total = int(sizes.sum())
    return TokenizedCorpus(
        tokens=np.arange(10, total + 10, dtype=np.uint32) if numbered else np.full(total, 7, dtype=np.uint16),
        word_starts=np.ones(total, dtype=bool),
        sentence_offsets=np.concatenate([[0], np.cumsum(sizes)]),
        document_offsets=np.concatenate([[0], np.cumsum([len(document) for document in documents])]),
        document_bytes=np.ones(len(documents), dtype=np.int64),
    )


def random_documents(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 30, rng.integers(1, 40)).tolist() for _ in range(count)]


def document_of(corpus: TokenizedCorpus, places: np.ndarray) -> np.ndarray:
    return np.searchsorted(corpus.token_offsets, places, side="right") - 1


def test_layout_of_a_pair(tokenizer):
    corpus = make_corpus([[3, 2], [4, 4]])
    source = NextSentencePairs(corpus, tokenizer, 16, seed=0, short_rate=0.0)
    pairs = next(pairs for pairs in map(source.epoch, range(9)) if NEXT in pairs.labels)
    example = pairs[pairs.labels.tolist().index(NEXT)]
    first, second = (
        ([10, 11, 12], [13, 14]) if example["input_ids"][1] == 10 else ([15, 16, 17, 18], [19, 20, 21, 22])
    )
    assert example["input_ids"].tolist() == [CLS, *first, SEP, *second, SEP]
    assert example["token_type_ids"].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert len(example["word_starts"]) == len(example["input_ids"])


def test_packed_pairs_equal_those_made_one_by_one(tokenizer):
    pairs = NextSentencePairs(make_corpus(random_documents(60)), tokenizer, 64, seed=1).epoch(0)
    indices = np.random.default_rng(0).permutation(len(pairs))
    packed, expected = pairs.pack(indices), [pairs[int(index)] for index in indices]
    assert packed.makers.keys() == expected[0].keys()
    for name in expected[0]:
        assert gather(packed, name).values.tolist() == gather(expected, name).values.tolist(), name
        assert gather(packed, name).lengths.tolist() == gather(expected, name).lengths.tolist(), name


def test_the_walk_goes_on_behind_a_if_b_is_random_and_else_behind_b():
    """Two documents of four sentences. The last one of the first is left alone; later a pair repays that."""
    split, stop = np.array([1, 2, 3, 4, 5, 6, 7, 8]), np.array([3, 4, 4, 4, 6, 7, 8, 8])
    is_random = np.array([True, True, True, False, True, False, False, False])
    walk = Walk()
    chosen = walk.follow(np.array([4]), split[:4], stop[:4], is_random[:4])
    assert (chosen.tolist(), walk.owed) == ([0, 1, 2, 3], 1)
    assert is_random[3], "what follows nothing is a random pair"
    walk.owed += 1
    chosen = walk.follow(np.array([4]), split[4:] - 4, stop[4:] - 4, is_random[4:])
    assert (chosen.tolist(), walk.owed) == ([0, 2], 0)
    assert not is_random[4], "a pair that was to be random is a true one"


@pytest.mark.parametrize("block", [1, 50])
def test_blocks_hold_every_document(tokenizer, monkeypatch, block):
    monkeypatch.setattr(next_sentence, "BLOCK", block)
    corpus = make_corpus(random_documents(60))
    pairs = NextSentencePairs(corpus, tokenizer, 4096, seed=1).epoch(0)
    assert set(document_of(corpus, pairs.first[:, 0])) == set(range(60))
    assert len(pairs) == len(pairs.first) == len(pairs.second)


def test_labels_say_where_the_second_part_is_from(tokenizer):
    """A true B begins where A ended (before either was cut); a random one is never of A's document."""
    corpus = make_corpus(random_documents(60))
    source = NextSentencePairs(corpus, tokenizer, 128, seed=1)
    pairs = source.epoch(0)
    same = document_of(corpus, pairs.first[:, 0]) == document_of(corpus, pairs.second[:, 0])
    assert np.array_equal(same, pairs.labels == NEXT)
    assert not (document_of(corpus, pairs.second[:, 1] - 1) != document_of(corpus, pairs.second[:, 0])).any()
    uncut = (pairs.lengths < 128) & (pairs.labels == NEXT)
    assert np.array_equal(pairs.first[uncut, 1], pairs.second[uncut, 0])


@pytest.mark.parametrize("documents", [random_documents(800), [[8] * 5] * 500 + [[9]] * 200])
def test_labels_are_fifty_fifty_within_three_sigma(tokenizer, documents):
    """Also where many documents have one sentence only, which nothing can follow."""
    labels = NextSentencePairs(make_corpus(documents), tokenizer, 64, seed=2).epoch(0).labels
    assert len(labels) > 600
    assert abs((labels == RANDOM).sum() - len(labels) / 2) <= 3 * np.sqrt(len(labels) / 4)


def test_every_document_and_every_sentence_is_read(tokenizer):
    documents = [[5], *random_documents(50), [40], [200, 3]]
    corpus = make_corpus(documents)
    source = NextSentencePairs(corpus, tokenizer, 4096, seed=3)
    pairs = source.epoch(0)
    assert set(document_of(corpus, pairs.first[:, 0])) == set(range(len(documents)))
    read = np.zeros(corpus.num_tokens, dtype=bool)
    for part in (pairs.first, pairs.second):
        for start, stop in part:
            read[start:stop] = True
    assert read.all()


def test_random_documents_are_alike_likely(tokenizer):
    corpus = make_corpus([[4]] * 11 + [[4, 4]] * 200)
    pairs = NextSentencePairs(corpus, tokenizer, 32, seed=4).epoch(0)
    drawn = document_of(corpus, pairs.second[pairs.labels == RANDOM, 0])
    counts = np.bincount(drawn, minlength=211)
    assert abs(counts[:11].sum() - len(drawn) * 11 / 211) <= 3 * np.sqrt(len(drawn) * 11 / 211)


def test_pairs_fill_the_sequence_and_a_tenth_aims_shorter(tokenizer):
    corpus = make_corpus([[8] * 400] * 40)
    pairs = NextSentencePairs(corpus, tokenizer, 67, seed=5).epoch(0)
    assert pairs.lengths.max() == 67
    # Aims of 2 to 56 of the 64 tokens end below 64, and the last pair of a document may be short as well.
    short = (pairs.lengths < 67).mean()
    expected = 0.1 * 55 / 63
    assert abs(short - expected) <= 3 * np.sqrt(expected / len(pairs)) + 40 / len(pairs)
    assert all(len(pairs[i]["input_ids"]) == pairs.lengths[i] for i in range(0, len(pairs), 50))


def test_lengths_hardly_tell_the_label(tokenizer):
    """Pairs that end with their document are short about as often where B is random: within 5 points of 25.

    A random B goes on to the end of a sentence, so it is a little longer than the B that it replaces.
    """
    rng = np.random.default_rng(0)
    documents = [rng.integers(3, 20, rng.integers(10, 40)).tolist() for _ in range(1500)]
    pairs = NextSentencePairs(make_corpus(documents), tokenizer, 128, seed=8, short_rate=0.0).epoch(0)
    is_short = pairs.lengths < 100
    shares = [is_short[pairs.labels == label].mean() for label in (NEXT, RANDOM)]
    assert min(shares) > 0.2
    assert abs(shares[0] - shares[1]) < 0.05


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


def test_epochs_differ_and_are_functions_of_seed_and_number(tokenizer):
    corpus = make_corpus(random_documents(30))
    source = NextSentencePairs(corpus, tokenizer, 64, seed=6)
    assert isinstance(source, ExampleSource)
    first, again, second = source.epoch(0), source.epoch(0), source.epoch(1)
    assert isinstance(first, Examples)
    assert np.array_equal(first.first, again.first)
    assert np.array_equal(first.second, again.second)
    assert len(first) != len(second) or not np.array_equal(first.first, second.first)


def test_mistakes_are_named(tokenizer):
    with pytest.raises(ValueError, match=r"the corpus has 1: put a blank line between documents"):
        NextSentencePairs(make_corpus([[5, 5]]), tokenizer, 64, seed=0)
    with pytest.raises(ValueError, match=r"sequence_length is 4, but"):
        NextSentencePairs(make_corpus([[5], [5]]), tokenizer, 4, seed=0)
    tokenizer.cls_token = None
    with pytest.raises(ValueError, match=r"next-sentence prediction needs the tokenizer's cls_token"):
        NextSentencePairs(make_corpus([[5], [5]]), tokenizer, 64, seed=0)


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


def test_objective_has_two_terms(tokenizer):
    corpus = make_corpus(random_documents(10), numbered=False)
    pairs = NextSentencePairs(corpus, tokenizer, 64, seed=0).epoch(0)
    objective = MaskedLanguageModelingWithNextSentence(
        MaskedLanguageModeling(DynamicMasking(Corruption(tokenizer)))
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
