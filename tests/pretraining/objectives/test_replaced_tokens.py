"""Replaced-token detection: its batches, its targets and its recipe."""

import numpy as np
import torch

from tercet.data.steps.objective import IGNORE
from tercet.data.steps.packing import select_sequences, slice_sequences
from tercet.modeling import TercetEncoderConfig
from tercet.pretraining.objectives.recipes import ObjectiveContext

from .conftest import read

EXAMPLES = [
    {"input_ids": np.array([1, *range(5 + start, 5 + start + size), 2]), "index": start}
    for start, size in ((0, 12), (3, 7), (20, 28))
]


KIND = "replaced_token_detection"


def build(tokenizer, **fields):
    return read(KIND, **fields).build(ObjectiveContext(tokenizer, 32))


def test_the_numbers_are_those_of_the_paper():
    """Section 2 (15 %, all of them masked), section 3.1 (lambda), table 6 (the small generator)."""
    recipe = read(KIND)
    assert (recipe.mlm_probability, recipe.mask_replace_prob, recipe.random_replace_prob) == (0.15, 1, 0)
    assert (recipe.discriminator_weight, recipe.generator_size) == (50, 0.25)


def test_the_discriminator_counts_fifty_times(pair_tokenizer):
    assert build(pair_tokenizer).weights == {"mlm": 1.0, "rtd": 50.0}
    assert build(pair_tokenizer, discriminator_weight=3).weights == {"mlm": 1.0, "rtd": 3.0}


def test_every_real_token_is_judged_and_masked_ones_are_predicted(pair_tokenizer):
    objective = build(pair_tokenizer)
    batch = objective.collate(EXAMPLES, 0)
    targets = objective.targets(batch)
    assert targets["rtd"] == 14 + 9 + 30
    assert targets["mlm"] == (batch["labels"] != IGNORE).sum() > 0
    is_masked = batch["labels"] != IGNORE
    assert (batch["input_ids"][is_masked] == pair_tokenizer.mask_token_id).all()


def test_the_masking_probability_may_change_in_a_run(pair_tokenizer):
    objective = build(pair_tokenizer, mlm_probability=0.5, final_mlm_probability=0.1, discriminator_weight=20)
    many = [{"input_ids": np.arange(5, 55), "index": index} for index in range(100)]
    for progress, probability in ((0.0, 0.5), (1.0, 0.1)):
        batch = objective.at(progress).collate(many, 0)
        masked = objective.targets(batch)["mlm"] / 5000
        assert abs(masked - probability) < 3 * np.sqrt(probability * (1 - probability) / 5000)
        assert objective.at(progress).weights == {"mlm": 1.0, "rtd": 20.0}


def test_what_decides_the_samples_is_a_number_below_one(pair_tokenizer):
    draws = build(pair_tokenizer).collate(EXAMPLES, 0)["draws"]
    assert draws.dtype == torch.float32
    assert ((draws >= 0) & (draws < 1)).all()


def test_the_losses_of_sequences_add_up(pair_tokenizer):
    """However a step is cut into micro-batches or dealt out to processes: the same tokens are replaced."""
    objective = build(pair_tokenizer, mlm_probability=0.5)
    batch = objective.collate(EXAMPLES, 0)
    config = TercetEncoderConfig(
        vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    torch.manual_seed(0)
    model = read(KIND).build_model(config)
    whole = objective.losses(model, batch)
    parts = [slice_sequences(select_sequences(batch, np.array([2, 0, 1])), i, i + 1) for i in range(3)]
    for term, loss in whole.items():
        torch.testing.assert_close(sum(objective.losses(model, part)[term] for part in parts), loss)


def test_a_judgement_is_right_on_its_side_of_zero(pair_tokenizer):
    """A discriminator that suspects every token is right about the replaced ones alone."""
    objective = build(pair_tokenizer, mlm_probability=0.5)
    batch = objective.collate(EXAMPLES, 0)
    config = TercetEncoderConfig(
        vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
    )
    model = read(KIND).build_model(config).eval()
    with torch.no_grad():
        replaced = objective.call(model, batch).replaced.sum()
        accuracies = []
        for bias in (1e3, -1e3):
            model.discriminator.replaced_token_head.out_proj.bias.fill_(bias)
            accuracies.append(objective.scores(model, batch)["rtd"]["accuracy"])
    assert accuracies == [replaced, batch["labels"].numel() - replaced]
    assert replaced > 0
