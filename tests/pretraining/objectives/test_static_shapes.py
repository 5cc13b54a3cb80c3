"""Micro-batches of one size: the same sums as ragged ones, whatever is learned."""

import pickle
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from tercet.data.corpus import TokenizedCorpus
from tercet.data.steps.batches import StepDataset
from tercet.data.steps.objective import IGNORE
from tercet.data.steps.static_shapes import (
    MULTIPLE,
    NO_GROWTH,
    POSITIONS,
    SLACK,
    Growth,
    Load,
    Shape,
    deal,
    fill,
)
from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.training.loop import accumulate_gradients

from ...fixed_sizes import CPU, META, as_on_a_gpu, learned, sizes_of, watch, watched
from .conftest import read
from .test_recipes import KINDS, LENGTH, MIXTURE, draw_corpus, make_source, make_steps

PREDICTING = [kind for kind in KINDS if kind != "character_language_modeling"]
"""Objectives of Transformers, whose micro-batches may have one size."""


def small_model(kind: str, size: int, **changes: Any):
    """Build a small model that learns an objective, without dropout."""
    torch.manual_seed(0)
    config_class: Any = read(kind).model_class.config_class
    sizes = {"vocab_size": size, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    sizes |= {"num_hidden_layers": 2, "max_position_embeddings": 2 * LENGTH, "dropout": 0.0} | changes
    config = config_class(**sizes)
    return read(kind).build_model(config).train()


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
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    model = small_model(kind, len(tokenizer))
    ragged, fixed = [make_steps(source, objective)], fixed_steps(source, objective, num_processes)
    torch.testing.assert_close(learned(model, objective, fixed), learned(model, objective, ragged))
    shares = [steps[0, 0, 0].targets for steps in fixed]
    assert {term: sum(share[term] for share in shares) for term in shares[0]} == ragged[0][0, 0, 0].targets


def test_filling_fits_a_model_whose_positions_end_with_the_texts(tokenizer):
    source = make_source(kind := "masked_language_modeling", tokenizer)
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    limits = {"position_embedding_type": "learned", "max_position_embeddings": LENGTH}
    assert LENGTH % MULTIPLE != 0
    learned(small_model(kind, len(tokenizer), **limits), objective, fixed_steps(source, objective))


FINAL = {"final_mlm_probability": 0.4}
CHANGING = {"kind": "mixture", "objectives": []}
CHANGING["objectives"] = [part | {"objective": part["objective"] | FINAL} for part in MIXTURE["objectives"]]
CORRUPTING = ("masked_language_modeling", "masked_next_token_prediction", "replaced_token_detection")
RECIPES = [
    *({"kind": kind} for kind in PREDICTING),
    *({"kind": kind} | FINAL for kind in CORRUPTING),
    CHANGING,
]
"""Of all objectives, and of those that change on the way."""


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join([*recipe, recipe["kind"]]))
def test_all_micro_batches_of_an_objective_have_one_size(recipe, tokenizer):
    source, objective = read_from(recipe, (draw_corpus(40, 0), draw_corpus(40, 1)), tokenizer, LENGTH)
    steps = make_steps(source, objective, has_fixed_sizes=True, num_steps=200)
    assert sizes_of(steps) == dict.fromkeys(steps.shapes, 1)


def read_from(recipe, corpora, tokenizer, length: int):
    """Cut what a recipe learns from: one corpus, or pairs of two; and build its objective."""
    built = read(**recipe)
    context = ObjectiveContext(tokenizer, length, decoder_start_id=0)
    return built.examples(corpora if built.reads_pairs else corpora[0], context), built.build(context)


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
    parts = deal(load, shape, 3, 6)
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


TYPICAL = [
    *(
        ({"kind": kind}, 0.97)
        for kind in ("masked_language_modeling", "hybrid_language_modeling", "denoising")
    ),
    (MIXTURE, 0.97),
    ({"kind": "translation"}, 0.96),
    ({"kind": "prefix_language_modeling"}, 0.89),
]
"""Of one stream, of mixtures, and of two streams whose proportions differ: how full sizes are at least."""


def corpus_of(lengths: np.ndarray) -> TokenizedCorpus:
    """Make documents of so many tokens, whose sentences have at most 25."""
    edges = np.cumsum([0, *lengths])
    ends = np.union1d(edges, np.arange(0, edges[-1], 25))
    words = np.full(edges[-1], 7, dtype=np.uint16)
    return TokenizedCorpus(words, words > 0, ends, np.searchsorted(ends, edges), np.ones_like(lengths))


@pytest.mark.parametrize(("recipe", "least"), TYPICAL)
def test_sizes_are_filled(recipe, least, tokenizer):
    """In an epoch at 16,384 tokens, of texts of up to 512 whose translations differ by a fifth in length."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(8, 513, 3000)
    others = (lengths * rng.normal(1, 0.2, len(lengths))).clip(4, 512).astype(np.int64)
    source, objective = read_from(recipe, (corpus_of(lengths), corpus_of(others)), tokenizer, 514)
    sizes = {"tokens_per_step": 4 * 16384, "tokens_per_micro_batch": 16384, "seed": 3}
    steps = StepDataset(source, objective, **sizes, has_fixed_sizes=True)
    epoch = [steps[0, number, 0] for number in range(len(steps.plan(0)[1]))]
    batches = chain.from_iterable(step.micro_batches(CPU) for step in epoch)
    ids = [batch[name] for batch in batches for name in ("input_ids", "decoder_input_ids") if name in batch]
    assert least < sum(step.tokens for step in epoch) / sum(each.numel() for each in ids) <= 1


def test_positions_are_those_of_the_targets(tokenizer):
    source = make_source("masked_language_modeling", tokenizer)
    objective = read("masked_language_modeling").build(ObjectiveContext(tokenizer, LENGTH))
    (steps,) = fixed_steps(source, objective)
    for batch in steps[0, 0, 0].micro_batches(torch.device("cpu")):
        found = batch[POSITIONS][batch["labels"][0, batch[POSITIONS]] != IGNORE]
        assert found.tolist() == (batch["labels"][0] != IGNORE).nonzero()[:, 0].tolist()


OPERATORS = {
    "masked_language_modeling": 543,
    "masked_language_modeling_with_next_sentence": 599,
    "replaced_token_detection": 1163,
    "masked_language_modeling_with_sentence_order": 599,
    "sentence_denoising": 1250,
    "causal_language_modeling": 551,
    "masked_next_token_prediction": 543,
    "hybrid_language_modeling": 551,
    "fill_in_the_middle": 551,
    "translation": 1219,
    "span_corruption": 1212,
    "prefix_language_modeling": 1212,
    "mixture_of_denoisers": 1212,
    "denoising": 1212,
}
"""Operators of a micro-batch through two layers that are not compiled, by torch 2.13: they may only fall.

An objective that is not listed may have as many as the largest that is.
"""


@pytest.mark.parametrize("kind", PREDICTING)
def test_no_step_of_one_size_waits_for_the_host(kind, tokenizer, monkeypatch):
    """Nor does it take more operators; all of ragged sizes do wait."""
    source = make_source(kind, tokenizer)
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    model = small_model(kind, len(tokenizer)).to(META)
    ragged, fixed = (make_steps(source, objective, has_fixed_sizes=way) for way in (False, True))
    for count in watched(objective, model, fixed, monkeypatch):
        assert count <= OPERATORS.get(kind, max(OPERATORS.values())) or not torch.__version__.startswith(
            "2.13"
        )
    for batch in ragged[0, 0, 0].micro_batches(META):
        with watch(monkeypatch), pytest.raises(NotImplementedError):
            objective.losses(model, batch)


def test_a_whole_step_waits_for_nothing(tokenizer, monkeypatch):
    """From micro-batches to the gradient's norm; what becomes of a broken step is known later."""
    kind = "masked_language_modeling_with_next_sentence"
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH))
    model, accelerator = small_model(kind, len(tokenizer)), Accelerator(cpu=True)
    step = make_steps(make_source(kind, tokenizer), objective, has_fixed_sizes=True)[0, 0, 0]
    with as_on_a_gpu(monkeypatch):
        assert accumulate_gradients(model, objective, step, accelerator)["loss"] > 0
    model.to(META)
    monkeypatch.setattr(Accelerator, "device", META)
    with watch(monkeypatch):
        metrics = accumulate_gradients(model, objective, step, accelerator)
        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
    assert {each.device for each in (norm, *metrics.values())} == {META}


WAITS = {
    "number": lambda x: float(x.sum()),
    "copy": lambda x: x.cpu(),
    "selection": lambda x: x[x > 0],
    "changed selection": lambda x: x.masked_fill(x > 1, 0.0).index_put_((x > 0,), x[:1]),
    "weights": lambda x: x * torch.ones(3).to(x.device),
    "pageable memory": lambda x: x * torch.ones(3).to(x.device, non_blocking=True),
    "list": lambda x: torch.tensor([1.0], device=x.device),
    "indices": lambda x: x[torch.tensor([0, 2])],
    "rows": lambda x: torch.ones(3)[x.long()],
}


@pytest.mark.parametrize("kind", WAITS)
def test_whatever_waits_for_the_host_is_seen(kind, monkeypatch):
    x = torch.ones(3, device=META)
    with watch(monkeypatch), pytest.raises((AssertionError, NotImplementedError, RuntimeError)):
        WAITS[kind](x)


def test_micro_batches_of_one_size_travel_and_hold_as_many_tokens_as_they_may(tokenizer):
    """Of both streams together, but for the filling, and for the room of a fixed size."""
    for kind in ("causal_language_modeling", "translation"):
        source = make_source(kind, tokenizer)
        objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
        (steps,) = fixed_steps(source, objective)
        parts = steps[0, 0, 0].parts
        (sent,) = pickle.loads(pickle.dumps(parts))
        pairs = zip(*(part.micro_batches(torch.device("cpu")) for part in (parts[0], sent)), strict=True)
        for batch, again in pairs:
            torch.testing.assert_close(again, batch)
            sides = [batch[name] for name in ("input_ids", "decoder_input_ids") if name in batch]
            num_real = sum(int(side.count_nonzero()) for side in sides)
            assert num_real <= SLACK * steps.tokens_per_micro_batch + MULTIPLE
