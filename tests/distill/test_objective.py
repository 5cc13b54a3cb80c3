"""Distillation is a sum of named terms over targets, and only the student learns from it."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tercet.data.steps.examples import pick
from tercet.data.steps.objective import IGNORE, INDEX
from tercet.data.steps.packing import select_sequences, sequence_lengths, slice_sequences
from tercet.data.steps.step_planning import share
from tercet.distill.general_step import GeneralStep, build_setup
from tercet.distill.losses import AttentionMapLoss, CosineLoss, HiddenStateLoss, RelationLoss, SoftTargetLoss
from tercet.distill.recipe import StudentRecipe
from tercet.training.devices.precision import build_accelerator

MEMBERS = ["encoder", "decoder", "seq2seq"]


def all_losses():
    return [
        SoftTargetLoss("soft_targets"),
        CosineLoss("cosine"),
        HiddenStateLoss("hidden_states"),
        AttentionMapLoss("attention_maps"),
        RelationLoss("relations", heads=4),
    ]


def padded_reading(model, batch, member):
    """Read each sequence alone, with nothing packed: logits and states of every token, in float64."""
    readings = []
    edges = {side: batch[f"cu_seq_lens_{side}"].tolist() for side in "qk"}
    for number in range(len(edges["q"]) - 1):
        own = {side: slice(edges[side][number], edges[side][number + 1]) for side in "qk"}
        inputs = {"input_ids": batch["input_ids"][:, own["k"]]}
        if member == "seq2seq":
            inputs["decoder_input_ids"] = batch["decoder_input_ids"][:, own["q"]]
        states = model.model(**inputs).last_hidden_state
        readings.append((model.compute_logits(states)[0], states[0]))
    return [torch.cat(parts) for parts in zip(*readings, strict=True)]


@pytest.mark.parametrize("member", MEMBERS)
def test_terms_are_the_published_ones_by_their_definition(member, make_setup):
    """In float64, from whole rows: cross-entropies without the teacher's entropy, times T^2, and cosines."""
    made = make_setup(member)
    made.base.z_loss = 0.1
    objective = made.objective(SoftTargetLoss("soft_targets"), CosineLoss("cosine"))
    batch = made.batch(objective)
    teacher, student = (copy.deepcopy(model).double().eval() for model in (made.teacher, made.student))
    with torch.no_grad():
        (right, right_states), (found, states) = (
            padded_reading(model, batch, member) for model in (teacher, student)
        )
    positions, tokens = objective.base.output_positions(batch)
    p, q = ((logits[positions] / 2).softmax(-1) for logits in (right, found))
    expected = {
        "soft_targets": 4 * (-(p * q.log()).sum() + (p * p.log()).sum()),
        "cosine": (1 - F.cosine_similarity(states, right_states, dim=-1)).sum(),
        objective.base.term: -found[positions].log_softmax(-1)[range(len(tokens)), tokens].sum(),
    }
    smoothing = objective.base.label_smoothing
    if smoothing:
        own = found[positions].log_softmax(-1)
        uniform = -own.mean(-1).sum()
        expected[objective.base.term] = (1 - smoothing) * expected[objective.base.term] + smoothing * uniform
    expected[objective.base.term] += 0.1 * found[positions].logsumexp(-1).square().sum()
    learner = made.learner(objective).eval()
    losses = objective.losses(learner, batch)
    assert losses.keys() == objective.weights.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(losses[name].double(), expected[name], rtol=2e-5, atol=1e-5)
    counts = objective.targets(batch)
    assert counts["soft_targets"] == counts[objective.base.term] == len(tokens)
    assert counts["cosine"] == len(states)
    assert objective.weights == {"soft_targets": 5.0, "cosine": 1.0, objective.base.term: 2.0}


@pytest.mark.parametrize("member", MEMBERS)
def test_gradients_reach_the_student_only(member, make_setup):
    made = make_setup(member)
    objective = made.objective(*all_losses())
    learner = made.learner(objective).train()
    sum(objective.losses(learner, made.batch(objective)).values()).backward()
    assert all(parameter.grad is not None for parameter in learner.parameters())
    assert all(parameter.grad is None for parameter in made.teacher.parameters())
    assert not any(parameter.requires_grad for parameter in made.teacher.parameters())
    assert not made.teacher.training


@pytest.mark.parametrize("member", MEMBERS)
def test_micro_batches_add_up_to_the_whole(member, make_setup):
    """Ragged ones: values and gradients of every loss, with as many targets."""
    made = make_setup(member)
    objective = made.objective(*all_losses())
    learner = made.learner(objective).train()
    batch = made.batch(objective)
    order, edges = share(sequence_lengths(batch), 16, 1, 0)
    assert len(edges) > 3
    whole = objective.losses(learner, batch)
    sum(whole.values()).backward()
    gradients = {name: parameter.grad for name, parameter in learner.named_parameters()}
    learner.zero_grad()
    parts = select_sequences(batch, order)
    totals, counts = dict.fromkeys(whole, 0.0), dict.fromkeys(objective.targets(batch), 0)
    for first, last in pairwise(edges):
        part = slice_sequences(parts, first, last)
        losses = objective.losses(learner, part)
        sum(losses.values()).backward()
        for name, loss in losses.items():
            totals[name] += loss.item()
        for name, count in objective.targets(part).items():
            counts[name] += int(count)
    assert counts == {name: int(count) for name, count in objective.targets(batch).items()}
    assert totals == pytest.approx({name: loss.item() for name, loss in whole.items()}, rel=1e-5)
    for name, parameter in learner.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_student_of_all_layers_agrees_with_its_teacher(member, make_setup):
    """It is the teacher, then: every loss is zero."""
    made = make_setup(member, StudentRecipe(num_layers=4, token_types="kept"))
    objective = made.objective(*all_losses())
    learner = made.learner(objective)
    losses = objective.losses(learner, made.batch(objective))
    del losses[objective.base.term]
    assert len(losses) == 5
    for name, loss in losses.items():
        assert abs(loss.item()) < 1e-3, name


def test_heads_run_at_targets_alone(make_setup):
    made = make_setup("encoder")
    objective = made.objective(SoftTargetLoss("soft_targets", 1.0, 1.0))
    batch, seen = made.batch(objective), []
    for model in (made.teacher, made.student):
        model.lm_head.register_forward_hook(lambda head, inputs, output: seen.append(output.shape[-2]))
    objective.losses(made.learner(objective), batch)
    assert seen == [int((batch["labels"] != IGNORE).sum())] * 2


def test_scores_are_the_objectives_own(make_setup):
    made = make_setup("decoder")
    objective = made.objective(CosineLoss("cosine"), base_weight=0.0)
    batch = made.batch(objective)
    learner = made.learner(objective).eval()
    plain = {name: value for name, value in batch.items() if name != INDEX}
    with torch.no_grad():
        ours, theirs = objective.scores(learner, batch), made.base.scores(made.student.eval(), plain)
    assert list(objective.scored) == list(ours) == ["clm"]
    assert ours["clm"]["accuracy"] == theirs["clm"]["accuracy"]
    torch.testing.assert_close(ours["clm"]["loss"], theirs["clm"]["loss"])
    assert "clm" not in objective.losses(learner, batch)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    "losses",
    [
        [{"kind": "cosine"}],
        [{"kind": "attention_maps"}],
        [{"kind": "relations"}],
        [{"kind": "relations"}, {"kind": "cosine"}],
    ],
    ids=lambda losses: "-".join(loss["kind"] for loss in losses),
)
def test_what_nothing_teaches_rests(member, losses, recipe_of, tmp_path):
    """A head, and all behind the last queries: several processes would wait for their gradients."""
    recipe = recipe_of(member, general={"losses": losses, "objective_weight": 0.0})
    step = GeneralStep.prepare(recipe.general)
    accelerator = build_accelerator(recipe.general.training, tmp_path)
    learner, objective = build_setup(step, recipe.student, recipe.general, step.text.source, accelerator)
    batch = objective.collate(pick(step.text.source.epoch(0), np.arange(4)), 0)
    sum(objective.losses(learner.train(), batch).values()).backward()
    for name, parameter in learner.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    rested = [name for name, parameter in learner.named_parameters() if not parameter.requires_grad]
    norm = "student.model.decoder.norm.weight" if member == "seq2seq" else "student.model.norm.weight"
    assert (norm in rested) == ("cosine" not in str(losses))
    assert sum(parameter.requires_grad for parameter in learner.parameters()) > 10


def test_nothing_to_learn_is_refused(make_setup):
    with pytest.raises(ValueError, match="so there is no loss"):
        make_setup().objective(base_weight=0.0)


def test_batches_say_which_examples_they_are_of(make_setup):
    made = make_setup("decoder")
    objective = made.objective()
    assert made.batch(objective)["index"].tolist() == list(range(7))
    chosen = select_sequences(made.batch(objective), np.array([4, 1]))
    assert chosen["index"].tolist() == [4, 1]
