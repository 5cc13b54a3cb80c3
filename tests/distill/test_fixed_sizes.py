"""Tasks, and what is learned of teachers, in micro-batches of one size: the same sums as in ragged ones."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from tercet import modeling
from tercet.data.steps.batches import StepDataset
from tercet.data.steps.objective import IGNORE
from tercet.data.steps.packing import Ragged
from tercet.distill.losses import (
    AttentionMapLoss,
    CosineLoss,
    GeneralizedDivergenceLoss,
    HiddenStateLoss,
    LogitMSELoss,
    RelationLoss,
    ReverseKLLoss,
    SoftTargetLoss,
)
from tercet.distill.model_outputs import Learner
from tercet.distill.objective import Distillation, required_outputs
from tercet.distill.task_objective import IS_LABELLED, SOFT, TaskDistillation
from tercet.distill.teacher import LiveTeacher
from tercet.finetune.encoding import LabelledExamples, numbers, vectors
from tercet.finetune.tasks.chat import ChatObjective
from tercet.finetune.tasks.generation import GenerationObjective
from tercet.finetune.tasks.multiple_choice import MultipleChoiceObjective
from tercet.finetune.tasks.objectives import MultiLabelObjective, RegressionObjective, SingleLabelObjective
from tercet.finetune.tasks.question_answering import QuestionAnsweringObjective
from tercet.finetune.tasks.ranking import RankingObjective
from tercet.finetune.tasks.tagging import TaggingObjective
from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetEncoderForMultipleChoice,
    TercetEncoderForQuestionAnswering,
    TercetEncoderForSentenceEmbedding,
    TercetEncoderForSequenceClassification,
    TercetEncoderForTokenClassification,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.pretraining.objectives.recipes import ObjectiveContext

from ..fixed_sizes import CPU, META, as_on_a_gpu, learned, sizes_of, watched
from ..pretraining.objectives.conftest import read, tokenizer  # noqa: F401
from ..pretraining.objectives.test_recipes import LENGTH, make_source
from ..pretraining.objectives.test_recipes import make_steps as make_text_steps
from ..pretraining.objectives.test_static_shapes import small_model

NEAR = {"rtol": 1e-4, "atol": 5e-5}
NUM_EXAMPLES = 60
WEIGHTS = torch.tensor([0.5, 1.0, 1.5])
TASKS = {
    "label": (SingleLabelObjective(WEIGHTS, 0.1), TercetEncoderForSequenceClassification),
    "labels": (MultiLabelObjective(), TercetEncoderForSequenceClassification),
    "number": (RegressionObjective(), TercetEncoderForSequenceClassification),
    "tags": (TaggingObjective(), TercetEncoderForTokenClassification),
    "spans": (QuestionAnsweringObjective(5), TercetEncoderForQuestionAnswering),
    "choice": (MultipleChoiceObjective(), TercetEncoderForMultipleChoice),
    "ranking": (RankingObjective(3, 4, 0.1), TercetEncoderForSentenceEmbedding),
    "generation": (GenerationObjective(), TercetSeq2SeqForConditionalGeneration),
    "chat": (ChatObjective(9, 64), TercetDecoderForCausalLM),
}
"""What each task learns, and what learns it."""

GENERAL = ("masked_language_modeling", "causal_language_modeling", "translation")
"""Objectives that are learned from a teacher, too: of each member."""

KINDS = {"label": "classification", "labels": "multi_label", "number": "regression", "tags": "tagging"}
KINDS |= {"spans": "question_answering", "choice": "multiple_choice"}
KINDS |= {name: name for name in ("ranking", "generation")}
"""What of them is learned from a teacher, too -> the kind of task."""


def draw(name: str) -> LabelledExamples:
    """Draw the examples of a task."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(6, 20, NUM_EXAMPLES)
    fields: dict[str, Any] = {}
    if name in ("choice", "ranking"):
        counts = rng.integers(2, 5, NUM_EXAMPLES) if name == "choice" else np.full(NUM_EXAMPLES, 3)
        parts = rng.integers(3, 9, counts.sum())
        field = {"choice": "choice_lengths", "ranking": "text_lengths"}[name]
        fields[field] = Ragged(parts, counts)
        lengths = np.add.reduceat(parts, np.cumsum(counts) - counts)
    total = int(lengths.sum())
    fields["input_ids"] = Ragged(rng.integers(1, 40, total), lengths)
    own = {
        "label": lambda: numbers(rng.integers(0, 3, NUM_EXAMPLES)),
        "labels": lambda: vectors(rng.integers(0, 2, (NUM_EXAMPLES, 3))),
        "number": lambda: numbers(rng.normal(size=NUM_EXAMPLES)),
        "tags": lambda: Ragged(np.where(rng.random(total) < 0.5, rng.integers(0, 3, total), IGNORE), lengths),
        "spans": lambda: vectors(rng.integers(0, 6, (NUM_EXAMPLES, 2))),
        "choice": lambda: numbers(rng.integers(0, 2, NUM_EXAMPLES)),
        "ranking": lambda: vectors(rng.integers(0, 90, (NUM_EXAMPLES, 3))),
        "generation": lambda: Ragged(fields["input_ids"].values[::-1].copy(), lengths[::-1].copy()),
        "chat": lambda: Ragged(
            np.where(rng.random(total) < 0.5, fields["input_ids"].values, IGNORE), lengths
        ),
    }
    fields["labels"] = own[name]()
    if name == "tags":
        fields["words"] = Ragged(np.where(fields["labels"].values == IGNORE, -1, np.arange(total)), lengths)
    if name == "spans":
        fields |= {each: numbers(np.arange(NUM_EXAMPLES)) for each in ("rows", "nowhere")}
    if name == "generation":
        fields["decoder_input_ids"] = fields["labels"]
    if name in ("label", "labels", "number", "choice"):
        fields[IS_LABELLED] = numbers((rng.random(NUM_EXAMPLES) < 0.7).astype(np.int64))
    return LabelledExamples(fields)


def build(name: str, seed: int = 0, **sizes: Any):
    """Build a small model of a task, without dropout."""
    torch.manual_seed(seed)
    model_class: Any = TASKS[name][1]
    given = {"vocab_size": 40, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    given |= {
        "max_position_embeddings": 64,
        "dropout": 0.0,
        "num_labels": {"number": 1, "spans": 2}.get(name, 3),
    }
    return model_class(model_class.config_class(**given | {"num_hidden_layers": 2} | sizes)).train()


def make_steps(source, objective, **changes: Any) -> StepDataset:
    sizes = {"tokens_per_step": 500, "tokens_per_micro_batch": 200, "seed": 3}
    return StepDataset(source, objective, **sizes | changes)


def made(name: str, is_taught: bool, device: torch.device = CPU):
    """Make what a task learns, alone or from a teacher, and a student."""
    student = build(name).to(device)
    if not is_taught:
        return TASKS[name][0], student
    settings = {"soft_weight": 1.0, "hard_weight": 1.0, "device": device}
    teacher, labels = build(name, seed=1, hidden_size=16), SOFT[KINDS[name]](TASKS[name][0], 2.0)
    return TaskDistillation(labels, teacher, student, precision="fp32", **settings), student


def taught(objective, student):
    """Let a student learn an objective and all that a teacher says, which has other weights."""
    losses = [
        SoftTargetLoss("soft_targets"),
        ReverseKLLoss("reverse_kl", temperature=2.0),
        GeneralizedDivergenceLoss("generalized_divergence"),
        LogitMSELoss("logit_mse"),
        CosineLoss("cosine"),
        HiddenStateLoss("hidden_states"),
        AttentionMapLoss("attention_maps"),
        RelationLoss("relations", heads=2),
    ]
    model = copy.deepcopy(student)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    teacher = LiveTeacher(model, required_outputs(losses), student.device, "fp32")
    found = Distillation(objective, 1.0, losses, teacher)
    return found, Learner(student, found.needs).train()


ALONE = {"label": 530, "labels": 516, "number": 513, "tags": 494, "spans": 529, "choice": 550, "ranking": 593}
FROM_A_TEACHER = {"label": 692, "labels": 686, "number": 655, "tags": 640, "spans": 702, "choice": 744}
OPERATORS = {
    False: ALONE | {"generation": 1212, "chat": 551},
    True: FROM_A_TEACHER | {"ranking": 892, "generation": 1477},
}
"""Operators of a micro-batch through two layers that are not compiled, by torch 2.13: they may only fall."""

WAYS = [*((name, False) for name in TASKS), *((name, True) for name in KINDS)]


def test_all_that_is_learned_from_a_teacher_is_tried():
    assert {*KINDS.values()} == SOFT.keys()


@pytest.mark.parametrize("kind", GENERAL)
def test_a_teacher_says_of_one_size_what_it_says_of_ragged_ones(kind, tokenizer, monkeypatch):  # noqa: F811
    """Of targets, tokens and pairs of them."""
    source = make_source(kind, tokenizer)
    base = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    objective, model = taught(base, small_model(kind, len(tokenizer)))
    ragged, fixed = (make_text_steps(source, objective, has_fixed_sizes=way) for way in (False, True))
    expected = learned(model, objective, [ragged])
    torch.testing.assert_close(learned(model, objective, [fixed]), expected, **NEAR)
    with as_on_a_gpu(monkeypatch):
        torch.testing.assert_close(learned(model, objective, [fixed]), expected, **NEAR)
    watched(*taught(base, small_model(kind, len(tokenizer)).to(META)), fixed, monkeypatch)


@pytest.mark.parametrize(("name", "is_taught"), WAYS)
def test_tasks_learn_of_one_size_what_they_learn_of_ragged_ones(name, is_taught, monkeypatch):
    """Also where tensors are not a CPU's; there nothing waits for the host, nor takes more operators."""
    source, (objective, model) = draw(name), made(name, is_taught)
    expected = learned(model, objective, [make_steps(source, objective)])
    for num_processes in (1, 2):
        fixed = [
            make_steps(
                source, objective, has_fixed_sizes=True, num_processes=num_processes, process_index=index
            )
            for index in range(num_processes)
        ]
        torch.testing.assert_close(learned(model, objective, fixed), expected, **NEAR)
    steps = make_steps(source, objective, has_fixed_sizes=True)
    assert sizes_of(steps) == {None: 1}
    with as_on_a_gpu(monkeypatch):
        torch.testing.assert_close(learned(model, objective, [steps]), expected, **NEAR)
    for count in watched(*made(name, is_taught, META), steps, monkeypatch):
        assert count <= OPERATORS[is_taught][name] or not torch.__version__.startswith("2.13")


@pytest.mark.parametrize("member", ["Decoder", "Seq2Seq"])
@pytest.mark.parametrize("name", ["label", "tags", "spans", "choice"])
def test_heads_of_other_members_wait_for_nothing(name, member, monkeypatch):
    objective, model_class = TASKS[name]
    other = getattr(modeling, model_class.__name__.replace("Encoder", member))
    monkeypatch.setitem(TASKS, name, (objective, other))
    steps = make_steps(draw(name), objective, has_fixed_sizes=True)
    watched(*made(name, False, META), steps, monkeypatch)
