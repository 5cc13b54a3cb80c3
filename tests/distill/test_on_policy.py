"""On-policy distillation: what the student writes, what is compared of it, and what it depends on."""

import copy
import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tercet.configs.recipe import parse_recipe, recipe_data
from tercet.data.steps.packing import select_sequences, sequence_lengths, slice_sequences
from tercet.data.steps.step_planning import share
from tercet.distill.general_recipe import OnPolicyRecipe
from tercet.distill.losses import GeneralizedDivergenceLoss, ReverseKLLoss
from tercet.distill.model_outputs import ModelOutputs
from tercet.distill.objective import Distillation
from tercet.distill.on_policy import BEGINNINGS, DRAWS, OnPolicy
from tercet.distill.recipe import DistillationRecipe
from tercet.modeling.layers.position_wise import joint_product
from tercet.training.token_objective import sample_tokens
from tercet.training.tracking import LOG, read_log

from ..reported import distill

MEMBERS = ["decoder", "seq2seq"]
QUICKLY = ["decoder", pytest.param("seq2seq", marks=pytest.mark.slow)]
ALWAYS = OnPolicyRecipe(probability=1.0, temperature=1.3)
DIVERGENCE = GeneralizedDivergenceLoss("generalized_divergence", 1.0, 0.3, 1.0)
CONSTANT = {"schedule": {"kind": "constant", "warmup_steps": 0}}


def on_policy_objective(made, *losses, recipe=ALWAYS, ends=()):
    """Let the student of a setup write."""
    plain = made.objective(*losses or (DIVERGENCE,), base_weight=0.0)
    writer = OnPolicy(recipe, made.base, made.student, ends)
    return Distillation(made.base, 0.0, plain.teacher_losses, plain.teacher, writer)


def writing(recipe, losses=("generalized_divergence",), **on_policy):
    """Change a recipe so that the student writes."""
    data = recipe_data(recipe)
    data["general"] |= {
        "losses": [{"kind": kind} for kind in losses],
        "objective_weight": 0.0,
        "on_policy": on_policy or None,
    }
    return parse_recipe(DistillationRecipe, data)


def alone(model, batch, number, ids):
    """Let a model read the target side of one sequence, unpadded and without a cache: logits (T, V)."""
    ids = torch.tensor([ids])
    if "decoder_input_ids" not in batch:
        return model(ids, use_cache=False).logits[0]
    first, last = batch["cu_seq_lens_k"][number : number + 2].tolist()
    source = batch["input_ids"][:, first:last]
    return model(input_ids=source, decoder_input_ids=ids, use_cache=False).logits[0]


def split(batch, name):
    edges = batch["cu_seq_lens_q"].tolist()
    return [batch[name][0, first:last].tolist() for first, last in pairwise(edges)]


def test_tokens_are_chosen_in_proportion_to_their_probability():
    """At temperature 2, 9/10 and 1/10 become 3/4 and 1/4."""
    logits = torch.tensor([[0.9, 0.1]]).log()
    found = [sample_tokens(logits, torch.tensor([number]), 2.0).item() for number in (0.0, 0.74, 0.76, 0.999)]
    assert found == [0, 0, 1, 1]
    certain = torch.tensor([[-torch.inf, 0.0, -torch.inf]])
    assert [sample_tokens(certain, torch.tensor([x])).item() for x in (0.0, 0.5, 1.0 - 2**-24)] == [
        1,
        1,
        1,
    ]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_on_a_gpu_a_student_writes_in_the_precision_of_the_run(precision, monkeypatch):
    """Blocks of weights are for a CPU, which writes in float32 by them."""
    asked = []

    def products_in(*asked_for):
        asked.append(asked_for)
        return nullcontext()

    monkeypatch.setattr("tercet.distill.on_policy.products_in", products_in)
    for name in ("cpu", "cuda"):
        student: Any = torch.nn.Linear(2, 2)
        student.device = torch.device(name)
        with OnPolicy(ALWAYS, cast(Any, None), student, (), precision).fast_products():
            assert (joint_product.get() is not None) == (name == "cpu")
    assert asked == [(precision, torch.device("cuda"))]


@pytest.mark.parametrize("member", MEMBERS)
def test_what_is_written_follows_from_the_student_by_its_definition(member, make_setup):
    """Token by token, each text alone, everything read anew: with padding, cache and batch out of the way."""
    made = make_setup(member)
    objective = on_policy_objective(made)
    made.student.train()
    batch = made.batch(objective)
    before = torch.get_rng_state()
    written, _ = objective.on_policy.write(batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert made.student.training
    made.student.eval()
    draws, given = split(batch, DRAWS), batch[BEGINNINGS].tolist()
    for number, labels in enumerate(split(written, "labels")):
        own = split(batch, "labels")[number][: given[number]]
        assert given[number] == (max(len(labels) // 2, 1) if member == "decoder" else 0)
        assert labels[: given[number]] == own
        ids = own if member == "decoder" else [made.base.decoder_start_id]
        for place in range(given[number], len(labels)):
            with torch.no_grad():
                logits = alone(made.student, batch, number, ids)[-1:]
            ids.append(sample_tokens(logits, torch.tensor([draws[number][place]]), 1.3).item())
        assert labels == (ids if member == "decoder" else ids[1:])
        name = "input_ids" if member == "decoder" else "decoder_input_ids"
        assert split(written, name)[number] == (ids if member == "decoder" else ids[:-1])


@pytest.mark.parametrize(("member", "count", "compared"), [("decoder", 3, 2), ("seq2seq", 5, 4)])
def test_the_divergence_of_written_tokens_by_hand(member, count, compared, make_setup):
    """Two texts of 3 and 2 tokens, in which 7 ends what is written; the mean is over all that is written."""
    made = make_setup(member)
    tokens = [np.array([10, 11, 12]), np.array([13, 14])]
    examples = [{"input_ids": ids, "labels": ids, "index": number} for number, ids in enumerate(tokens)]
    objective = on_policy_objective(made, ends=(7,))
    batch = objective.collate(examples, 0)
    table = {"decoder": [[7, 21], [22, 0]], "seq2seq": [[20, 7, 21], [22, 23, 0]]}[member]
    objective.on_policy.sample = lambda batch, draws: torch.tensor(table)
    p, q = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.75, 0.25]).log()

    def outputs(logits, positions):
        return ModelOutputs(logits.expand(len(positions), -1), None, torch.zeros(0), {}, {})

    seen = []
    objective.teacher = SimpleNamespace(
        compute_outputs=lambda batch, places: seen.append(batch) or outputs(p, places)
    )
    losses = objective.losses(lambda batch, places: outputs(q, places), batch)
    m = [0.3 * 0.5 + 0.7 * 0.75, 0.3 * 0.5 + 0.7 * 0.25]
    of_teacher = sum(0.5 * math.log(0.5 / part) for part in m)
    of_student = 0.75 * math.log(0.75 / m[0]) + 0.25 * math.log(0.25 / m[1])
    expected = compared * (0.3 * of_teacher + 0.7 * of_student)
    assert losses["generalized_divergence"].item() == pytest.approx(expected, rel=1e-5)
    assert objective.targets(batch)["generalized_divergence"] == count
    right = [[10, 7, 21], [13, 22]] if member == "decoder" else [[20, 7, 21], [22, 23]]
    assert split(seen[0], "labels") == right
    if member == "decoder":
        assert split(seen[0], "input_ids") == right
    else:
        start = made.base.decoder_start_id
        assert split(seen[0], "decoder_input_ids") == [[start, *row[:-1]] for row in right]


@pytest.mark.parametrize("member", MEMBERS)
def test_gradients_are_those_of_a_text_that_is_given(member, make_setup):
    """None pass through the writing: they are those of the divergence's definition on that text."""
    made = make_setup(member)
    ends = tuple(range(0, made.teacher.config.vocab_size, 9))
    objective = on_policy_objective(made, ReverseKLLoss("reverse_kl", 1.0, 1.0), ends=ends)
    learner = made.learner(objective).train()
    batch = made.batch(objective, seed=1)  # of which some text ends early
    loss = objective.losses(learner, batch)["reverse_kl"]
    loss.backward()
    written, places = objective.on_policy.write(batch)
    assert 0 < len(places.positions) < objective.targets(batch)["reverse_kl"]
    student, teacher = (copy.deepcopy(model).eval() for model in (made.student, made.teacher))
    student.zero_grad()
    total = torch.zeros(())
    name = "input_ids" if member == "decoder" else "decoder_input_ids"
    texts = zip(split(written, name), split(written, "labels"), batch[BEGINNINGS].tolist(), strict=True)
    for number, (ids, labels, given) in enumerate(texts):
        found, right = (
            alone(model, batch, number, ids).log_softmax(-1) for model in (student, teacher.eval())
        )
        for place in range(given, len(labels)):
            row = place - (member == "decoder")
            q, p = found[row], right[row].detach()
            total = total + (q.exp() * (q - p)).sum()
            if labels[place] in ends:
                break
    total.backward()
    torch.testing.assert_close(loss, total, rtol=1e-4, atol=1e-5)
    for (key, ours), theirs in zip(made.student.named_parameters(), student.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5, msg=key)
    assert all(parameter.grad is None for parameter in made.teacher.parameters())


@pytest.mark.parametrize("member", MEMBERS)
def test_given_targets_play_no_part_where_all_are_written(member, make_setup):
    made = make_setup(member)
    objective = on_policy_objective(made)
    learner = made.learner(objective).train()
    first = objective.losses(learner, made.batch(objective))
    for example in made.examples:
        if member == "seq2seq":
            example["labels"] = example["labels"][::-1] * 0 + 9
        else:
            beginning = max(len(example["input_ids"]) // 2, 1)
            example["input_ids"][beginning:] = 9
    batch = made.batch(objective)
    assert (batch["labels"] == 9).any()
    assert objective.losses(learner, batch) == first


@pytest.mark.parametrize("member", MEMBERS)
def test_micro_batches_write_what_the_step_writes(member, make_setup):
    made = make_setup(member)
    objective = on_policy_objective(made, ends=tuple(range(0, 300, 9)))
    learner = made.learner(objective).train()
    batch = made.batch(objective)
    whole = objective.losses(learner, batch)["generalized_divergence"]
    order, edges = share(sequence_lengths(batch), 16, 1, 0)
    parts = [slice_sequences(select_sequences(batch, order), *edge) for edge in pairwise(edges)]
    assert len(parts) > 2
    found = torch.stack([objective.losses(learner, part)["generalized_divergence"] for part in parts]).sum()
    torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-5)
    assert sum(map(objective.on_policy.count, parts)) == objective.on_policy.count(batch)


def test_steps_are_written_as_often_as_wanted(make_setup):
    made = make_setup("decoder")
    counts = {}
    for probability in (0.0, 0.3, 1.0):
        objective = on_policy_objective(made, recipe=OnPolicyRecipe(probability=probability))
        batches = [made.batch(objective, seed) for seed in range(400)]
        counts[probability] = sum(DRAWS in batch for batch in batches)
    assert counts[0.0] == 0
    assert 90 < counts[0.3] < 150
    assert counts[1.0] == 400


@pytest.mark.parametrize("member", QUICKLY)
def test_probability_zero_is_the_ordinary_run(member, recipe_of):
    """Bit for bit; and one of a half is another."""
    recipes = {
        "ordinary": writing(recipe_of(member, "ordinary")),
        "never": writing(recipe_of(member, "never"), probability=0.0),
        "always": writing(recipe_of(member, "always"), probability=1.0),
    }
    weights = {name: load_file(distill(each) / "model.safetensors") for name, each in recipes.items()}
    for name, tensor in weights["ordinary"].items():
        assert torch.equal(weights["never"][name], tensor)
    assert any(
        not torch.equal(weights["always"][name], weights["ordinary"][name]) for name in weights["never"]
    )
    folder = recipes["always"].folder / "student" / "general"
    scored = [record for record in read_log(folder / LOG) if "generalized_divergence/loss" in record]
    assert all(record["generalized_divergence/loss"] > 0 for record in scored)


@pytest.mark.parametrize("member", QUICKLY)
def test_a_resumed_run_writes_what_an_uninterrupted_one_writes(member, recipe_of):
    student = {"overrides": {"dropout": 0.1}}
    settings = CONSTANT | {"precision": "auto"}

    def recipe(name, steps):
        made = recipe_of(member, name, training=settings | {"steps": steps}, student=student)
        return writing(made, probability=0.5)

    distill(recipe("parts", 3))
    parts, whole = distill(recipe("parts", 6), resume=True), distill(recipe("whole", 6))
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (parts, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_control_without_a_teacher_reads_what_is_given(recipe_of):
    recipe = writing(recipe_of("decoder", report={"without_teacher": True}), probability=1.0)
    distill(recipe)
    log = read_log(recipe.folder / "without-teacher" / "general" / LOG)
    assert any("clm/loss" in record for record in log)


@pytest.mark.parametrize(
    ("member", "general", "message"),
    [
        ("decoder", {"cache": {"top_k": None}}, "a cache holds what the teacher expects of given text"),
        ("decoder", {"objective_weight": 1.0}, r"objective_weight is 1\.0: set it to 0"),
        ("seq2seq", {"losses": [{"kind": "cosine"}]}, "cosine compares all tokens that are read"),
    ],
)
def test_what_cannot_be_written_is_refused(member, general, message, recipe_of):
    data = recipe_data(writing(recipe_of(member), probability=0.5))
    data["general"] |= general
    with pytest.raises(ValueError, match=message):
        distill(parse_recipe(DistillationRecipe, data))


def test_a_student_in_pieces_is_refused(recipe_of, monkeypatch):
    monkeypatch.setattr("tercet.distill.on_policy.sharding_plugin", lambda accelerator: object())
    recipe = recipe_of("decoder")
    with pytest.raises(ValueError, match="under FSDP a student is in pieces"):
        distill(writing(recipe, probability=0.5))
    distill(replace(recipe, output=f"{recipe.output}-given"))
