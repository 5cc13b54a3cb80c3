"""Tiny models of all members with their tokenizers, and fine-tuned ones: untrained, but whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tercet import modeling
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.finetune.tasks.generation import GenerationRecipe
from tercet.finetune.tasks.multiple_choice import MultipleChoiceRecipe
from tercet.finetune.tasks.question_answering import QuestionAnsweringRecipe
from tercet.finetune.tasks.ranking import RankingRecipe
from tercet.finetune.tasks.tagging import TaggingRecipe
from tercet.finetune.tasks.task import keep_task
from tercet.finetune.tasks.texts import ClassificationRecipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.tools.play.loaded_model import LoadedModel, load_model

from ...pretraining.conftest import TINY, unread_recipe
from ...pretraining_parts import model_of

TEXT = [
    "The function returns a list of strings. If the file does not exist, an error is raised.",
    "The cat sat on the roof of the house and the little dog ran home.",
    "Two young men are walking on the street.",
]
MEMBERS = {
    "encoder": ("encoder", "masked_language_modeling", "wordpiece"),
    "decoder": ("decoder", "causal_language_modeling", "byte_bpe"),
    "denoiser": ("seq2seq", "denoising", "unigram"),
    "spans": ("seq2seq", "span_corruption", "unigram"),
}
"""Name -> member, objective, kind of tokenizer."""

LABELS = {"labels": ["bad", "good"], "are_numbered": False, "shares": [0.5, 0.5]}
TASKS_OF_TESTS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "classifier": ("encoder", ClassificationRecipe("classification"), LABELS),
    "tagger": (
        "encoder",
        TaggingRecipe("tagging"),
        {"labels": ["B-NAME", "I-NAME", "O"], "are_numbered": False, "most_frequent": "O"},
    ),
    "reader": ("encoder", QuestionAnsweringRecipe("question_answering"), {"has_unanswerable": False}),
    "chooser": ("encoder", MultipleChoiceRecipe("multiple_choice"), {}),
    "searcher": ("encoder", RankingRecipe("ranking"), {}),
    "writer": ("spans", GenerationRecipe("generation", longest_target=12), {"tokenization": "13a"}),
}
"""Name -> pretrained model, recipe of the task, facts about its rows."""


def recipe_for(member: str, objective: str) -> PretrainingRecipe:
    model = {"preset": f"{member}-tiny", "overrides": TINY | {"initializer_range": 0.2}}
    return unread_recipe(objective, model, 64)


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> Path:
    """Write the models as runs do: `folders / "encoder" / "model"`, ..."""
    root = tmp_path_factory.mktemp("played")
    for name, (member, objective, kind) in MEMBERS.items():
        recipe = recipe_for(member, objective)
        sentinels = min(recipe.objective.num_sentinels, 8)
        tokenizer = train_tokenizer(
            TEXT * 20, kind, 320, template=recipe.objective.template, sentinels=sentinels
        )
        torch.manual_seed(0)
        folder = root / name / "model"
        tokenizer.save_pretrained(folder)
        model_of(recipe, tokenizer).save_pretrained(folder)
    for name, (base, recipe, facts) in TASKS_OF_TESTS.items():
        write_fine_tuned(root, name, base, recipe.build(facts))
    return root


def write_fine_tuned(root: Path, name: str, base: str, task: Any) -> None:
    """Write a model with the head of a task, as `tercet finetune` leaves it."""
    from transformers import AutoConfig, AutoTokenizer

    folder = root / name / "model"
    tokenizer = AutoTokenizer.from_pretrained(root / base / "model")
    task.prepare_tokenizer(tokenizer)
    config = AutoConfig.from_pretrained(root / base / "model")
    for field, value in task.config_fields.items():
        setattr(config, field, value)
    member = {"tercet_encoder": "Encoder", "tercet_seq2seq": "Seq2Seq"}[config.model_type]
    torch.manual_seed(1)
    model = getattr(modeling, f"Tercet{member}{task.head}")(config)
    task.prepare_model(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    keep_task(task, folder, 64)


@pytest.fixture(scope="session")
def load(folders) -> Callable[[str], LoadedModel]:
    """Load a model by its name, once."""
    loaded: dict[str, LoadedModel] = {}

    def once(name: str) -> LoadedModel:
        if name not in loaded:
            loaded[name] = load_model(str(folders / name / "model"))
        return loaded[name]

    return once
