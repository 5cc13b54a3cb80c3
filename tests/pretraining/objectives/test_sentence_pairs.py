"""Sentence pairs as Devlin et al. (2019) and Lan et al. (2020) draw them; no length tells the label."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from tercet.data.corpus import TokenizedCorpus, offsets
from tercet.data.steps.examples import Examples, ExampleSource
from tercet.pretraining.objectives import sentence_pairs
from tercet.pretraining.objectives.sentence_pairs import (
    IN_ORDER,
    NEXT,
    RANDOM,
    SWAPPED,
    NextSentencePairs,
    SentenceOrderPairs,
    SentencePairSource,
    couple_counterparts,
    cut_documents,
    find_partners,
    match_strangers,
    shorten,
)

from ...corpora import make_corpus

CLS, SEP = 1, 2
SIDES = ("first", "second")
KINDS = {"next-sentence prediction": NextSentencePairs, "sentence-order prediction": SentenceOrderPairs}
both_kinds = pytest.mark.parametrize("kind", KINDS.values())


def random_documents(count: int, seed: int = 0, longest: int = 40) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 30, rng.integers(2, longest)).tolist() for _ in range(count)]


def of_sentences(least: int, most: int, documents: int, longest: int = 30) -> Callable[..., list[list[int]]]:
    """Draw documents of so many sentences of so many tokens."""
    return lambda rng: [
        rng.integers(1, longest, rng.integers(least, most + 1)).tolist() for _ in range(documents)
    ]


CORPORA = {
    "2 sentences": of_sentences(2, 2, 4000),
    "3 sentences": of_sentences(3, 3, 4000),
    "5 sentences": of_sentences(5, 5, 4000),
    "many sentences": of_sentences(20, 200, 250),
    "mixed": lambda rng: of_sentences(2, 3, 1500)(rng) + of_sentences(10, 60, 250)(rng),
    "very long sentences": of_sentences(2, 9, 700, longest=900),
    "one large document": lambda rng: of_sentences(20000, 20000, 1)(rng) + of_sentences(4, 4, 20)(rng),
    "two documents": lambda rng: of_sentences(8000, 8000, 1)(rng) + of_sentences(5000, 5000, 1, 60)(rng),
}
"""Lengths of sentences, in documents of many kinds."""


def lengths_and_labels(source: SentencePairSource, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of both parts of an epoch's pairs (P, 2), and the labels (P,)."""
    pairs = source.epoch(number)
    return np.stack([np.diff(getattr(pairs, name))[:, 0] for name in SIDES], axis=1), pairs.labels


@pytest.mark.parametrize("name", CORPORA)
def test_the_coins_change_no_length(pair_tokenizer, name, monkeypatch):
    """Had every coin fallen the other way, each part would be as long: no rule on lengths tells a label."""
    source = NextSentencePairs(
        make_corpus(CORPORA[name](np.random.default_rng(1))), pair_tokenizer, 128, seed=8
    )
    lengths, labels = lengths_and_labels(source)
    coins = sentence_pairs.coins
    monkeypatch.setattr(sentence_pairs, "coins", lambda number, rng: 1 - coins(number, rng))
    others, opposite = lengths_and_labels(source)
    assert np.array_equal(opposite, 1 - labels)
    assert np.array_equal(others, lengths)


@both_kinds
def test_epochs_differ_and_are_functions_of_seed_and_number(pair_tokenizer, kind):
    source = kind(make_corpus(random_documents(30)), pair_tokenizer, 64, seed=6)
    assert isinstance(source, ExampleSource)
    first, again, second = source.epoch(0), source.epoch(0), source.epoch(1)
    assert isinstance(first, Examples)
    for name in (*SIDES, "labels"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert len(first) != len(second) or not np.array_equal(first.first, second.first)


@pytest.mark.parametrize(("name", "role"), [*zip(KINDS, ("cls", "sep"), strict=True)])
def test_mistakes_are_named(pair_tokenizer, name, role):
    corpus = make_corpus([[5, 5], [5, 5]])
    with pytest.raises(ValueError, match=r"sequence_length is 4, but"):
        KINDS[name](corpus, pair_tokenizer, 4, seed=0)
    setattr(pair_tokenizer, f"{role}_token", None)
    with pytest.raises(ValueError, match=f"{name} needs the tokenizer's {role}_token"):
        KINDS[name](corpus, pair_tokenizer, 64, seed=0)


BIG_AND_SMALL = [[8] * 2000, *[[9, 7]] * 20]
"""A document that has more stretches than all others together."""


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


def make_pairs(documents: list[list[int]], tokenizer, length: int = 128, epoch: int = 0, **changes):
    return SentenceOrderPairs(make_corpus(documents), tokenizer, length, seed=1, **changes).epoch(epoch)


@pytest.mark.parametrize("label", [IN_ORDER, SWAPPED])
def test_hand_worked_example(pair_tokenizer, label):
    """A document of two sentences of three tokens: the second one comes first in a swapped pair."""
    source = SentenceOrderPairs(
        make_corpus([[3, 3]]), pair_tokenizer, 16, seed=0, short_sequence_probability=0.0
    )
    pairs = next(pairs for pairs in map(source.epoch, range(20)) if pairs.labels[0] == label)
    parts = ([10, 11, 12], [13, 14, 15]) if label == IN_ORDER else ([13, 14, 15], [10, 11, 12])
    example = pairs[0]
    assert example["input_ids"].tolist() == [CLS, *parts[0], SEP, *parts[1], SEP]
    assert example["token_type_ids"].tolist() == [0] * 5 + [1] * 4
    assert example["next_sentence_label"] == label


def test_both_parts_are_of_one_document_and_the_label_says_which_was_first(pair_tokenizer):
    documents = random_documents(600)
    corpus = make_corpus(documents)
    pairs = make_pairs(documents, pair_tokenizer)
    document = np.searchsorted(corpus.token_offsets, pairs.first[:, 0], side="right")
    assert np.array_equal(document, np.searchsorted(corpus.token_offsets, pairs.second[:, 0], side="right"))
    is_before = pairs.first[:, 1] <= pairs.second[:, 0]
    assert np.array_equal(is_before, pairs.labels == IN_ORDER)
    assert (is_before | (pairs.second[:, 1] <= pairs.first[:, 0])).all()


SMALL = {
    "random": random_documents(800),
    "one": [[8] * 2000],
    "unequal": [[5, 60]] * 501,
    "few": [[4, 4]] * 7,
}


@pytest.mark.parametrize("name", [*CORPORA, *SMALL])
def test_pairs_in_order_and_swapped_ones_have_the_same_lengths(pair_tokenizer, name):
    """As often, exactly; a pair without a counterpart has two equal parts."""
    documents = SMALL[name] if name in SMALL else CORPORA[name](np.random.default_rng(0))
    source = SentenceOrderPairs(make_corpus(documents), pair_tokenizer, 128, seed=1)
    for epoch in range(3):
        sizes, labels = lengths_and_labels(source, epoch)
        differ = sizes[:, 0] != sizes[:, 1]
        counts = [
            Counter(map(tuple, sizes[differ & (labels == label)].tolist())) for label in (IN_ORDER, SWAPPED)
        ]
        assert counts[0] == counts[1]
        assert abs(2 * int(labels.sum()) - len(labels)) <= 1
        assert sizes.min() > 0


def test_counterparts_are_coupled():
    """9 | 3 finds 3 | 9, and 10 | 1 finds 1 | 10; those with longer first parts alone find none."""
    a, b = np.array([9, 1, 3, 10]), np.array([3, 10, 9, 1])
    couples, alone = couple_counterparts(a, b, np.random.default_rng(0))
    assert {frozenset(couple) for couple in couples.tolist()} == {frozenset({0, 2}), frozenset({1, 3})}
    assert alone.tolist() == []
    couples, alone = couple_counterparts(b + 10, b, np.random.default_rng(0))
    assert couples.tolist() == []
    assert sorted(alone.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("longest", [40, 6])
def test_no_cut_sentence_tells_the_label(pair_tokenizer, longest):
    """At either end of either part, as many are cut in pairs of one label as in pairs of the other."""
    documents = random_documents(2000, longest=longest)
    corpus = make_corpus(documents)
    is_begin = np.zeros(corpus.num_tokens + 1, dtype=bool)
    is_begin[corpus.sentence_offsets] = True
    pairs = make_pairs(documents, pair_tokenizer)
    is_cut = ~np.concatenate([is_begin[pairs.first], is_begin[pairs.second]], axis=1)
    shares = is_cut.mean(axis=0)
    assert shares.min() > 0.3
    differences = is_cut[pairs.labels == SWAPPED].mean(axis=0) - is_cut[pairs.labels == IN_ORDER].mean(axis=0)
    assert (np.abs(differences) <= 3 * np.sqrt(4 * shares * (1 - shares) / len(pairs))).all()


def test_a_single_couple_is_swapped_in_every_other_epoch(pair_tokenizer):
    source = SentenceOrderPairs(make_corpus([[5, 9], [9, 5]]), pair_tokenizer, 64, seed=2)
    labels = np.array([source.epoch(number).labels for number in range(200)])
    assert (labels.sum(axis=1) == 1).all()
    assert abs(labels[:, 0].mean() - 0.5) <= 3 * np.sqrt(0.25 / 200)


@pytest.mark.parametrize("longest", [40, 6])
def test_little_is_cut(pair_tokenizer, longest):
    """A tenth at most of what next-sentence prediction reads, of texts long and short."""
    documents = random_documents(2000, longest=longest)
    pairs = make_pairs(documents, pair_tokenizer)
    others = NextSentencePairs(make_corpus(documents), pair_tokenizer, 128, seed=1).epoch(0)
    assert len(pairs) == len(others)
    assert 0.9 < (pairs.lengths - 3).sum() / (others.lengths - 3).sum() <= 1


def test_pairs_fit_and_most_fill_the_sequence(pair_tokenizer):
    pairs = make_pairs(random_documents(400, longest=200), pair_tokenizer, 128)
    assert pairs.lengths.max() == 128
    assert (pairs.lengths > 120).mean() > 0.75


@pytest.mark.parametrize("length", [5, 6, 16])
def test_pairs_with_parts_of_one_token_fit(pair_tokenizer, length):
    rng = np.random.default_rng(0)
    documents = [rng.choice([1, 1, 1, 5, 40], rng.integers(2, 12)).tolist() for _ in range(100)]
    pairs = make_pairs(documents, pair_tokenizer, length)
    assert pairs.lengths.max() == length
    assert min(np.diff(pairs.first).min(), np.diff(pairs.second).min()) == 1


def cut(documents: list[list[int]], budget: int, short_sequence_probability: float = 0.0) -> list[list[int]]:
    """Cut documents, given as the lengths of their sentences."""
    ends = offsets(np.array([len(document) for document in documents]))
    bounds = np.stack([ends[:-1], ends[1:]], axis=1)
    sentences = offsets(np.concatenate(documents))
    return cut_documents(
        bounds, sentences, budget, short_sequence_probability, np.random.default_rng(0)
    ).tolist()


def test_a_stretch_reaches_the_budget():
    assert cut([[4] * 6], 12) == [[0, 3], [3, 6]]
    assert cut([[4] * 6], 9) == [[0, 3], [3, 6]]
    assert cut([[40] * 6], 9) == [[0, 2], [2, 4], [4, 6]]
    assert cut([[4] * 6, [4] * 2], 99) == [[0, 6], [6, 8]]


def test_no_sentence_is_left_alone():
    """A stretch of three or more gives its last one away, and one of two takes it in."""
    assert cut([[4] * 7], 12) == [[0, 3], [3, 5], [5, 7]]
    assert cut([[4] * 7, [4] * 3], 8) == [[0, 2], [2, 4], [4, 7], [7, 10]]


@pytest.mark.parametrize("short_sequence_probability", [0.0, 0.1, 1.0])
def test_stretches_are_the_documents(short_sequence_probability):
    rng = np.random.default_rng(1)
    documents = [rng.integers(1, 30, rng.integers(2, 40)).tolist() for _ in range(100)]
    stretches = cut(documents, 64, short_sequence_probability)
    ends = offsets(np.array([len(document) for document in documents])).tolist()
    assert [start for start, _ in stretches[1:]] == [stop for _, stop in stretches[:-1]]
    assert {0, *(stop for _, stop in stretches)} >= set(ends)
    assert min(stop - start for start, stop in stretches) >= 2


@pytest.mark.parametrize("count", [2, 3, 5, 200])
def test_partners_are_of_different_documents_and_everyone_has_one(count):
    rng = np.random.default_rng(count)
    sizes, documents = rng.integers(1, 60, 1001), rng.integers(0, count, 1001)
    partners = find_partners(sizes, documents, rng)
    assert (documents[partners.couples[:, 0]] != documents[partners.couples[:, 1]]).all()
    assert (documents[partners.borrowers] != documents[partners.lenders]).all()
    assert np.array_equal(np.sort([*partners.couples.ravel(), *partners.borrowers]), np.arange(1001))
    assert len(partners.borrowers) < 100
    assert len(np.unique(documents[partners.borrowers])) <= 1
    differences = np.abs(np.diff(sizes[partners.couples]))
    assert differences.mean() < 2


def test_partners_are_equally_long_where_there_are_such():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, 1000)
    partners = find_partners(sizes, np.arange(1000), rng)
    assert (sizes[partners.couples[:, 0]] != sizes[partners.couples[:, 1]]).sum() <= 8


def test_a_lender_is_equally_long_or_the_next_larger():
    sizes = np.array([4, 4, 6, 9, 1, 4, 6, 7, 9, 3])
    documents = np.array([0, 0, 0, 0, 0, 1, 0, 1, 0, 0])
    partners = find_partners(sizes, documents, np.random.default_rng(0))
    assert len(partners.couples) == 2
    for borrower, lender in zip(partners.borrowers, partners.lenders, strict=True):
        assert sizes[lender] == (4 if sizes[borrower] <= 4 else 7)


def test_strangers_are_matched_with_those_that_wait_longest_last():
    couples, left = match_strangers(np.arange(7), np.array([3, 3, 5, 5, 5, 5, 5]))
    assert couples.tolist() == [[1, 2], [0, 3]]
    assert left.tolist() == [4, 5, 6]
