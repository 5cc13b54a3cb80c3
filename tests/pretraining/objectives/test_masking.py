"""Spans of SpanBERT (Joshi et al., 2020, section 3.1): their definition, their lengths, their rate."""

import numpy as np
import pytest

from tercet.data.steps.objective import IGNORE
from tercet.pretraining.objectives.masking import (
    CHOICE,
    REPLACEMENT,
    SPAN_LENGTH,
    Choice,
    Corruption,
    Spans,
)
from tercet.pretraining.objectives.randomness import TokenDraws

MASK, FIRST_WORD = 3, 5


class WrittenDraws:
    """Draws that are written down by purpose, and looked up by position."""

    def __init__(self, **draws: dict[int, float]):
        self.draws = {CHOICE: draws["coins"], SPAN_LENGTH: draws["lengths"]}

    def uniform(self, positions, purpose):
        return np.array([self.draws[purpose].get(int(position), 0.99) for position in positions])


def sequences(lengths: list[int], with_signs: bool = True, seed: int = 0) -> tuple[list[dict], np.ndarray]:
    """Make examples of words of one to three tokens, and say which tokens are special."""
    rng = np.random.default_rng(seed)
    examples, special = [], []
    for index, length in enumerate(lengths):
        is_special = np.zeros(length, dtype=bool)
        if with_signs:
            is_special[[0, length // 2, -1]] = True
        starts = rng.random(length) < 0.6
        starts[0] = rng.random() < 0.5
        ids = np.where(is_special, 1, rng.integers(FIRST_WORD, 50, length))
        examples.append({"input_ids": ids, "word_starts": starts, "index": index})
        special.append(is_special)
    return examples, np.concatenate(special)


def choose_one_by_one(spans: Spans, examples, special, probability: float, draws) -> Choice:
    """Choose word after word: the definition of `Spans.choose`."""
    lengths = [len(example["input_ids"]) for example in examples]
    is_target, is_first = np.zeros((2, len(special)), dtype=bool)
    for example, end in zip(examples, np.cumsum(lengths).tolist(), strict=True):
        begin = end - len(example["input_ids"])
        words: list[list[int]] = []
        for place in range(begin, end):
            is_new = example["word_starts"][place - begin] or special[place] or place == begin
            if is_new or special[place - 1]:
                words.append([])
            words[-1].append(place)
        left, is_open = 0, True
        for word in words:
            if special[word[0]]:
                left, is_open = 0, True
                continue
            if left == 0:
                kept_between = spans.mean * (1 - probability) / probability
                chance = probability if is_open else 1 / (1 + kept_between)
                if draws.uniform(np.array(word[:1]), CHOICE)[0] < chance:
                    shares = spans.shares_of_rests if is_open else spans.shares
                    draw = draws.uniform(np.array(word[:1]), SPAN_LENGTH)[0]
                    left = 1 + int((draw >= shares.cumsum()[:-1]).sum())
                    is_first[word[0]] = True
            if left:
                is_target[word] = True
                left -= 1
            is_open = False
    return Choice(is_target, is_first)


def test_lengths_are_those_of_the_paper():
    """Mean 3.8, as section 3.1 says; of the ten lengths, 0.2 * 0.8^(l - 1) over what they sum to."""
    spans = Spans()
    assert spans.shares.sum() == pytest.approx(1)
    assert spans.shares[:3] == pytest.approx(np.array([0.2, 0.16, 0.128]) / (1 - 0.8**10))
    assert len(spans.shares) == 10
    assert round(spans.mean, 1) == 3.8
    assert spans.mean == pytest.approx(5 - 10 * 0.8**10 / (1 - 0.8**10))
    assert spans.shares_of_rests.sum() == pytest.approx(1)


def test_hand_worked_example():
    """Of [CLS] an American football game [SEP], `football game` is a span: a rest would begin with `an`."""
    special = np.array([True, False, False, False, False, False, True])
    examples = [
        {"input_ids": np.arange(7), "word_starts": np.array([True, True, True, True, False, True, True])}
    ]
    draws = WrittenDraws(coins={1: 0.15, 2: 0.05, 3: 0.04}, lengths={3: 0.5})
    choice = Spans().choose(examples, special, 0.15, draws)
    assert choice.is_target.tolist() == [False, False, False, True, True, True, False]
    assert np.flatnonzero(choice.is_first).tolist() == [3]
    begun_before = WrittenDraws(coins={1: 0.14, 3: 0.04}, lengths={1: 0.4, 3: 0.0})
    choice = Spans().choose(examples, special, 0.15, begun_before)
    assert choice.is_target.tolist() == [False, True, True, True, True, False, False]
    assert np.flatnonzero(choice.is_first).tolist() == [1, 3]


@pytest.mark.parametrize("probability", [0.15, 0.5, 0.9])
@pytest.mark.parametrize("with_signs", [True, False])
@pytest.mark.parametrize("spans", [Spans(), Spans(0.5, 3), Spans(0.01, 40), Spans(0.9, 1)])
def test_spans_of_a_pack_are_those_found_word_after_word(spans, with_signs, probability):
    examples, special = sequences([30, 3, 4, 200, 5, 77], with_signs)
    lengths = np.array([len(example["input_ids"]) for example in examples])
    draws = TokenDraws(0, np.arange(len(lengths)), lengths)
    found = spans.choose(examples, special, probability, draws)
    expected = choose_one_by_one(spans, examples, special, probability, draws)
    assert found.is_target.any()
    assert found.is_target.tolist() == expected.is_target.tolist()
    assert found.is_first.tolist() == expected.is_first.tolist()


def drawn(spans: Spans, number: int, words: int, probability: float, seed: int) -> tuple[np.ndarray, ...]:
    """Draw spans in many texts of words of one token: targets and first ones (number, words)."""
    starts = np.ones((number, words), dtype=bool)
    examples = [{"input_ids": row, "word_starts": row} for row in starts]
    special = np.zeros(number * words, dtype=bool)
    choice = spans.choose(
        examples, special, probability, TokenDraws(seed, np.arange(number), np.full(number, words))
    )
    return choice.is_target.reshape(number, words), choice.is_first.reshape(number, words)


@pytest.mark.parametrize("probability", [0.15, 0.4])
def test_every_word_of_a_text_is_as_often_masked(probability):
    """Also the first one and the last one."""
    number = 40_000
    is_target, _ = drawn(Spans(), number, 24, probability, seed=0)
    sigma = np.sqrt(probability * (1 - probability) / number)
    shares = is_target.mean(axis=0)
    assert np.abs(shares[[0, 1, 5, 12, 23]] - probability).max() <= 3 * sigma
    of_texts = is_target.mean(axis=1)
    assert abs(of_texts.mean() - probability) <= 3 * of_texts.std() / np.sqrt(number)


def test_lengths_of_spans_are_geometric_up_to_ten():
    """Of those that begin where nothing cuts them: behind the first word, ten words before the end."""
    spans = Spans()
    is_target, is_first = drawn(spans, 20_000, 24, 0.15, seed=1)
    bounds = is_first | ~is_target
    counts = np.zeros(10)
    for row, column in zip(*np.nonzero(is_first[:, 1:14]), strict=True):
        rest = bounds[row, column + 2 :]
        counts[rest.argmax() if rest.any() else len(rest)] += 1
    number = counts.sum()
    sigma = np.sqrt(number * spans.shares * (1 - spans.shares))
    assert np.abs(counts - number * spans.shares).max() <= 3 * sigma.max()
    lengths = np.arange(1, 11)
    spread = np.sqrt(spans.shares @ lengths**2 - spans.mean**2)
    assert abs(counts @ lengths / number - spans.mean) <= 3 * spread / np.sqrt(number)


def test_all_tokens_of_a_span_are_replaced_alike(pair_tokenizer):
    examples, special = sequences([300] * 200)
    ids = np.concatenate([example["input_ids"] for example in examples]).astype(np.int64)
    draws = TokenDraws(3, np.arange(200), np.full(200, 300))
    corruption = Corruption(pair_tokenizer, random_replace_prob=0.0, unit=Spans())
    corrupted, labels = corruption(examples, ids, draws)
    choice = Spans().choose(examples, special, 0.15, draws)
    assert np.array_equal(labels != IGNORE, choice.is_target)
    span = choice.is_first.cumsum()[choice.is_target]
    is_masked = (corrupted == MASK)[choice.is_target]
    masked, sizes = np.bincount(span, weights=is_masked), np.bincount(span)
    assert set((masked[1:] / sizes[1:]).tolist()) == {0.0, 1.0}
    draw = draws.uniform(np.flatnonzero(choice.is_first), REPLACEMENT)
    assert np.array_equal(masked[1:] > 0, draw < 0.8)
    number = len(masked) - 1
    assert abs((masked[1:] > 0).sum() - 0.8 * number) <= 3 * np.sqrt(number * 0.8 * 0.2)
