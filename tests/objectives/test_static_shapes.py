"""Micro-batches of one size: the same sums as ragged ones, whatever is learned."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from tercet.objectives.base_recipe import ObjectiveContext
from tercet.training.batches import StepDataset
from tercet.training.loop import accumulate_gradients
from tercet.training.objective import IGNORE
from tercet.training.static_shapes import (
    MULTIPLE,
    NO_GROWTH,
    POSITIONS,
    SLACK,
    Growth,
    Load,
    Shape,
    deal,
    fill,
    rounded,
)

from ..fixed_sizes import HostWatch, as_on_a_gpu, learned, sizes_of, watched
from .test_recipes import KINDS, LENGTH, make_source, make_steps, read

PREDICTING = [kind for kind in KINDS if kind != "character_language_modeling"]
"""Objectives of Transformers, whose micro-batches may have one size."""


def small_model(kind: str, size: int, **changes: Any):
    """Build a small model that learns an objective, without dropout."""
    torch.manual_seed(0)
    config_class: Any = read({"kind": kind}).model_class.config_class
    sizes = {"vocab_size": size, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    sizes |= {"num_hidden_layers": 2, "max_position_embeddings": 2 * LENGTH, "dropout": 0.0} | changes
    config = config_class(**sizes)
    return read({"kind": kind}).build_model(config).train()


def fixed_steps(source, objective, num_processes: int = 1) -> list[StepDataset]:
    """Cut a source into micro-batches of one size, for each process."""
    return [
        make_steps(source, objective, has_fixed_sizes=True, num_processes=num_processes, process_index=index)
        for index in range(num_processes)
    ]


@pytest.mark.parametrize("num_processes", [1, 2])
@pytest.mark.parametrize("kind", PREDICTING)
def test_micro_batches_of_one_size_are_learned_from_as_ragged_ones(kind, num_processes, tokenizer):
    source = make_source(kind, tokenizer)
    objective = read({"kind": kind}).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    model = small_model(kind, len(tokenizer))
    ragged, fixed = [make_steps(source, objective)], fixed_steps(source, objective, num_processes)
    torch.testing.assert_close(learned(model, objective, fixed), learned(model, objective, ragged))
    shares = [steps[0, 0, 0].targets for steps in fixed]
    assert {term: sum(share[term] for share in shares) for term in shares[0]} == ragged[0][0, 0, 0].targets


def test_filling_fits_a_model_whose_positions_end_with_the_texts(tokenizer):
    source = make_source(kind := "masked_language_modeling", tokenizer)
    objective = read({"kind": kind}).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    limits = {"position_embedding_type": "learned", "max_position_embeddings": LENGTH}
    assert LENGTH % MULTIPLE != 0
    learned(small_model(kind, len(tokenizer), **limits), objective, fixed_steps(source, objective))


@pytest.mark.parametrize("kind", PREDICTING)
def test_all_micro_batches_of_an_objective_have_one_size(kind, tokenizer):
    source = make_source(kind, tokenizer)
    objective = read({"kind": kind}).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    (steps,) = fixed_steps(source, objective)
    assert set(sizes_of(steps)) == {1}
    assert len(sizes_of(steps)) == len(steps.shapes)


def packed(*lengths: int) -> dict:
    """Make a batch of sequences of these lengths, with a label at each first token."""
    edges = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    ids = torch.arange(1, sum(lengths) + 1)[None]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    labels = torch.where(positions == 0, ids, IGNORE)
    both = {"cu_seq_lens_q": edges, "cu_seq_lens_k": edges.clone()}
    return {
        "input_ids": ids,
        "position_ids": positions,
        "labels": labels,
        "pair_label": torch.ones(len(lengths), dtype=torch.long),
        "draws": torch.ones(1, sum(lengths)),
    } | both


def test_filling_holds_nothing_to_learn():
    shape = Shape({"q": 16, "k": 16}, {"q": 64, "k": 64}, {"q": 5, "k": 5}, sequences=7, positions=4)
    filled = fill(packed(3, 2), shape)
    assert filled["cu_seq_lens_q"].tolist() == [0, 3, 5, 10, 15, 16, 16, 16]
    assert filled["position_ids"][0].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]
    assert filled["input_ids"][0, 5:].eq(0).all()
    assert filled["labels"][0, 5:].eq(IGNORE).all()
    assert filled["draws"][0, 5:].isnan().all()
    assert filled["pair_label"].tolist() == [1, 1, *[IGNORE] * 5]


def test_what_does_not_fit_has_a_larger_size():
    size = {"q": 64, "k": 64}
    shape = Shape(size, size, size, sequences=64, positions=64)
    batch = packed(70, 10)
    load = Load.of(batch, np.array([0, 70]))
    assert not shape.holds(load)
    wide = shape.widened(load)
    assert wide.holds(load)
    assert wide.tokens == {"q": 128, "k": 128}
    assert wide.longest == {"q": 128, "k": 128}
    assert wide.widened(load[np.array([1])]) == wide
    assert shape.widened(Load.of(packed(300), np.array([0]))).longest == {"q": 512, "k": 512}


@pytest.mark.parametrize("lengths", [[20] * 90 + [120] * 2, [900] + [20] * 50, [2] * 1000, [64] * 30])
def test_a_step_of_other_lengths_takes_twice_as_many_micro_batches_at_most(lengths):
    """Later texts of a stream may be longer or shorter than those measured; few sizes need few graphs."""
    measured, lengths = np.full(100, 20), np.array(lengths)
    shape = Shape.measured([Load({"q": measured, "k": measured}, measured, measured)], 3)
    load = Load({"q": lengths, "k": lengths}, lengths, lengths)
    parts = deal(load, shape, 3)
    assert sorted(np.concatenate(parts)) == list(range(len(lengths)))
    assert len(parts) <= 6
    sizes = [shape.widened(load[own]) for own in parts]
    assert all(size.holds(load[own]) for size, own in zip(sizes, parts, strict=True))
    assert all(size.longest["q"] >= lengths[own].max() for size, own in zip(sizes, parts, strict=True))
    assert len(set(map(str, sizes))) <= 2


def test_sizes_are_raised_by_how_much_larger_other_steps_are():
    """In tokens, in sequences and in the longest one."""
    lengths = np.array([40, 60, 100, 200])
    growth = Growth.of(lengths, [np.array([0, 1]), np.array([2]), np.array([3, 0, 1])], 2)
    assert growth == (300 / 100, 3 / 2, 200 / 100)
    load = Load({"q": lengths[:2], "k": lengths[:2]}, lengths[:2], np.array([3, 4]))
    (small, large) = (Shape.measured([load], 1, each) for each in (NO_GROWTH, growth))
    assert (small.tokens["q"], small.longest["q"]) == (128, 64)
    assert (large.tokens["q"], large.longest["q"]) == (320, 128)
    assert small.filling == 1 - 100 / 128


def test_a_size_holds_the_longest_sequence():
    """Though it is longer than a micro-batch would otherwise be: else it would take twice the memory."""
    lengths = np.array([100] * 7 + [500])
    load = Load({"q": lengths, "k": lengths}, lengths, lengths)
    shape = Shape.measured([load], num_parts=3)
    assert shape.widened(load[lengths == 500]) == shape
    assert shape.tokens == shape.longest == {"q": 512, "k": 512}


def test_sizes_are_filled_by_at_least_97_percent():
    """At 16,384 tokens and texts of up to 512."""
    lengths = np.random.default_rng(0).integers(8, 513, 4 * 63)
    load = Load({"q": lengths, "k": lengths}, lengths, lengths - 1)
    parts = -(-int(lengths.sum()) // 16384)
    shape = Shape.measured([load], parts)
    assert lengths.sum() / (parts * shape.tokens["q"]) > 0.97
    assert rounded(lengths.sum() / parts) <= shape.tokens["q"]


def test_positions_are_those_of_the_targets(tokenizer):
    source = make_source("masked_language_modeling", tokenizer)
    objective = read({"kind": "masked_language_modeling"}).build(ObjectiveContext(tokenizer, LENGTH))
    (steps,) = fixed_steps(source, objective)
    for batch in steps[0, 0, 0].micro_batches(torch.device("cpu")):
        found = batch[POSITIONS][batch["labels"][0, batch[POSITIONS]] != IGNORE]
        assert found.tolist() == (batch["labels"][0] != IGNORE).nonzero()[:, 0].tolist()


OPERATORS = {
    "masked_language_modeling": 547,
    "masked_language_modeling_with_next_sentence": 606,
    "replaced_token_detection": 1169,
    "masked_language_modeling_with_sentence_order": 606,
    "sentence_denoising": 1258,
    "causal_language_modeling": 555,
    "masked_next_token_prediction": 547,
    "hybrid_language_modeling": 555,
    "fill_in_the_middle": 555,
    "translation": 1225,
    "span_corruption": 1218,
    "prefix_language_modeling": 1218,
    "mixture_of_denoisers": 1218,
    "denoising": 1218,
}
"""Operators of a micro-batch through two layers that are not compiled, by torch 2.13: they may only fall."""


@pytest.mark.parametrize("kind", PREDICTING)
def test_no_step_of_one_size_waits_for_the_host(kind, tokenizer, monkeypatch):
    """Where tensors are not the CPU's, and attention is one operator; nor does it take more operators."""
    source = make_source(kind, tokenizer)
    objective = read({"kind": kind}).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    model, steps = small_model(kind, len(tokenizer)), make_steps(source, objective, has_fixed_sizes=True)
    for watch in watched(model, objective, steps, monkeypatch):
        assert not watch.found
        assert watch.count <= OPERATORS[kind] or not torch.__version__.startswith("2.13")
    ragged = make_steps(source, objective)
    assert all(watch.found for watch in watched(model, objective, ragged, monkeypatch))


def test_a_whole_step_waits_for_nothing(tokenizer, monkeypatch):
    """From micro-batches to the gradient's norm; what becomes of a broken step is known later."""
    kind = "masked_language_modeling_with_next_sentence"
    objective = read({"kind": kind}).build(ObjectiveContext(tokenizer, LENGTH))
    model, accelerator = small_model(kind, len(tokenizer)), Accelerator(cpu=True)
    step = make_steps(make_source(kind, tokenizer), objective, has_fixed_sizes=True)[0, 0, 0]
    with as_on_a_gpu(monkeypatch), HostWatch() as watch:
        metrics = accumulate_gradients(model, objective, step, accelerator)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
    assert metrics["loss"] > 0
    assert not watch.found


def test_micro_batches_of_one_size_travel_and_hold_as_many_tokens_as_they_may(tokenizer):
    """Of both streams together, but for the filling, and for the room of a fixed size."""
    for kind in ("causal_language_modeling", "translation"):
        source = make_source(kind, tokenizer)
        objective = read({"kind": kind}).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
        (steps,) = fixed_steps(source, objective)
        parts = steps[0, 0, 0].parts
        (sent,) = pickle.loads(pickle.dumps(parts))
        pairs = zip(*(part.micro_batches(torch.device("cpu")) for part in (parts[0], sent)), strict=True)
        for batch, again in pairs:
            torch.testing.assert_close(again, batch)
            sides = [batch[name] for name in ("input_ids", "decoder_input_ids") if name in batch]
            num_real = sum(int(side.count_nonzero()) for side in sides)
            assert num_real <= SLACK * steps.tokens_per_micro_batch + MULTIPLE
