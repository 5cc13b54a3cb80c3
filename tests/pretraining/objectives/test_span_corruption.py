"""The span corruption of Raffel et al. (2020), section 3.1.4."""

from collections.abc import Iterable

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from tercet.pretraining.objectives.randomness import SequenceDraws
from tercet.pretraining.objectives.span_corruption import (
    SpanCorruption,
    corrupted_lengths,
    count_noise,
    noise_mask,
    split_spans,
    uncorrupted_length,
)

from ...word_level import word_level

TEXT = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
PAD, EOS = 0, 1


def splice(source: Iterable[int], target: Iterable[int], sentinels: Iterable[int], eos_id: int) -> list[int]:
    """Put the spans of a target (or of what a model generated) in place of their sentinels in the source."""
    runs: dict[int, list[int]] = {}
    current: list[int] = []
    sentinel_set = set(map(int, sentinels))
    for token in map(int, target):
        if token == eos_id:
            break
        if token in sentinel_set:
            current = runs.setdefault(token, [])
        else:
            current.append(token)
    spliced = ([token] if token not in sentinel_set else runs.get(token, []) for token in map(int, source))
    return [token for run in spliced for token in run if token != eos_id]


def make_tokenizer(num_sentinels: int = 30) -> PreTrainedTokenizerFast:
    words = ["<pad>", "</s>", "<unk>", *TEXT, *(f"w{i}" for i in range(100))]
    sentinels = [f"<extra_id_{i}>" for i in range(num_sentinels)]
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return word_level(words, extra_special_tokens=sentinels, **roles)


def make_examples(lengths: list[int]) -> list[dict]:
    rng = np.random.default_rng(0)
    return [
        {"input_ids": rng.integers(3, 113, length).astype(np.uint16), "index": index}
        for index, length in enumerate(lengths)
    ]


def test_example_of_the_paper():
    tokenizer = make_tokenizer()
    objective = SpanCorruption(tokenizer, PAD, longest=10)
    hidden = np.isin(TEXT, ["for", "inviting", "last"])
    sources, targets = split_spans(
        np.array(tokenizer.convert_tokens_to_ids(TEXT)),
        np.array([len(TEXT)]),
        hidden,
        objective.sentinels,
        EOS,
    )
    assert tokenizer.convert_ids_to_tokens(sources[0].tolist()) == (
        ["Thank", "you", "<extra_id_0>", "me", "to", "your", "party", "<extra_id_1>", "week", "</s>"]
    )
    assert tokenizer.convert_ids_to_tokens(targets[0].tolist()) == (
        ["<extra_id_0>", "for", "inviting", "<extra_id_1>", "last", "<extra_id_2>", "</s>"]
    )


def test_a_text_of_568_fills_a_sequence_of_512():
    """As in T5's code: 85 of 568 tokens in 28 runs; the target has the last sentinel more than there."""
    hidden, spans = count_noise(np.array([568]), 0.15, 3.0)
    assert (hidden.item(), spans.item()) == (85, 28)
    source, target = corrupted_lengths(np.array([568]), 0.15, 3.0)
    assert (source.item(), target.item()) == (568 - 85 + 28 + 1, 85 + 28 + 2) == (512, 115)
    assert uncorrupted_length(512, 0.15, 3.0) == 568


@pytest.mark.parametrize("rate", [0.01, 0.15, 0.5, 0.9, 0.999, 1 - 1e-12])
@pytest.mark.parametrize("mean", [1.0, 3.0, 100.0])
def test_the_longest_text_fits_and_no_longer_one_does(rate, mean):
    for sequence_length in (2, 3, 8, 64):
        texts = np.arange(1, 1000)
        sides = np.maximum(*corrupted_lengths(texts, rate, mean))
        expected = texts[sides <= sequence_length]
        assert uncorrupted_length(sequence_length, rate, mean) == expected.max()


@pytest.mark.parametrize("lengths", [[568], [1, 2, 3, 1, 1, 10, 40, 2], list(range(1, 200))])
@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.5, 1.0), (0.9, 10.0)])
def test_splicing_the_target_into_the_source_restores_the_text(lengths, rate, mean):
    tokenizer = make_tokenizer(300)
    objective = SpanCorruption(tokenizer, PAD, max(lengths), rate, mean)
    examples = make_examples(lengths)
    sources, targets = objective.pairs(examples, 1)
    expected = corrupted_lengths(np.array(lengths), rate, mean)
    assert [len(source) for source in sources] == expected[0].tolist()
    assert [len(target) for target in targets] == expected[1].tolist()
    for source, target, example in zip(sources, targets, examples, strict=True):
        assert source[-1] == target[-1] == EOS
        assert splice(source, target, objective.sentinels, EOS) == example["input_ids"].tolist()
        used = [token for token in target if token in objective.sentinels]
        assert used == objective.sentinels[: len(used)].tolist()


def test_noise_at_the_edges_of_texts_stays_in_them():
    """Of a (b) c (d) and (e f) g, the noise of neighbouring texts does not join."""
    is_noise = np.array([False, True, False, True, True, True, False])
    ids, sentinels = np.arange(10, 17), np.array([90, 91, 92])
    sources, targets = split_spans(ids, np.array([4, 3]), is_noise, sentinels, EOS)
    assert [source.tolist() for source in sources] == [[10, 90, 12, 91, EOS], [90, 16, EOS]]
    assert [target.tolist() for target in targets] == [[90, 11, 91, 13, 92, EOS], [90, 14, 15, 91, EOS]]


def test_runs_are_drawn_uniformly():
    """Of 8 tokens 4 are hidden in 2 runs: the 3 x 3 ways to cut hidden and kept ones are alike likely."""
    draws, ways = 20_000, 9
    mask = noise_mask(np.full(draws, 8), 0.5, 2.0, SequenceDraws(2, np.arange(draws))).reshape(draws, 8)
    assert (mask.sum(axis=1) == 4).all()
    assert not mask[:, 0].any()
    assert mask[:, -1].all()
    patterns, counts = np.unique(mask, axis=0, return_counts=True)
    assert len(patterns) == ways
    sigma = np.sqrt(draws / ways * (1 - 1 / ways))
    assert np.abs(counts - draws / ways).max() <= 3 * sigma


def test_rate_and_mean_length_are_exact_on_long_texts():
    mask = noise_mask(np.full(500, 568), 0.15, 3.0, SequenceDraws(3, np.arange(500))).reshape(500, 568)
    assert (mask.sum(axis=1) == 85).all()
    runs = (mask[:, 1:] & ~mask[:, :-1]).sum(axis=1)
    assert (runs == 28).all()


def test_collation_is_a_function_of_the_seed():
    objective = SpanCorruption(make_tokenizer(), PAD, 100)
    batches = [objective.collate(make_examples([100, 50]), seed) for seed in (1, 1, 2)]
    assert batches[0]["labels"].equal(batches[1]["labels"])
    assert not batches[0]["labels"].equal(batches[2]["labels"])
    assert batches[0]["decoder_input_ids"][0, 0] == PAD
    assert objective.targets(batches[0])["span_corruption"] == batches[0]["labels"].numel()
