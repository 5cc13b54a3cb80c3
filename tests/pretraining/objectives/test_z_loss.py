"""A z-loss is part of what every objective of tokens learns, and of nothing that is measured."""

from dataclasses import fields
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

from tercet.data.steps.objective import Objective
from tercet.pretraining.objectives.recipes import OBJECTIVES, ObjectiveContext

from .conftest import read

Z_LOSS = 0.01
RECIPES = [recipe for recipe in OBJECTIVES.values() if "z_loss" in {field.name for field in fields(recipe)}]
KINDS = {get_args(get_type_hints(recipe)["kind"])[0]: recipe for recipe in RECIPES}


def make_examples() -> list[dict[str, Any]]:
    """Make twelve examples with what any objective reads of them."""
    rng = np.random.default_rng(0)
    texts = [np.concatenate([[1], rng.integers(5, 55, rng.integers(12, 24)), [2]]) for _ in range(12)]
    return [
        {
            "input_ids": ids,
            "labels": ids[3:],
            "index": index,
            "token_type_ids": np.zeros(len(ids), dtype=int),
            "sentence_starts": np.arange(len(ids)) == 0,
            "next_sentence_label": index % 2,
            "component": index % 2,
        }
        for index, ids in enumerate(texts)
    ]


def build(kind: str, tokenizer, **options) -> tuple[Any, Objective]:
    """Build a small model and an objective, both as a recipe says."""
    torch.manual_seed(0)
    recipe = read(kind, **options)
    config_class: Any = recipe.model_class.config_class
    config = config_class(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=64, decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return recipe.build_model(config), recipe.build(ObjectiveContext(tokenizer, 32, decoder_start_id=0))


def test_the_objectives_of_tokens_have_one():
    assert KINDS.keys() >= {
        "causal_language_modeling",
        "denoising",
        "hybrid_language_modeling",
        "masked_language_modeling",
        "masked_language_modeling_with_next_sentence",
        "masked_next_token_prediction",
        "replaced_token_detection",
        "span_corruption",
        "translation",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_z_loss_is_learned_and_never_scored(kind, tokenizer):
    """It adds the squares of log Z at the vocabulary's targets (Chowdhery et al., 2022, section 5)."""
    changing = {"final_mlm_probability": 0.3} if hasattr(KINDS[kind], "final_mlm_probability") else {}
    model, plain = build(kind, tokenizer)
    _, objective = build(kind, tokenizer, z_loss=Z_LOSS, **changing)
    head = getattr(model, "generator", model).lm_head
    for batch in plain.collate_parts(make_examples(), 0):
        logits = []
        hook = head.register_forward_hook(lambda _, __, result, found=logits: found.append(result[0]))
        with torch.no_grad():
            assert objective.scores(model.eval(), batch) == plain.scores(model, batch)
            hook.remove()
            expected = Z_LOSS * logits[0].logsumexp(-1).square().sum()
            for own in (objective, objective.at(0.5)):
                first, *others = usual = plain.losses(model.train(), batch)
                found = own.losses(model, batch)
                torch.testing.assert_close(found[first] - usual[first], expected, rtol=1e-3, atol=0)
                assert all(found[name] == usual[name] for name in others)
