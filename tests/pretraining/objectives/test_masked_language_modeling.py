"""The corruption of Devlin et al. (2019), section 3.1: its definition, its rates, its determinism."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tercet.data.steps.objective import IGNORE
from tercet.pretraining.objectives.masked_language_modeling import MaskedLanguageModeling
from tercet.pretraining.objectives.masking import (
    TOKENS,
    WORDS,
    Corruption,
    DynamicMasking,
    Spans,
    StaticMasking,
)
from tercet.pretraining.objectives.randomness import TokenDraws

from ...word_level import ROLES, SIGNS, word_level

NUM_WORDS = 50
MASK, FIRST_WORD, FIRST_SENTINEL = 3, 5, 55


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    words = [*SIGNS, *(f"w{i}" for i in range(NUM_WORDS))]
    return word_level(words, extra_special_tokens=["<extra_id_0>", "<extra_id_1>"], **ROLES)


def make_examples(lengths: list[int], seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    examples = []
    for index, length in enumerate(lengths):
        words = rng.integers(FIRST_WORD, FIRST_WORD + NUM_WORDS, length)
        starts = np.concatenate([[True], rng.random(length - 1) < 0.6])
        examples.append(
            {
                "input_ids": np.concatenate([[1], words, [2]]).astype(np.int32),
                "word_starts": np.concatenate([[True], starts, [True]]),
                "index": index,
            }
        )
    return examples


def within_three_sigma(count: int, trials: int, probability: float) -> bool:
    sigma = np.sqrt(trials * probability * (1 - probability))
    return abs(count - trials * probability) <= 3 * sigma


def generated(seed: int, tokens: int) -> TokenDraws:
    return TokenDraws(seed, np.arange(1), np.array([tokens]))


class Coins:
    """Draws that are written down."""

    def __init__(self, draws: list[list[float]], integers: list[int]):
        self.draws = iter(draws)
        self.replacements = integers

    def uniform(self, places, purpose):
        draw = next(self.draws)
        assert len(draw) == len(places)
        return np.array(draw)

    def below(self, limit, places, purpose):
        assert len(self.replacements) == len(places)
        return np.array(self.replacements)


def test_hand_worked_example(tokenizer):
    """Five of six words are chosen: two become [MASK], one a random token, two stay; [SEP] never is."""
    ids = np.array([1, 10, 11, 12, 13, 14, 15, 2])
    draws = Coins([[0.0, 0.1, 0.14, 0.15, 0.0, 0.1, 0.1, 0.0], [0.0, 0.79, 0.81, 0.91, 0.99]], [7])
    corrupted, labels = Corruption(tokenizer)([{"input_ids": ids}], ids, draws)
    assert corrupted.tolist() == [1, MASK, MASK, 12, FIRST_WORD + 7, 14, 15, 2]
    assert labels.tolist() == [IGNORE, 10, 11, IGNORE, 13, 14, 15, IGNORE]


@pytest.mark.parametrize("unit", [TOKENS, WORDS])
def test_rates_hold_within_three_sigma(tokenizer, unit):
    examples = make_examples([500] * 800)
    ids = np.concatenate([example["input_ids"] for example in examples]).astype(np.int64)
    corrupted, labels = Corruption(tokenizer, unit=unit)(examples, ids, generated(1, len(ids)))
    chosen = labels != IGNORE
    ordinary = ids >= FIRST_WORD
    masked, kept = corrupted[chosen] == MASK, corrupted[chosen] == ids[chosen]
    same_by_chance = 1 / NUM_WORDS
    if unit is TOKENS:
        assert within_three_sigma(chosen.sum(), ordinary.sum(), 0.15)
    else:
        # Words of geometric lengths: the tokens of one word are chosen together, so the count spreads more.
        starts = np.concatenate([example["word_starts"] for example in examples])
        sizes = np.diff(np.flatnonzero(starts), append=len(ids))
        assert abs(chosen.sum() - 0.15 * ordinary.sum()) <= 3 * np.sqrt((sizes**2).sum() * 0.15 * 0.85)
    assert within_three_sigma(masked.sum(), chosen.sum(), 0.8)
    assert within_three_sigma(kept.sum(), chosen.sum(), 0.1 + 0.1 * same_by_chance)
    assert not chosen[~ordinary].any()
    assert np.array_equal(corrupted[~chosen], ids[~chosen])
    assert np.array_equal(labels[chosen], ids[chosen])


def test_random_tokens_cover_the_vocabulary_and_are_never_special(tokenizer):
    ids = np.full(100_000, FIRST_WORD)
    corruption = Corruption(tokenizer, mlm_probability=0.5, mask_replace_prob=0.0, random_replace_prob=1.0)
    corrupted, labels = corruption([{"input_ids": ids}], ids, generated(2, len(ids)))
    drawn = np.unique(corrupted[labels != IGNORE])
    assert drawn.tolist() == list(range(FIRST_WORD, FIRST_SENTINEL))


def test_words_are_chosen_whole(tokenizer):
    examples = make_examples([40] * 50)
    ids = np.concatenate([example["input_ids"] for example in examples]).astype(np.int64)
    _, labels = Corruption(tokenizer, mlm_probability=0.3, unit=WORDS)(examples, ids, generated(3, len(ids)))
    word = np.cumsum(np.concatenate([example["word_starts"] for example in examples])) - 1
    chosen_tokens = np.bincount(word, weights=labels != IGNORE)
    assert set(chosen_tokens / np.bincount(word)) == {0.0, 1.0}


def test_words_end_where_the_next_sequence_begins():
    """Two sequences without [CLS] and [SEP], both begun inside a word, share no word."""
    examples = [{"input_ids": np.array([5, 6]), "word_starts": np.array([False, False])}] * 2
    chosen = WORDS.choose(examples, np.zeros(4, dtype=bool), 0.5, Coins([[0.1, 0.9]], []))
    assert chosen.is_target.tolist() == [True, True, False, False]


@pytest.mark.parametrize("unit", [TOKENS, WORDS, Spans()])
def test_static_masks_of_a_pack_are_those_of_its_examples(tokenizer, unit):
    objective = MaskedLanguageModeling(StaticMasking(Corruption(tokenizer, unit=unit), seed=7))
    examples = make_examples([30, 1, 50, 20, 300])
    whole, parts = objective.collate(examples, 0), [objective.collate([one], 0) for one in examples]
    for name in ("input_ids", "labels"):
        assert torch.equal(whole[name], torch.cat([part[name] for part in parts], dim=1))


def test_static_rates_hold_within_three_sigma(tokenizer):
    objective = MaskedLanguageModeling(StaticMasking(Corruption(tokenizer), seed=0))
    batch = objective.collate(make_examples([100] * 1000), 0)
    chosen = batch["labels"] != IGNORE
    assert within_three_sigma(chosen.sum().item(), 100_000, 0.15)
    assert within_three_sigma((batch["input_ids"][chosen] == MASK).sum().item(), chosen.sum().item(), 0.8)


class Reader(torch.nn.Module):
    """Answers every position with the logits of the token that it reads."""

    def __init__(self, logits: torch.Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, input_ids, logits_to_keep, **inputs):
        assert "labels" not in inputs
        return type("Output", (), {"logits": self.logits[input_ids[0, logits_to_keep]][None]})


def test_scores_are_those_of_the_chosen_tokens(tokenizer):
    logits = torch.randn(60, 60, generator=torch.Generator().manual_seed(0))
    objective = MaskedLanguageModeling(DynamicMasking(Corruption(tokenizer, mlm_probability=0.5)))
    batch = objective.collate(make_examples([30, 50]), 0)
    scores = objective.scores(Reader(logits), batch)["mlm"]
    answers, labels = logits[batch["input_ids"][0]], batch["labels"][0]
    torch.testing.assert_close(
        scores["loss"], torch.nn.functional.cross_entropy(answers, labels, reduction="sum")
    )
    assert scores["accuracy"] == (answers.argmax(-1) == labels).sum()
    assert objective.targets(batch)["mlm"] == (labels != IGNORE).sum()
