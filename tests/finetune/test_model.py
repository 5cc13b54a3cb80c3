"""What a run begins with says which of its weights nobody has trained."""

import json
import re
import warnings
from typing import Any

import pytest
import torch
from datasets import ClassLabel, Dataset
from torch import nn
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForQuestionAnswering,
)

from tercet.configs.recipe import parse_recipe
from tercet.finetune.model import Start, learner_of, load_task_model, merged
from tercet.finetune.recipe import LoraRecipe
from tercet.finetune.tasks.chat import ChatRecipe
from tercet.finetune.tasks.generation import GenerationRecipe
from tercet.finetune.tasks.question_answering import QuestionAnsweringRecipe
from tercet.finetune.tasks.ranking import RankingRecipe
from tercet.finetune.tasks.task import build_task
from tercet.finetune.tasks.texts import ClassificationRecipe
from tercet.modeling.saved.checkpoint import Checkpoint

from .conftest import ROWS


@pytest.mark.parametrize("model_class", [BertModel, BertForSequenceClassification])
def test_the_head_that_a_stock_model_lacks_is_fresh(model_class, bases, tmp_path):
    task = task_of(ClassificationRecipe("classification"))
    write_stock(tmp_path, bases, model_class, id2label=task.config_fields["id2label"])
    fresh = load_task_model(Start(Checkpoint.open(str(tmp_path))), task, seed=0).fresh
    assert fresh == (["classifier.bias", "classifier.weight"] if model_class is BertModel else [])


def write_stock(folder, bases, model_class: Any = BertForSequenceClassification, **fields):
    """Write a stock BERT, of three labels if nothing else is said; give the weights of its classifier."""
    tokenizer = AutoTokenizer.from_pretrained(bases / "encoder")
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, **(fields or {"num_labels": 3}),
    )  # fmt: skip
    model = model_class(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.classifier.weight if hasattr(model, "classifier") else None


def task_of(recipe, count: int = 40):
    """Find a task on some rows of its kind."""
    return build_task(recipe, Dataset.from_list(ROWS[recipe.kind](count, 0)))


def head_for(values, folder, feature=None, **task):
    """Give the weights of the head with which a run on labels begins."""
    rows = Dataset.from_dict({"text": ["a cat"] * len(values), "label": values})
    rows = rows if feature is None else rows.cast_column("label", feature)
    task = build_task(ClassificationRecipe("classification", **task), rows)
    start = Start(Checkpoint.open(str(folder)))
    return load_task_model(start, task, seed=0).model.classifier.out_proj.weight


def test_a_head_without_names_is_not_kept_by_the_order_of_the_alphabet(bases, tmp_path):
    weight, names = write_stock(tmp_path, bases), ["yes", "perhaps", "no"]
    with pytest.warns(
        UserWarning, match="do not say in which order it has them: it is replaced by a new one"
    ):
        assert not head_for(names, tmp_path).equal(weight)
    with pytest.warns(UserWarning, match="which are taken for yes, perhaps, no, in this order"):
        assert head_for(names, tmp_path, label_names=tuple(names)).equal(weight)
    with pytest.warns(UserWarning, match="in this order"):
        assert head_for([0, 1, 2], tmp_path, ClassLabel(names=names)).equal(weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert head_for([2, 0, 1], tmp_path).equal(weight), "the rows have its numbers"
        assert head_for(["LABEL_2", "LABEL_0", "LABEL_1"], tmp_path).equal(weight)


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        (["no", "perhaps", "yes"], r", or task.label_names=\[yes,perhaps,no\], its order, if these are"),
        ([0, 1, 2], r", or task.label_names=\[yes,perhaps,no\], its order"),
        (["Yes", "Perhaps", "No"], ", or write the rows' labels in upper and lower case as the head does"),
        (["a", "b", "c"], "to replace its head$"),
        (["a", "b"], "to replace its head$"),
    ],
)
def test_a_head_with_names_is_kept_for_these_labels_in_its_order(values, remedy, bases, tmp_path):
    names = ["yes", "perhaps", "no"]
    # Files may have them in any order.
    weight = write_stock(tmp_path, bases, id2label={2: "no", 0: "yes", 1: "perhaps"})
    assert head_for(names, tmp_path, label_names=tuple(names)).equal(weight)
    with pytest.raises(ValueError, match=remedy):
        head_for(values, tmp_path)


def test_the_order_of_a_heads_labels_is_that_of_their_numbers(bases, tmp_path):
    """Not that of a file whose keys were sorted as texts (MIC-DKFZ/nnUNet, issue 607, is about such)."""
    names = [f"label {letter}" for letter in "abcdefghijkl"]
    weight = write_stock(tmp_path, bases, num_labels=12, id2label=dict(enumerate(names)))
    file = tmp_path / "config.json"
    told = json.loads(file.read_text())
    told["id2label"] = {key: told["id2label"][key] for key in sorted(told["id2label"])}
    assert list(told["id2label"])[2] == "10"
    file.write_text(json.dumps(told))
    assert head_for(names, tmp_path).equal(weight)


def test_additions_to_layers_of_other_names_are_refused(bases):
    pytest.importorskip("peft", reason="PEFT is not installed")
    model: Any = Checkpoint.open(str(bases / "encoder")).ours()
    with pytest.raises(
        ValueError, match=r"target_modules is \['query'\], but Tercet.* of these names: leave it"
    ):
        learner_of(model, LoraRecipe(target_modules=("query",)), 0)


@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_a_head_that_is_the_table_of_the_embeddings_is_no_addition_of_lora(member, bases, tmp_path):
    """It stays tied, so that the saved model is the one that has learned (huggingface/peft, issue 2777)."""
    pytest.importorskip("peft", reason="PEFT is not installed")
    model: Any = Checkpoint.open(str(bases / member)).ours()
    learner = learner_of(model, LoraRecipe(rank=2), 0).eval()
    learning = {name: each for name, each in learner.named_parameters() if each.requires_grad}
    assert all("lora_" in name for name in learning)
    for parameter in learning.values():
        nn.init.normal_(parameter, std=0.3)
    ids = torch.arange(5, 15)[None]
    learned = learner(ids, labels=ids).loss.item()
    whole, weights = merged(learner, tmp_path / "adapter")
    whole.save_pretrained(tmp_path, state_dict=weights)
    again: Any = Checkpoint.open(str(tmp_path)).ours().eval()
    assert again.config.tie_word_embeddings
    assert again(ids, labels=ids).loss.item() == pytest.approx(learned, abs=1e-5)


@pytest.mark.parametrize("model_class", [BertModel, BertForSequenceClassification])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_layers": 2}, r"lacks 16 tensors \("),
        ({"num_hidden_layers": 0}, r"has 16 tensors \("),
        ({"intermediate_size": 48}, r"do not belong together \("),
    ],
)
def test_no_part_of_a_stock_model_below_its_head_is_fresh_or_dropped(
    fields, message, model_class, bases, tmp_path
):
    task = task_of(ClassificationRecipe("classification"))
    write_stock(tmp_path, bases, model_class, num_labels=len(task.config_fields["id2label"]))
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises(ValueError, match=message):
        load_task_model(Start(Checkpoint.open(str(tmp_path))), task, seed=0)


RECIPES = {"chat": ChatRecipe, "generation": GenerationRecipe, "ranking": RankingRecipe}


@pytest.mark.parametrize(
    ("kind", "model", "message"),
    [
        ("chat", "encoder",
         "encoder is an encoder (tercet_encoder), but task.kind chat needs a decoder: name"),
        ("generation", "decoder",
         "kind generation needs a sequence-to-sequence model: name one in model.path"),
        ("generation", "stock", "stock is an encoder (bert), but task.kind generation needs a sequence-to-"),
        ("ranking", "seq2seq", "task.kind ranking needs an encoder or a decoder: name one in model.path"),
    ],
)  # fmt: skip
def test_a_task_names_the_kind_of_model_that_it_needs(kind, model, message, bases, tmp_path):
    """Before the weights are read, and before its tokenizer lacks a token."""
    folder = bases / model
    if model == "stock":
        folder = tmp_path / model
        BertConfig(architectures=["BertModel"]).save_pretrained(folder)
    task = parse_recipe(RECIPES[kind], {"kind": kind}).build()
    with pytest.raises(ValueError, match=re.escape(message)):
        load_task_model(Start(Checkpoint.open(str(folder))), task, seed=0)


@pytest.mark.parametrize("model_class", [LlamaForCausalLM, LlamaForQuestionAnswering])
def test_a_stock_decoder_learns_to_answer_with_the_weights_that_it_has(model_class, bases, tmp_path):
    """Which its class for questions has under another name than all others."""
    tokenizer = AutoTokenizer.from_pretrained(bases / "decoder")
    sizes: Any = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    stock = model_class(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes))
    stock.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    task = task_of(QuestionAnsweringRecipe("question_answering"), 9)
    found = load_task_model(Start(Checkpoint.open(str(tmp_path))), task, seed=0)
    is_answering = model_class is LlamaForQuestionAnswering
    assert found.fresh == ([] if is_answering else ["qa_outputs.out_proj.bias", "qa_outputs.out_proj.weight"])
    assert found.model.get_input_embeddings().weight.equal(stock.get_input_embeddings().weight)
