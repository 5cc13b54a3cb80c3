"""Tiny teachers of all members with their tokenizers, a page of text, and recipes on them."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tercet.configs.recipe import parse_recipe
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.distill.losses import DistillationLoss
from tercet.distill.model_outputs import Learner
from tercet.distill.objective import Distillation, required_outputs
from tercet.distill.recipe import DistillationRecipe, StudentRecipe
from tercet.distill.student import build_student
from tercet.distill.teacher import LiveTeacher, load_model
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.pretraining.recipe import PretrainingRecipe

from ..finetune.conftest import WORDS
from ..pretraining.conftest import TINY, unread_data
from ..pretraining_parts import model_of

DEEP = TINY | {"num_hidden_layers": 4}
KINDS = {
    "encoder": "masked_language_modeling",
    "decoder": "causal_language_modeling",
    "seq2seq": "translation",
}
"""Of every member, what it learns."""

TOKENIZERS = {"encoder": "wordpiece", "decoder": "byte_bpe", "seq2seq": "unigram"}


def pretraining_data(member: str, **overrides: Any) -> dict[str, Any]:
    model = {"preset": f"{member}-tiny", "overrides": DEEP | overrides}
    return unread_data(KINDS[member], model, 64)


@pytest.fixture(scope="session")
def teachers(tmp_path_factory) -> Path:
    """Write a tiny teacher of every member with its tokenizer: `teachers / "encoder"`, ..."""
    folder = tmp_path_factory.mktemp("teachers")
    for member, kind in TOKENIZERS.items():
        recipe = parse_recipe(PretrainingRecipe, pretraining_data(member))
        template = recipe.objective.template
        tokenizer = train_tokenizer([" ".join(WORDS)] * 20, kind, 300, template=template)
        tokenizer.save_pretrained(folder / member)
        model = model_of(recipe, tokenizer)
        with torch.no_grad():  # untrained models expect nearly the same everywhere: let them differ
            for parameter in model.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
        model.save_pretrained(folder / member)
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """Write documents of sentences of two to nine words, and pairs of a sentence and its reverse.

    Of a document that is not learned from there are two pairs, since every model translates each of them.
    """
    folder, draw = tmp_path_factory.mktemp("texts"), random.Random(0)
    for name, size in (("train", 40), ("validation", 8)):
        lines = [
            [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) + "." for _ in range(5)] for _ in range(size)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(map("\n".join, lines)))
        count = 5 if name == "train" else 2
        pairs = [{"left": line, "right": line[::-1]} for document in lines for line in document[:count]]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    return folder


@pytest.fixture
def recipe_of(teachers, texts, tmp_path) -> Callable[..., DistillationRecipe]:
    """Make recipes of two steps on raw text, for a member."""

    def make(member: str, name: str = "run", **parts: Any) -> DistillationRecipe:
        kind = KINDS[member]
        is_pairs = kind == "translation"
        ending = "jsonl" if is_pairs else "txt"
        columns = {"source_column": "left", "target_column": "right"} if is_pairs else {}
        corpus = {f"{split}": str(texts / f"{split}.{ending}") for split in ("train", "validation")}
        corpus |= {"sequence_length": 64, "cache": str(texts / "cache")} | columns
        training = {"steps": 2, "tokens_per_step": 512, "measure_utilization": False, "precision": "fp32"}
        training |= {"log_every": 1} | parts.pop("training", {})
        general = {
            "teacher": str(teachers / member),
            "corpus": corpus,
            "objective": {"kind": kind} | parts.pop("objective", {}),
            "training": training,
        } | parts.pop("general", {})
        report = {"without_teacher": False, "random": False, "speed": False} | parts.pop("report", {})
        data = {"general": general, "report": report, "output": str(tmp_path / name)}
        return parse_recipe(DistillationRecipe, data | parts)

    return make


class Setup:
    """A teacher, a student made of it, and a batch, for tests of what is learned."""

    def __init__(self, folder: Path, member: str, student: StudentRecipe | None = None):
        self.member = member
        checkpoint = Checkpoint.open(str(folder / member))
        self.teacher = load_model(checkpoint)
        recipe = parse_recipe(PretrainingRecipe, pretraining_data(member)).objective
        start = getattr(self.teacher.config, "decoder_start_token_id", None)
        self.base: Any = recipe.build(ObjectiveContext(checkpoint.tokenizer, 64, decoder_start_id=start))
        self.student = build_student(student or StudentRecipe(), self.teacher, recipe.model_class, seed=0)
        rng = np.random.default_rng(0)
        self.examples = [self.example(index, rng) for index in range(7)]

    def example(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        """Draw an example of three to twelve ordinary tokens."""
        ids = rng.integers(6, self.teacher.config.vocab_size, rng.integers(3, 13))
        pair = {"labels": rng.permutation(ids)[: rng.integers(2, len(ids) + 1)]}
        return {"input_ids": ids, "index": index} | (pair if self.member == "seq2seq" else {})

    def batch(self, objective: Any, seed: int = 0) -> dict[str, Any]:
        return objective.collate(self.examples, seed)

    def objective(self, *losses: DistillationLoss, base_weight: float = 2.0) -> Distillation:
        """Learn from the teacher as it is, in float32."""
        teacher = LiveTeacher(self.teacher, required_outputs(losses), torch.device("cpu"), "fp32")
        return Distillation(self.base, base_weight, losses, teacher)

    def learner(self, objective: Distillation, **arguments: Any) -> Learner:
        return Learner(self.student, objective.needs, **arguments)


@pytest.fixture
def make_setup(teachers) -> Callable[..., Setup]:
    def make(member: str = "encoder", student: StudentRecipe | None = None) -> Setup:
        return Setup(teachers, member, student)

    return make
