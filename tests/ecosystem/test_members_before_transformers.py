"""transformers with recurrent translators, character models, ELMo, taggers, and hybrids as masked models."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    pipeline,
)

from tercet import (
    TercetCharacterConfig,
    TercetCharacterLanguageModel,
    TercetDecoderConfig,
    TercetDecoderForMaskedLM,
    TercetElmoForTokenClassification,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetTaggerConfig,
    TercetTaggerForTokenClassification,
)
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling.recurrent.word_embedders import adopt, describe
from tercet.modeling.recurrent.word_tokenizer import word_tokenizer
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.model_folder import load_tokenizer

from ..architectures import AUTO_CLASSES
from ..small_elmo import TEXTS as SENTENCES
from ..small_elmo import small_config
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


def elmo(size: int, folder) -> PreTrainedModel:
    config = small_config(vocab_size=540, num_labels=NUM_LABELS)
    model = TercetElmoForTokenClassification(config)
    model.learn_spelling(speller_of_words())
    return model


def hybrid(size: int, folder=None) -> PreTrainedModel:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return TercetDecoderForMaskedLM(TercetDecoderConfig(vocab_size=size, initializer_range=0.3, **sizes))


def speller_of_words() -> PreTrainedTokenizerFast:
    return train_tokenizer(SENTENCES, "words", 540)


def tagger(size: int, folder) -> PreTrainedModel:
    source = Checkpoint.open(str(save_static(folder))).ours(), load_tokenizer(folder)
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
    "ELMo": elmo,
    "hybrid": hybrid,
}
COUNTING = ["translator", "tagger", "ELMo", "hybrid"]
"""Those whose targets are labels, which `Trainer` counts over micro-batches."""


READERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "tagger": word_tokenizer,
    "ELMo": speller_of_words,
}
"""The tokenizers of members that read words."""


@pytest.fixture(params=MEMBERS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def make(kind, tokenizer, tmp_path) -> Callable[[], PreTrainedModel]:
    """Return the function that builds a member, always with the same weights."""

    def make() -> PreTrainedModel:
        torch.manual_seed(0)
        return MEMBERS[kind](len(tokenizer), tmp_path / "vectors")

    return make


@pytest.fixture
def data(kind, rows, texts) -> list[dict]:
    """Eight rows of different lengths, and of different numbers of labels."""
    if kind not in READERS:
        return rows
    encoded = READERS[kind]()(texts * 2)["input_ids"]
    return [
        {"input_ids": ids, "labels": [place % NUM_LABELS for place in range(len(ids))]} for ids in encoded
    ]


@pytest.mark.ecosystem("transformers", "`Trainer`, `gradient_accumulation_steps=...`")
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


@pytest.mark.ecosystem("transformers", "`Trainer(resume_from_checkpoint=...)`")
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


@pytest.mark.ecosystem("transformers", "`Seq2SeqTrainer(predict_with_generate=True)`", member="translator")
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


@pytest.fixture
def saved(kind, make, tokenizer, tmp_path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, str]:
    """Save a member with the tokenizer that it reads; give both, and the folder."""
    model, folder = make().eval(), str(tmp_path / "saved")
    reader = READERS[kind]() if kind in READERS else tokenizer
    for part in (model, reader):
        part.save_pretrained(folder)
    return model, reader, folder


@pytest.mark.ecosystem("transformers", "`AutoConfig`, `AutoTokenizer`, every `AutoModel*`")
def test_auto_classes_load_what_was_saved(saved, texts):
    model, reader, folder = saved
    loaders = [auto_class for auto_class, models in AUTO_CLASSES.items() if type(model) in models]
    assert loaders
    for auto_class in loaders:
        loaded = auto_class.from_pretrained(folder)
        assert type(loaded) is type(model)
        assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    base = AutoModel.from_pretrained(folder)
    assert_close(base.state_dict(), model.base_model.state_dict(), rtol=0, atol=0)
    assert (
        AutoConfig.from_pretrained(folder).to_dict() == type(model).from_pretrained(folder).config.to_dict()
    )
    assert AutoTokenizer.from_pretrained(folder)(texts)["input_ids"] == reader(texts)["input_ids"]


@pytest.mark.ecosystem("transformers", '`pipeline("token-classification")`')
@pytest.mark.parametrize("kind", ["tagger", "ELMo"], indirect=True)
def test_words_get_the_labels_of_their_logits(kind, saved, texts):
    model, reader, folder = saved
    tag = pipeline("token-classification", model=folder, ignore_labels=[], device="cpu")
    for text, words in zip(texts, tag(texts, batch_size=4), strict=True):
        ids = reader(text, return_tensors="pt")["input_ids"]
        is_text = (
            torch.tensor(reader.get_special_tokens_mask(ids[0].tolist(), already_has_special_tokens=True))
            == 0
        )
        scores = model(ids).logits[0, is_text].softmax(-1).amax(-1)
        assert_close(torch.tensor([float(word["score"]) for word in words]), scores, **CLOSE)


@pytest.mark.ecosystem("transformers", '`pipeline("feature-extraction")`')
@pytest.mark.parametrize("kind", ["character model", "ELMo", "tagger"], indirect=True)
def test_features_are_the_last_states(kind, saved, texts):
    model, reader, folder = saved
    extract = pipeline("feature-extraction", model=folder, return_tensors=True, device="cpu")
    for text, states in zip(texts, extract(texts), strict=True):
        ids = reader(text, return_tensors="pt")["input_ids"]
        assert_close(states, model.base_model(ids).last_hidden_state, **CLOSE)


@pytest.mark.ecosystem("transformers", '`pipeline("fill-mask")`', member="hybrid")
@pytest.mark.parametrize("kind", ["hybrid"], indirect=True)
def test_masks_are_filled_with_what_is_likeliest(kind, saved):
    model, reader, folder = saved
    (ids,) = reader("the quick [MASK] fox", return_tensors="pt")["input_ids"][None]
    place = (ids[0] == reader.mask_token_id).nonzero().item()
    expected = model(ids).logits[0, place].softmax(-1).topk(5)
    guesses = pipeline("fill-mask", model=folder, top_k=5, device="cpu")("the quick [MASK] fox")
    assert [guess["token"] for guess in guesses] == expected.indices.tolist()


@pytest.mark.ecosystem("transformers", "`generate(do_sample=False)`")
@pytest.mark.parametrize("kind", ["translator", "hybrid"], indirect=True)
def test_the_likeliest_token_follows(kind, saved, write, prompt):
    model, _, folder = saved
    if kind == "hybrid":
        model = AutoModelForCausalLM.from_pretrained(folder)
    found = model.generate(prompt, do_sample=False, max_new_tokens=6, eos_token_id=None)
    assert torch.equal(found, write(model, prompt, 6))
