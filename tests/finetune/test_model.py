"""What a run begins with says which of its weights nobody has trained."""

import json

import pytest
from datasets import Dataset
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertModel

from tercet.finetune.model import load_pretrained_model
from tercet.finetune.recipe import PretrainedModelRecipe
from tercet.finetune.task_recipes import ClassificationRecipe
from tercet.finetune.tasks import build_task

from .conftest import ROWS


@pytest.mark.parametrize("has_head", [False, True])
def test_the_head_that_a_stock_model_lacks_is_fresh(has_head, bases, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(bases / "encoder")
    task = build_task(
        ClassificationRecipe("classification"), Dataset.from_list(ROWS["classification"](40, 0))
    )
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, num_labels=len(task.config_fields["id2label"]),
    )  # fmt: skip
    (BertForSequenceClassification if has_head else BertModel)(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    fresh = load_pretrained_model(PretrainedModelRecipe(str(tmp_path)), task, seed=0).fresh
    assert fresh == ([] if has_head else ["classifier.bias", "classifier.weight"])


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
    tokenizer = AutoTokenizer.from_pretrained(bases / "encoder")
    task = build_task(
        ClassificationRecipe("classification"), Dataset.from_list(ROWS["classification"](40, 0))
    )
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, num_labels=len(task.config_fields["id2label"]),
    )  # fmt: skip
    model_class(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises(ValueError, match=message):
        load_pretrained_model(PretrainedModelRecipe(str(tmp_path)), task, seed=0)
