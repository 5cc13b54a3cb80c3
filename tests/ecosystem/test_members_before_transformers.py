"""transformers' `Trainer` and `generate` with recurrent translators, character models and taggers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer

from tercet import (
    TercetCharacterConfig,
    TercetCharacterLanguageModel,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetTaggerConfig,
    TercetTaggerForTokenClassification,
)
from tercet.interop.model_folder import load_tokenizer
from tercet.interop.own_model import load_ours
from tercet.interop.word_tokenizer import word_tokenizer
from tercet.modeling.word_embedders import adopt, describe

from ..small_taggers import save_static

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
NUM_LABELS = 3


def translator(size: int, folder=None) -> PreTrainedModel:
    config = TercetRecurrentSeq2SeqConfig(
        vocab_size=size, hidden_size=16, num_hidden_layers=1, eos_token_id=3, pad_token_id=0, dropout=0.0
    )
    return TercetRecurrentSeq2SeqForConditionalGeneration(config)


def speller(size: int, folder=None) -> PreTrainedModel:
    fields = {"hidden_size": 12, "embedding_size": 8, "dropout": 0.0, "pad_token_id": 0}
    return TercetCharacterLanguageModel(TercetCharacterConfig(vocab_size=size, **fields))


def tagger(size: int, folder) -> PreTrainedModel:
    source = load_ours(str(save_static(folder))), load_tokenizer(folder)
    fields: dict[str, Any] = {
        "hidden_size": 16,
        "num_labels": NUM_LABELS,
        "dropout": 0.0,
        "word_dropout": 0.0,
    }
    embeddings = [describe(source[0].config, source[1])]
    model = TercetTaggerForTokenClassification(TercetTaggerConfig(embeddings=embeddings, **fields))
    adopt(model.model.features.parts[0], *source)
    return model


MEMBERS: dict[str, Callable[..., PreTrainedModel]] = {
    "translator": translator,
    "character model": speller,
    "tagger": tagger,
}
COUNTING = ["translator", "tagger"]
"""Those whose targets are labels, which `Trainer` counts over micro-batches."""


@pytest.fixture(params=MEMBERS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def make(kind, tokenizer, tmp_path) -> Callable[[], PreTrainedModel]:
    """Give the function that builds a member, always with the same weights."""

    def make() -> PreTrainedModel:
        torch.manual_seed(0)
        return MEMBERS[kind](len(tokenizer), tmp_path / "vectors")

    return make


@pytest.fixture
def data(kind, rows, texts) -> list[dict]:
    """Eight rows of different lengths, and of different numbers of labels."""
    if kind != "tagger":
        return rows
    encoded = word_tokenizer()(texts * 2)["input_ids"]
    return [
        {"input_ids": ids, "labels": [place % NUM_LABELS for place in range(len(ids))]} for ids in encoded
    ]


@pytest.mark.parametrize("kind", COUNTING, indirect=True)
def test_accumulated_micro_batches_make_the_step_of_the_whole_batch(kind, make, data, arguments, pad):
    ends = []
    for accumulation in (1, 4):
        model = make()
        Trainer(model, arguments(accumulation), pad(model), train_dataset=data).train()
        ends.append(dict(model.named_parameters()))
    start = dict(make().named_parameters())
    assert any((weight != start[name]).any() for name, weight in ends[0].items())
    assert_close(*ends, **CLOSE)


def test_resumed_training_ends_as_an_uninterrupted_one(make, data, arguments, pad):
    ends = []
    for steps, resumes in ((4, False), (2, False), (4, True)):
        model = make()
        options = {"optim": "adamw_torch", "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 2}
        trainer = Trainer(
            model, arguments(accumulation=2, max_steps=steps, **options), pad(model), train_dataset=data
        )
        trainer.train(resume_from_checkpoint=resumes)
        ends.append(dict(model.named_parameters()))
    assert_close(ends[2], ends[0], rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["character model"], indirect=True)
def test_the_loss_of_a_character_model_is_that_of_its_targets(make, tokenizer, arguments, pad):
    """A direction has one target less than a text has labels."""
    model, data = make().eval(), tokenizer(["rain ! rain"] * 4)["input_ids"]
    data = [{"input_ids": ids, "labels": ids} for ids in data]
    trainer = Trainer(model, arguments(), pad(model), train_dataset=data)
    expected = model(**pad(model)(data)).loss.item()
    assert trainer.evaluate(data)["eval_loss"] == pytest.approx(expected, rel=1e-5)
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert losses[0] == pytest.approx(expected, rel=1e-4)


def test_translations_of_the_trainer_are_those_of_each_row_alone(tokenizer, rows, arguments, pad):
    torch.manual_seed(0)
    model = translator(len(tokenizer)).eval()
    options = arguments(
        kind=Seq2SeqTrainingArguments,
        predict_with_generate=True,
        generation_max_length=9,
        generation_num_beams=2,
        per_device_eval_batch_size=8,
    )
    predicted = Seq2SeqTrainer(model, options, pad(model)).predict(rows).predictions
    for row, text in zip(rows, predicted, strict=True):
        expected = model.generate(torch.tensor([row["input_ids"]]), max_length=9, num_beams=2)[0]
        assert text[: len(expected)].tolist() == expected.tolist()
