"""The mixture of denoisers of Tay et al. (2022), section 3.1 and table 1."""

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from tercet.pretraining.objectives.mixture_of_denoisers import (
    MODES,
    UL2,
    Denoiser,
    MixtureOfDenoisers,
    longest_text,
)
from tercet.pretraining.objectives.randomness import SequenceDraws
from tercet.pretraining.objectives.span_corruption import count_noise, split_spans

from ...word_level import word_level
from .test_span_corruption import EOS, PAD, make_examples, splice

SEQUENTIAL = len(UL2) - 1


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(110))]
    signs = [*MODES, *(f"<extra_id_{i}>" for i in range(100))]
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return word_level(words, extra_special_tokens=signs, **roles)


@pytest.fixture(scope="module")
def mixture() -> MixtureOfDenoisers:
    return MixtureOfDenoisers(make_tokenizer(), PAD, longest=510)


def test_table_of_the_paper():
    rows = {(one.mode, one.mean_span_length, one.noise_density) for one in UL2}
    assert rows == {
        ("R", 3, 0.15), ("R", 8, 0.15), ("S", None, 0.25),
        ("X", 3, 0.5), ("X", 8, 0.5), ("X", 64, 0.15), ("X", 64, 0.5),
    }  # fmt: skip
    assert {one.weight for one in UL2} == {1.0}


def test_counts_of_the_paper_for_512_tokens():
    """By hand: 15 % are 77 tokens in 26, 10 or 1 spans; 50 % are 256 in 85, 32 or 4; of [S], one span."""
    lengths = np.full(len(UL2), 512)
    densities = np.array([one.noise_density for one in UL2])
    means = np.array([one.mean_span_length or np.inf for one in UL2])
    noise, spans = count_noise(lengths, densities, means)
    assert noise.tolist() == [77, 77, 256, 256, 77, 256, 128]
    assert spans.tolist() == [26, 10, 85, 32, 1, 4, 1]


def test_hand_worked_example():
    """A regular denoiser hides `(w1 w2) w3 (w4)`: a mode, sentinels for the spans, and the end."""
    tokenizer = make_tokenizer()
    mixture = MixtureOfDenoisers(tokenizer, PAD, 20, [Denoiser("R", 0.5, 2.0)])
    mixture.noise_mask = lambda lengths, drawn, rng: np.array([True, True, False, True])  # type: ignore[method-assign]
    ids = np.array(tokenizer.convert_tokens_to_ids(["w1", "w2", "w3", "w4"]))
    sources, targets = mixture.pairs([{"input_ids": ids, "index": 0}], 0)
    assert tokenizer.convert_ids_to_tokens(sources[0].tolist()) == (
        ["[R]", "<extra_id_0>", "w3", "<extra_id_1>", "</s>"]
    )
    assert tokenizer.convert_ids_to_tokens(targets[0].tolist()) == (
        ["<extra_id_0>", "w1", "w2", "<extra_id_1>", "w4", "<extra_id_2>", "</s>"]
    )


@pytest.mark.parametrize("drawn", range(len(UL2)))
def test_masks_have_the_counts_of_their_denoiser(mixture, drawn):
    lengths = np.arange(4, 400)
    noise, spans = count_noise(lengths, mixture.densities[[drawn]], mixture.means[[drawn]])
    is_noise = mixture.noise_mask(lengths, np.full(len(lengths), drawn), SequenceDraws(drawn, lengths))
    for text, expected, number in zip(np.split(is_noise, lengths.cumsum()[:-1]), noise, spans, strict=True):
        begins = np.flatnonzero(np.diff(text.astype(int), prepend=0) == 1)
        assert len(begins) == number
        if drawn != SEQUENTIAL:
            assert text.sum() == expected
        else:
            assert 1 <= text.sum() <= 2 * expected - 1
            assert text[begins[0] :].all()


def test_suffixes_are_a_quarter_on_average(mixture):
    """Uniform from 1 to 49 of 100 tokens."""
    number, length = 20_000, 100
    lengths, drawn = np.full(number, length), np.full(number, SEQUENTIAL)
    is_noise = mixture.noise_mask(lengths, drawn, SequenceDraws(0, np.arange(number))).reshape(number, length)
    sizes = is_noise.sum(axis=1)
    assert (sizes.min(), sizes.max()) == (1, 49)
    assert abs(sizes.mean() - 25) <= 3 * np.sqrt((49**2 - 1) / 12 / number)


def test_spans_stand_everywhere_alike():
    """Of 8 tokens 4 are noise in 2 spans: 3 ways to cut the noise, 10 to place both among 4 kept tokens."""
    draws, ways = 30_000, 30
    mixture = MixtureOfDenoisers(make_tokenizer(), PAD, 20, [Denoiser("X", 0.5, 2.0)])
    lengths, drawn = np.full(draws, 8), np.zeros(draws, dtype=int)
    mask = mixture.noise_mask(lengths, drawn, SequenceDraws(1, np.arange(draws))).reshape(draws, 8)
    assert (mask.sum(axis=1) == 4).all()
    patterns, counts = np.unique(mask, axis=0, return_counts=True)
    assert len(patterns) == ways
    assert np.abs(counts - draws / ways).max() <= 3 * np.sqrt(draws / ways * (1 - 1 / ways))


def test_denoisers_are_drawn_by_their_weights():
    denoisers = [Denoiser("R", 0.15, 3.0, weight=3.0), Denoiser("S", 0.25)]
    tokenizer = make_tokenizer()
    mixture = MixtureOfDenoisers(tokenizer, PAD, 30, denoisers)
    number = 8_000
    sources, _ = mixture.pairs(make_examples([20] * number), 0)
    regular = tokenizer.convert_tokens_to_ids("[R]")
    share = np.mean([source[0] == regular for source in sources])
    assert abs(share - 0.75) <= 3 * np.sqrt(0.75 * 0.25 / number)


def test_sources_begin_with_the_mode_and_splicing_restores_the_text(mixture):
    examples = make_examples([*range(4, 60), 510, 1, 2, 510])
    sources, targets = mixture.pairs(examples, 0)
    modes = {int(idx) for idx in mixture.mode_ids}
    assert {int(source[0]) for source in sources} == modes
    for source, target, example in zip(sources, targets, examples, strict=True):
        assert source[-1] == target[-1] == EOS
        assert splice(source[1:], target, mixture.sentinels, EOS) == example["input_ids"].tolist()


def test_the_fast_way_is_one_text_after_another(mixture):
    """The masks of a pack, text by text, through the same function that parts a single text."""
    examples = make_examples([30, 4, 100])
    drawn = np.array([2, SEQUENTIAL, 0])
    lengths = np.array([30, 4, 100])
    is_noise = mixture.noise_mask(lengths, drawn, SequenceDraws(5, lengths))
    ids = np.concatenate([example["input_ids"] for example in examples])
    packed = split_spans(ids, lengths, is_noise, mixture.sentinels, EOS)
    masks = np.split(is_noise, lengths.cumsum()[:-1])
    for index, (example, mask) in enumerate(zip(examples, masks, strict=True)):
        single = split_spans(example["input_ids"], lengths[[index]], mask, mixture.sentinels, EOS)
        assert [side[0].tolist() for side in single] == [side[index].tolist() for side in packed]


def test_the_longest_text_fits_whatever_is_drawn():
    """510 of 512: a prefix of 509 tokens comes with a mode, a sentinel and an end."""
    assert longest_text(512, UL2) == 510
    for length in (8, 31, 64):
        longest = longest_text(length, UL2)
        mixture = MixtureOfDenoisers(make_tokenizer(), PAD, longest)
        sources, targets = mixture.pairs(make_examples([longest] * 2000), 0)
        assert max(max(map(len, sources)), max(map(len, targets))) == length
