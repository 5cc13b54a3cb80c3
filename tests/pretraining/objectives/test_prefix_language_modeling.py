"""The prefix language modeling of Raffel et al. (2020), section 3.3.1 and table 3."""

import numpy as np

from tercet.data.steps.packing import ragged
from tercet.pretraining.objectives.prefix_language_modeling import (
    PrefixLanguageModeling,
    draw_suffixes,
    split_suffixes,
)
from tercet.pretraining.objectives.randomness import SequenceDraws

from .test_span_corruption import EOS, PAD, make_examples, make_tokenizer


def test_example_of_the_paper():
    """Table 3: `Thank you for inviting` is read, `me to your party last week` is written."""
    tokenizer = make_tokenizer()
    text = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
    ids = ragged([np.array(tokenizer.convert_tokens_to_ids(text)), np.array([20, 21, 22])])
    sources, targets = split_suffixes(ids, np.array([6, 1]), EOS)
    assert tokenizer.convert_ids_to_tokens(sources[0].tolist()) == [*text[:4], "</s>"]
    assert tokenizer.convert_ids_to_tokens(targets[0].tolist()) == [*text[4:], "</s>"]
    assert (sources[1].tolist(), targets[1].tolist()) == ([20, 21, EOS], [22, EOS])


def test_source_and_target_are_the_text():
    examples = make_examples([2, 3, 40, 2, 17])
    objective = PrefixLanguageModeling(make_tokenizer(), PAD)
    sources, targets = objective.pairs(examples, 0)
    for source, target, example in zip(sources, targets, examples, strict=True):
        assert source[-1] == target[-1] == EOS
        assert min(len(source), len(target)) > 1
        assert [*source[:-1], *target[:-1]] == example["input_ids"].tolist()


def test_prefixes_of_all_lengths_are_equally_likely():
    draws, most = 30_000, 6
    counts = np.bincount(draw_suffixes(np.full(draws, most), SequenceDraws(0, np.arange(draws))), minlength=8)
    assert counts[0] == counts[most + 1] == 0
    sigma = np.sqrt(draws / most * (1 - 1 / most))
    assert np.abs(counts[1 : most + 1] - draws / most).max() <= 3 * sigma


def test_the_decoder_reads_the_suffix_one_step_late():
    objective = PrefixLanguageModeling(make_tokenizer(), PAD, label_smoothing=0.1)
    batch = objective.collate(make_examples([9]), 1)
    assert batch["decoder_input_ids"][0].tolist() == [PAD, *batch["labels"][0, :-1].tolist()]
    assert objective.targets(batch) == {"prefix_lm": batch["labels"].numel()}
    assert objective.label_smoothing == 0.1
