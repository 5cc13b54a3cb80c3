"""Rearranged texts of Bavarian et al. (2022), section 3, and their statistics."""

import numpy as np
from transformers import PreTrainedTokenizerFast

from tercet.data.steps.packing import Ragged, ragged
from tercet.pretraining.objectives.fill_in_the_middle import (
    FIM_TOKENS,
    FillInTheMiddle,
)

from ...word_level import word_level

BOS, EOS, FIRST_WORD = 0, 1, 3


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<s>", "</s>", "<pad>", *(f"w{i}" for i in range(100))]
    roles = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<pad>"}
    return word_level(words, extra_special_tokens=list(FIM_TOKENS), **roles)


def make_sequences(lengths: list[int], are_ended: list[bool]) -> Ragged:
    """Make sequences of numbered words behind the beginning, some with the end of their document."""
    words = np.arange(FIRST_WORD, FIRST_WORD + 90)
    ends = [[EOS] if is_ended else [] for is_ended in are_ended]
    return ragged(
        [np.concatenate([[BOS], words[:n], end]).astype(int) for n, end in zip(lengths, ends, strict=True)]
    )


def numbered(rows: Ragged) -> list[dict]:
    return [{"input_ids": row, "index": index} for index, row in enumerate(rows)]


def arrange(objective: FillInTheMiddle, sequence: list[int], begin: int, end: int, is_spm: bool) -> list[int]:
    """Rearrange one sequence whose middle is its words `begin` to `end`: the definition."""
    before, middle_token, behind = objective.fim_ids.tolist()
    text = [token for token in sequence if token not in (BOS, EOS)]
    prefix, middle, suffix = text[:begin], text[begin:end], text[end:]
    if is_spm:
        return [BOS, before, behind, *suffix, middle_token, *prefix, *middle, EOS]
    return [BOS, before, *prefix, behind, *suffix, middle_token, *middle, EOS]


def test_hand_worked_example():
    """`w0 w1 | w2 | w3 w4` as PSM and as SPM, and as it is."""
    tokenizer = make_tokenizer()
    objective = FillInTheMiddle(tokenizer)
    ids = make_sequences([5, 5, 5], [True, False, True])
    texts = objective.texts_of(ids)
    cuts = texts[0][:, None] + np.array([[2, 3]] * 3)
    packed = objective.rearrange(
        ids, texts, cuts, np.array([True, True, False]), np.array([False, True, True])
    )
    psm, spm, untouched = (
        [str(word) for word in tokenizer.convert_ids_to_tokens(row.tolist())] for row in packed
    )
    assert " ".join(psm) == "<s> <fim_prefix> w0 w1 <fim_suffix> w3 w4 <fim_middle> w2 </s>"
    assert " ".join(spm) == "<s> <fim_prefix> <fim_suffix> w3 w4 <fim_middle> w0 w1 w2 </s>"
    assert " ".join(untouched) == "<s> w0 w1 w2 w3 w4 </s>"


def test_a_pack_is_rearranged_as_one_sequence_after_another():
    objective, rng = FillInTheMiddle(make_tokenizer()), np.random.default_rng(0)
    lengths = rng.integers(0, 30, 200)
    ids = make_sequences(lengths.tolist(), (rng.random(200) < 0.5).tolist())
    texts = objective.texts_of(ids)
    assert (texts[1] - texts[0]).tolist() == lengths.tolist()
    places = np.sort(rng.integers(0, lengths[:, None] + 1, (200, 2)), axis=1)
    is_rearranged, is_spm = rng.random((2, 200)) < 0.5
    found = objective.rearrange(ids, texts, texts[0][:, None] + places, is_rearranged, is_spm)
    for index in range(200):
        expected = ids[index].tolist()
        if is_rearranged[index]:
            begin, end = places[index].tolist()
            expected = arrange(objective, expected, begin, end, bool(is_spm[index]))
        assert found[index].tolist() == expected


def test_shares_hold_within_three_sigma():
    number, (fim_rate, spm_rate) = 20_000, (0.6, 0.3)
    objective = FillInTheMiddle(make_tokenizer(), fim_rate, spm_rate)
    examples = numbered(make_sequences([6] * number, [True] * number))
    rows = list(objective.sequences(examples, 0))
    before, _, behind = objective.fim_ids.tolist()
    rearranged = [row for row in rows if row[1] == before]
    assert all((row == examples[0]["input_ids"]).all() for row in rows if row[1] != before)
    assert abs(len(rearranged) - number * fim_rate) <= 3 * np.sqrt(number * fim_rate * (1 - fim_rate))
    # An empty prefix makes PSM look like SPM: 1 of 7 places is the first one, for both cuts' smaller one.
    looks_spm = spm_rate + (1 - spm_rate) * (1 - (6 / 7) ** 2)
    number = len(rearranged)
    found = sum(row[2] == behind for row in rearranged)
    assert abs(found - number * looks_spm) <= 3 * np.sqrt(number * looks_spm * (1 - looks_spm))


def test_both_cuts_are_uniform():
    """Of 3 words there are 4 places, so 16 pairs; a middle of n words has a chance of 4, 6, 4, 2 of 16."""
    number = 20_000
    objective = FillInTheMiddle(make_tokenizer(), 1.0, 0.0)
    examples = numbered(make_sequences([3] * number, [False] * number))
    rows = objective.sequences(examples, 1)
    middle = objective.fim_ids[1]
    counts = np.bincount([len(row) - 2 - row.tolist().index(middle) for row in rows], minlength=4)
    expected = number * np.array([4, 6, 4, 2]) / 16
    assert (np.abs(counts - expected) <= 3 * np.sqrt(expected * (1 - expected / number))).all()


def test_all_tokens_but_the_first_are_targets():
    objective = FillInTheMiddle(make_tokenizer(), 1.0)
    examples = numbered(make_sequences([5, 9], [True, False]))
    batch = objective.collate(examples, 0)
    assert batch["labels"].equal(batch["input_ids"])
    assert objective.targets(batch) == {"fill_in_the_middle": 5 + 9 + 2 * 4}


def test_nothing_is_rearranged_at_a_rate_of_0():
    objective = FillInTheMiddle(make_tokenizer(), 0.0)
    ids = make_sequences([5, 9], [True, False])
    found = objective.sequences(numbered(ids), 0)
    assert found.values.tolist() == ids.values.tolist()
