"""What scores of attention cost: their matrices, and the memory of what is compared."""

import pytest

from tercet.objectives.base_recipe import FullSequence
from tercet.planning.model_costs import build_planned_model, count, count_flops, trace_kept

from .test_model_costs import recipe_of


@pytest.mark.parametrize(
    ("score", "weights", "of_queries", "of_keys"),
    [
        ("dot_product", 0, 0, 0),
        ("bilinear", 4 * 24 * 24, 4 * 24 * 24, 0),
        ("additive", 2 * 4 * 24 * 24 + 4 * 24, 4 * 24 * 24, 4 * 24 * 24),
        ("concatenated", 4 * 24, 0, 0),
    ],
)
def test_a_score_costs_its_matrices(score, weights, of_queries, of_keys):
    """D x D weights for a head's matrix, and six operations for each and token; v is in that of pairs."""
    for kind, attentions in (("causal_language_modeling", 2), ("translation", 6)):
        models = [
            build_planned_model(recipe_of(kind, head_dim=24, **more))
            for more in ({}, {"attention_score": score})
        ]
        plain, scored = models
        assert count([scored]) - count([plain]) == attentions * weights
        sequence = FullSequence(50, 30 * (kind == "translation"), 10)
        queries, keys = (2 * 50 + 4 * 30, 4 * 50 + 2 * 30) if kind == "translation" else (2 * 50, 2 * 50)
        added = 6 * (queries * of_queries + keys * of_keys)
        assert count_flops(scored, sequence) - count_flops(plain, sequence) == added


def test_additive_scores_are_all_that_is_kept_of_their_hidden_layer():
    """Scores grow with the square of the length; the D channels of each pair are not kept."""
    config = build_planned_model(recipe_of("causal_language_modeling")).config
    config.attention_score = "additive"
    short, long = (
        trace_kept(config, FullSequence(length, 0, length - 1), precision="fp32").per_sequence
        for length in (64, 128)
    )
    of_pairs = config.num_hidden_layers * config.num_attention_heads * 4 * 128 * 128
    assert long - 2 * short < 4 * of_pairs
