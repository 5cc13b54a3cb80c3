"""What a model costs, by shapes alone, equals what a model that computes counts, keeps and remembers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, PreTrainedTokenizerFast

from tercet.configs.recipe import load_preset
from tercet.data.steps.objective import Batch, Objective
from tercet.data.steps.packing import sequence_lengths
from tercet.modeling import TercetDecoderForCausalLM
from tercet.pretraining.objectives.fill_in_the_middle import FIM_TOKENS
from tercet.pretraining.objectives.masked_pairs import PAIR_LABELS
from tercet.pretraining.objectives.mixture_of_denoisers import MODES
from tercet.pretraining.objectives.recipes import FullSequence, ObjectiveContext
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.tools.plan.machines import PlanRecipe
from tercet.tools.plan.model_costs import (
    DTYPES,
    build_planned_model,
    count,
    count_embeddings,
    count_flops,
    kept_by,
    optimizer_bytes,
)
from tercet.tools.plan.plan import plan_run
from tercet.training.devices.gradient_checkpointing import enable_gradient_checkpointing
from tercet.training.optimizers.optimizers import build_optimizer

from ...corpora import make_corpus
from ...pretraining.conftest import unread_recipe
from ...pretraining_parts import model_of
from ...word_level import ROLES, SIGNS, word_level
from .counting import LiveMemory, bytes_kept, flops_of_sequence

WORDS = [*SIGNS, *(f"w{number}" for number in range(395))]
PRESETS = {
    "masked_language_modeling": "bert-base",
    "masked_language_modeling_with_next_sentence": "encoder-tiny",
    "masked_language_modeling_with_sentence_order": "encoder-tiny",
    "causal_language_modeling": "decoder-tiny",
    "fill_in_the_middle": "decoder-tiny",
    "translation": "vaswani-base",
    "span_corruption": "seq2seq-tiny",
    "prefix_language_modeling": "seq2seq-tiny",
    "mixture_of_denoisers": "seq2seq-tiny",
    "denoising": "bart-base",
}
COUNTED = ("masked_language_modeling", "causal_language_modeling", "translation", "span_corruption")
JOINT = {"replaced_token_detection": "electra-small", "sentence_denoising": "bert-base"}
RANDOM_LENGTHS = {"fill_in_the_middle", "prefix_language_modeling", "mixture_of_denoisers"}
"""Objectives of which the longest texts are read and written in parts of random lengths."""
MANY = 750
"""Examples of which these have the expected lengths on average."""
SIZES = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE_HEADS = {
    "head_dim": 24,
    "num_key_value_heads": 2,
    "use_qk_norm": True,
    "attention_bias": True,
    "attention_out_bias": False,
}
PARALLEL = {
    "norm_placement": "parallel",
    "rope_parameters": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.25},
}
MODELS = [
    *((kind, {}) for kind in PRESETS),
    ("causal_language_modeling", WIDE_HEADS),
    ("causal_language_modeling", PARALLEL),
    ("span_corruption", WIDE_HEADS),
    ("causal_language_modeling", {"attention_gate": "elementwise", "head_dim": 24}),
    ("span_corruption", {"attention_gate": "headwise", "feed_forward_type": "plain", "hidden_act": "relu2"}),
    ("masked_language_modeling", {"embedding_size": 48}),
    ("span_corruption", {"position_embedding_type": "relative_bias"}),
]
"""An objective, and fields in which its model differs from the preset."""


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    more = [*(f"<extra_id_{i}>" for i in range(14)), *FIM_TOKENS, *MODES]
    return word_level(WORDS, **ROLES, bos_token="[CLS]", eos_token="[SEP]", extra_special_tokens=more)


def recipe_of(kind: str, sequence_length: int = 64, **overrides) -> PretrainingRecipe:
    """Make a recipe with a small model and the vocabulary of the tokenizer above."""
    model = {"preset": PRESETS[kind], "overrides": SIZES | overrides}
    return unread_recipe(kind, model, sequence_length, tokenizer={"vocab_size": len(WORDS) + 20})


def full_batch(recipe: PretrainingRecipe, tokenizer, objective: Objective, size: int) -> Batch:
    """Collate sequences of full length, from long documents."""
    corpora = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        length = recipe.corpus.sequence_length
        # A translation is a document, and has an end.
        document = [length - 1] if recipe.objective.kind == "translation" else [10] * (2 * length)
        tokens = rng.integers(5, len(WORDS), 40 * sum(document)).astype(np.uint16)
        corpora.append(make_corpus([document] * 40, tokens))
    corpus = tuple(corpora) if recipe.objective.kind == "translation" else corpora[0]
    source = recipe.objective.examples(
        corpus, ObjectiveContext(tokenizer, recipe.corpus.sequence_length)
    ).epoch(0)
    longest = np.flatnonzero(source.lengths == source.lengths.max())[:size]
    assert len(longest) == size
    return objective.collate([source[int(index)] for index in longest], 0)


def prepare(recipe: PretrainingRecipe, tokenizer, size: int):
    """Build the model that computes, and a full batch for it."""
    model = model_of(recipe, tokenizer).train()
    objective = recipe.objective.build(
        ObjectiveContext(tokenizer, recipe.corpus.sequence_length, decoder_start_id=0)
    )
    return model, objective, full_batch(recipe, tokenizer, objective, size)


def lengths_of(batch: Batch) -> tuple[int, int]:
    """Count the tokens that are read and written."""
    written = batch["decoder_input_ids"].numel() if "decoder_input_ids" in batch else 0
    return batch["input_ids"].numel(), written


@pytest.mark.parametrize("kind", PRESETS)
def test_a_full_sequence_is_the_longest_that_examples_have(kind, tokenizer):
    recipe, size = recipe_of(kind), MANY if kind in RANDOM_LENGTHS else 8
    _, objective, batch = prepare(recipe, tokenizer, size)
    read, written = (number / size for number in lengths_of(batch))
    expected = recipe.objective.full_sequence(recipe.corpus.sequence_length)
    targets = {name: int(number) / size for name, number in objective.targets(batch).items()}
    # How many masks an infilled text has, and how many tokens are hidden, is random.
    assert (expected.read, expected.written) == pytest.approx((read, written), rel=0.06)
    assert expected.targets == pytest.approx(next(iter(targets.values())), rel=0.3)
    assert expected.pairs == sum(targets.get(term, 0) for term in PAIR_LABELS)
    if kind not in RANDOM_LENGTHS | {"denoising"}:
        assert (expected.read, expected.written) == (read, written)


@pytest.mark.parametrize(("kind", "fields"), MODELS)
def test_parameters_and_optimizer_are_those_of_the_model_that_trains(kind, fields, tokenizer):
    recipe = recipe_of(kind, **fields)
    planned, model = build_planned_model(recipe), model_of(recipe, tokenizer)
    assert count([planned]) == sum(p.numel() for p in model.parameters())
    assert count_embeddings(planned) < count([planned])
    optimizer = build_optimizer(model, recipe.training.optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    states = (value for state in optimizer.state.values() for value in state.values())
    held = sum(value.numel() * value.element_size() for value in states)
    assert optimizer_bytes(planned, recipe.training) == held > 8 * count([planned])


def test_a_moving_average_takes_four_bytes_a_parameter():
    recipe = recipe_of("causal_language_modeling")
    model = build_planned_model(recipe)
    plain, averaged = (
        optimizer_bytes(model, replace(recipe.training, ema_decay=decay)) for decay in (None, 0.999)
    )
    assert averaged - plain == 4 * count([model])


@pytest.mark.parametrize("kind", COUNTED)
def test_operations_are_nearly_those_that_torch_counts(kind, tokenizer):
    """Within 10 %: a run counts the last layer whole, and halves the weights of two stacks."""
    recipe = recipe_of(kind, num_hidden_layers=8)
    model, objective, batch = prepare(recipe, tokenizer, 4)
    counted = flops_of_sequence(model, objective, batch, 4, int(sequence_lengths(batch).sum()))
    read, written = (number // 4 for number in lengths_of(batch))
    targets = int(next(iter(objective.targets(batch).values()))) / 4
    planned = count_flops([(build_planned_model(recipe), FullSequence(read, written, targets))])
    assert planned == pytest.approx(counted, rel=0.1)


def kept_in_training(model, objective, batch, precision: str) -> int:
    """Count the bytes that autograd keeps of a model that computes."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        return bytes_kept(model, lambda: objective.losses(model, batch))


def planned_kept(recipe: PretrainingRecipe, precision: str, *, computes_again: bool = False) -> float:
    """Plan the bytes that are kept of a sequence on a CPU."""
    parts = recipe.objective.parts(build_planned_model(recipe), recipe.corpus.sequence_length)
    options = {"is_cpu": True, "computes_again": computes_again}
    return kept_by(parts, DTYPES[precision], torch.float32, **options).per_sequence


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.slow), "bf16"])
@pytest.mark.parametrize(("kind", "fields"), MODELS)
def test_activations_are_those_that_training_keeps(kind, fields, precision, tokenizer, monkeypatch):
    """Within 10 %: what the heads keep does not grow with the layers, and is left out here.

    So are the tokens that fill small streams up.
    """
    monkeypatch.setattr("tercet.modeling.stack.compiles_products", lambda x: False)
    recipe = recipe_of(kind, **fields)
    four, eight = (kept_in_training(*prepare(recipe, tokenizer, size), precision) for size in (4, 8))
    # Four texts that are cut at random are read and written in parts that are far from the expected ones.
    tolerance = 0.25 if kind in RANDOM_LENGTHS else 0.1
    assert planned_kept(recipe, precision) == pytest.approx((eight - four) / 4, rel=tolerance)


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.slow), "bf16"])
@pytest.mark.parametrize("kind", COUNTED)
def test_memory_is_within_a_tenth_of_the_measured_peak_of_a_step(kind, precision, tokenizer):
    """Parts are added although not all are at their height at once; a kernel's own buffers are left out."""
    recipe = recipe_of(kind, num_hidden_layers=4)
    model, objective, batch = prepare(recipe, tokenizer, 8)
    tokens = 8 * recipe.objective.full_sequence(64).tokens
    training = replace(recipe.training, tokens_per_step=tokens, precision=precision)
    [outlook] = plan_run(replace(recipe, training=training), PlanRecipe(device="cpu")).outlooks
    optimizer, live = build_optimizer(model, recipe.training.optimizer), LiveMemory()
    for parameter in model.parameters():
        live.watch(parameter.data)
    for _ in range(2):  # the optimizer's state is there from the second step on
        with live, torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = sum(objective.losses(model, batch).values(), start=torch.zeros(()))
        with live:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert outlook.memory.total == pytest.approx(live.peak, rel=0.1)


def test_layers_that_are_computed_again_keep_their_inputs_and_one_of_them_all(tokenizer):
    """As a model that computes: what it keeps, and on average a layer's part of what it does not."""
    recipe = recipe_of("causal_language_modeling", num_hidden_layers=3)
    kept = []
    for prepared in (prepare(recipe, tokenizer, 4), prepare(recipe, tokenizer, 8)):
        everything = kept_in_training(*prepared, "fp32")
        enable_gradient_checkpointing(prepared[0])
        inputs = kept_in_training(*prepared, "fp32")
        kept.append(inputs + (everything - inputs) / 3)
    planned = planned_kept(recipe, "fp32", computes_again=True)
    assert planned == pytest.approx((kept[1] - kept[0]) / 4, rel=0.1)


def test_activations_of_a_gpu_are_those_of_the_formula():
    """Korthikanti et al., 2022, equation 1, in 16 bits: 34 bytes for each position and channel of a layer.

    Without their two masks of dropout (a byte each), and with attention that keeps 4 bytes for each position
    and head instead of pairs.
    """
    positions, width, heads = 96, 128, 4
    fields = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": heads}
    preset = load_preset("gpt2") | fields | {"dropout": 0.0, "hidden_act": "gelu"}
    two, three = (
        TercetDecoderForCausalLM(AutoConfig.for_model(**preset | {"num_hidden_layers": layers}))
        for layers in (2, 3)
    )
    sequence, half = FullSequence(positions, 0, positions - 1), torch.bfloat16
    of_two, of_three = (
        kept_by([(model, sequence)], half, half, is_cpu=False, computes_again=False) for model in (two, three)
    )
    formula = (34 - 2) * positions * width + 4 * positions * heads
    assert of_three.per_sequence - of_two.per_sequence == pytest.approx(formula, rel=0.001)
    assert of_two.fixed == 0


@pytest.mark.parametrize("kind", JOINT)
def test_models_that_learn_together_cost_what_all_of_them_do(kind):
    model = {"preset": JOINT[kind], "overrides": SIZES}
    objective = {"kind": kind} | ({"pooling": "first"} if kind == "sentence_denoising" else {})
    recipe = unread_recipe(kind, model, 64, tokenizer={"vocab_size": 420}, objective=objective)
    model = build_planned_model(recipe)
    parts = recipe.objective.parts(model, 64)
    counts = [count([part]) for part, _ in parts]
    assert max(counts) <= count([model]) < sum(counts)  # they share weights
    assert (
        count_flops(parts) == sum(count_flops([part]) for part in parts) > max(map(count_flops, zip(parts)))
    )
    assert planned_kept(recipe, "fp32") > 0
