"""What users of transformers count on from the heads of tasks: pipelines, the stock Trainer, compilation."""

import logging

import pytest
import torch
from tokenizers import pre_tokenizers
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments, pipeline

from tercet.modeling import (
    TercetDecoderForSequenceClassification,
    TercetDecoderForTokenClassification,
    TercetEncoderForQuestionAnswering,
    TercetEncoderForSequenceClassification,
    TercetEncoderForTokenClassification,
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
)

from ..corners import corners
from ..tolerances import CLOSE
from ..word_level import word_level
from .conftest import MODELS, TASKS

COMPILED = (
    TercetEncoderForQuestionAnswering,
    TercetDecoderForTokenClassification,
    TercetSeq2SeqForSequenceClassification,
)
"""A head of every member: compiling one takes seconds."""
TRAINED = (*MODELS.values(), *COMPILED)

WORDS = ["[PAD]", "[UNK]", "the", "sun", "rises", "over", "old", "town"]
TEXTS = ["the sun rises over the old town", "the town"]


def save_tokenizer(folder) -> PreTrainedTokenizerFast:
    """Save a tokenizer of a few words beside a model."""
    tokenizer = word_level(
        WORDS,
        split=pre_tokenizers.Whitespace(),
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_input_names=["input_ids", "attention_mask"],
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize(
    "architecture",
    [
        TercetEncoderForSequenceClassification,
        TercetDecoderForSequenceClassification,
        TercetSeq2SeqForSequenceClassification,
    ],
)
def test_a_pipeline_classifies_texts(architecture, task_builder, tmp_path, caplog):
    model = task_builder(architecture, id2label={0: "calm", 1: "loud", 2: "odd"})
    model.save_pretrained(tmp_path)
    inputs = save_tokenizer(tmp_path)(TEXTS, padding=True, return_tensors="pt")
    with caplog.at_level(logging.ERROR):
        found = pipeline("text-classification", str(tmp_path), device="cpu")(TEXTS, batch_size=2)
    assert not caplog.records
    scores, labels = model(**inputs).logits.softmax(-1).max(-1)
    assert [each["label"] for each in found] == [model.config.id2label[int(label)] for label in labels]
    assert_close(torch.tensor([each["score"] for each in found]), scores, **CLOSE)


@pytest.mark.parametrize(
    "architecture",
    [
        TercetEncoderForTokenClassification,
        TercetDecoderForTokenClassification,
        TercetSeq2SeqForTokenClassification,
    ],
)
def test_a_pipeline_classifies_tokens(architecture, task_builder, tmp_path, caplog):
    model = task_builder(architecture, id2label={0: "O", 1: "B-PLACE", 2: "I-PLACE"})
    model.save_pretrained(tmp_path)
    inputs = save_tokenizer(tmp_path)(TEXTS[0], return_tensors="pt")
    with caplog.at_level(logging.ERROR):
        found = pipeline("token-classification", str(tmp_path), device="cpu", ignore_labels=[])(TEXTS[0])
    assert not caplog.records
    labels = model(**inputs).logits[0].argmax(-1)
    assert [each["entity"] for each in found] == [model.config.id2label[int(label)] for label in labels]


def test_a_learned_problem_reaches_the_pipeline(task_builder, tmp_path):
    model = task_builder(TercetEncoderForSequenceClassification, num_labels=3)
    inputs = save_tokenizer(tmp_path)(TEXTS[0], return_tensors="pt")
    logits = model(**inputs, labels=torch.tensor([[1.0, 0.0, 1.0]])).logits
    model.save_pretrained(tmp_path)
    found = pipeline("text-classification", str(tmp_path), device="cpu", top_k=None)(TEXTS[0])
    scores = {each["label"]: each["score"] for each in found[0]}
    assert_close(torch.tensor([scores[f"LABEL_{idx}"] for idx in range(3)]), logits[0].sigmoid(), **CLOSE)


@pytest.mark.parametrize(
    ("task", "accumulation"),
    corners(
        (*MODELS.values(), *TASKS),
        (1, 2),
        keep=lambda task, accumulation: accumulation == 2 or task in TRAINED,
    ),
)
def test_the_stock_trainer_trains_every_member_and_task(task, accumulation, task_builder, examples, tmp_path):
    model, whole = task_builder(task), examples(task)
    rows = [{name: value[idx] for name, value in whole.items()} for idx in range(4)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=4 // accumulation,
        gradient_accumulation_steps=accumulation,
        learning_rate=0.0,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
        save_strategy="no",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    expected = model.eval()(**whole).loss.item()  # of ragged targets, too: their common mean
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected, rel=1e-3)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("task", corners(TASKS, keep=lambda task: task in COMPILED))
def test_every_task_compiles_without_graph_breaks(task, task_builder, examples):
    torch._dynamo.reset()
    model, inputs = task_builder(task).train(), examples(task)
    compiled = torch.compile(model, fullgraph=True, backend="eager")(**inputs)
    assert_close(compiled.loss, model(**inputs).loss, **CLOSE)


def test_packed_answers_compile_without_graph_breaks(task_builder, batch):
    torch._dynamo.reset()
    model = task_builder(TercetEncoderForQuestionAnswering)
    inputs = batch.packed() | {
        "start_positions": torch.zeros(5).long(),
        "end_positions": torch.zeros(5).long(),
    }
    compiled = torch.compile(model, fullgraph=True, backend="eager")(**inputs)
    assert_close(compiled.loss, model(**inputs).loss, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_of_half_precision_are_float32(task, dtype, task_builder, examples):
    model, inputs = task_builder(task), examples(task)
    expected = model(**inputs).loss
    loss = model.to(dtype)(**inputs).loss
    assert loss.dtype == torch.float32
    assert_close(loss, expected, rtol=0.2, atol=0.2)


def test_wrong_requests_are_refused_with_a_remedy(task_builder):
    ids, smoothing = torch.ones(1, 3, dtype=torch.long), {"label_smoothing": 0.1}
    regression = task_builder(TercetEncoderForSequenceClassification, num_labels=1)
    with pytest.raises(ValueError, match=r"label_smoothing is 0\.1, but regression"):
        regression(input_ids=ids, labels=torch.ones(1), **smoothing)
    with pytest.raises(ValueError, match=r"z_loss is 0\.001, but regression"):
        regression(input_ids=ids, labels=torch.ones(1), z_loss=1e-3)
    seq2seq = task_builder(TercetSeq2SeqForSequenceClassification)
    with pytest.raises(ValueError, match="input_ids is None: pass it"):
        seq2seq(inputs_embeds=torch.ones(1, 3, 32))
    seq2seq.config.decoder_start_token_id = None
    with pytest.raises(ValueError, match=r"config\.decoder_start_token_id is None"):
        seq2seq(input_ids=ids)
