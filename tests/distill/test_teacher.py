"""Teachers of this house and others, and those that cannot teach: one clear line each."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from tercet.configs.recipe import parse_recipe, recipe_data
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.distill.general_step import GeneralStep, build_setup
from tercet.distill.losses import losses_for
from tercet.distill.recipe import DistillationRecipe
from tercet.distill.teacher import require_same_vocabulary
from tercet.modeling import TercetEncoderModel, TercetSeq2SeqConfig
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.pretraining import text
from tercet.training.devices.precision import build_accelerator

from ..reported import distill
from .conftest import WORDS


def changed(recipe, **general):
    data = recipe_data(recipe)
    data["general"] |= general
    return parse_recipe(DistillationRecipe, data)


def test_a_stock_model_teaches(recipe_of, tmp_path, monkeypatch):
    """And is measured beside its student, as the model of ours that it is."""

    def load_each(models, folders, device):
        sizes = {name: Checkpoint.open(folder).ours().num_parameters() for name, folder in folders.items()}
        assert sizes == {name: model.num_parameters() for name, model in models.items()}
        return {name: {"latency": 1.0, "throughput": 2.0, "memory": 3.0} for name in models}

    monkeypatch.setattr("tercet.distill.facts.measure_speeds", load_each)
    tokenizer = train_tokenizer([" ".join(WORDS)] * 20, "wordpiece", 300, template="pair")
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    recipe = changed(recipe_of("encoder", report={"speed": True}), teacher=str(tmp_path / "bert"))
    folder = distill(recipe)
    assert json.loads((recipe.folder / "scores.json").read_text())["speeds"].keys() == {"teacher", "student"}
    assert Checkpoint.open(str(folder)).ours().config.num_hidden_layers == 1


def test_vocabularies_are_compared_token_by_token(teachers):
    first = PreTrainedTokenizerFast.from_pretrained(teachers / "encoder")
    require_same_vocabulary(first, first)
    second = train_tokenizer([" ".join(reversed(WORDS))] * 20, "wordpiece", 60)
    with pytest.raises(
        ValueError, match=r"vocabularies \(60 and .*: id 60 is None for the student and '.*' for the teacher"
    ):
        require_same_vocabulary(first, second)


def test_a_student_of_another_vocabulary_is_refused(recipe_of, teachers, tmp_path):
    Checkpoint.open(str(teachers / "encoder")).ours().save_pretrained(tmp_path / "own")
    train_tokenizer(["cat fish"] * 9, "wordpiece", 60, template="pair").save_pretrained(tmp_path / "own")
    recipe = recipe_of("encoder", student={"path": str(tmp_path / "own")})
    with pytest.raises(ValueError, match="different vocabularies"):
        distill(recipe)


@pytest.fixture(scope="module")
def unfit(teachers, tmp_path_factory) -> Path:
    """Write teachers without a head and without a tokenizer, `bare` and `mute`."""
    folder, source = tmp_path_factory.mktemp("unfit"), Checkpoint.open(str(teachers / "encoder"))
    TercetEncoderModel(source.config).save_pretrained(folder / "bare")
    source.tokenizer.save_pretrained(folder / "bare")
    source.ours().save_pretrained(folder / "mute")
    (folder / "decoder").symlink_to(teachers / "decoder")
    return folder


REFUSED = [
    ({"teacher": "bare"}, "is a TercetEncoderModel, which has no LM head"),
    ({"teacher": "decoder"}, "is a tercet_decoder, but masked_language_modeling needs a"),
    ({"teacher": "mute"}, "has no tokenizer"),
    ({"objective": {"kind": "masked_language_modeling_with_next_sentence"}},
     "which has targets other than tokens"),
    ({"corpus": {"sequence_length": 65}}, r"^general: corpus\.sequence_length is 65, but the teacher has 64"),
    ({"losses": [{"kind": "relations", "heads": 5}]}, r"relations\.heads is 5"),
    ({"sequences": 2}, "which only translation has"),
    ({"cache": {}}, r"set objective\.masking=static"),
    ({"on_policy": {}}, "has no text to go on with"),
    ({"cache": {}, "corpus": {"streaming": True}}, r"^general: cache: .* set corpus\.streaming=false"),
    ({"cache": {}, "training": {"stages": [{"steps": 1, "sequence_length": 16}]}},
     "in sequences of one length: leave sequence_length out of training.stages"),
]  # fmt: skip
"""Changes of a part of the recipe for an encoder, and what is said of them."""


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(changes, message, recipe_of, unfit):
    recipe = recipe_of("encoder")
    data = recipe_data(recipe.general)
    if "teacher" in changes:
        changes = {"teacher": str(unfit / changes["teacher"])}
    nested = {key: data[key] | fields for key, fields in changes.items() if key in ("corpus", "training")}
    with pytest.raises(ValueError, match=message):
        distill(changed(recipe, **changes | nested))
    assert not recipe.folder.exists()


@pytest.mark.parametrize(
    ("student", "message"),
    [
        ({"layers": [1, 9]}, r"student\.layers is \[1, 9\], but .* are 0 to 3"),
        ({"num_layers": 50}, r"student\.num_layers is 50, but the teacher has 4 layers: take fewer"),
        (
            {"overrides": {"max_position_embeddings": 32}, "initialization": "random"},
            r"^general: corpus\.sequence_length is 64, but the student has 32 .* or choose another student$",
        ),
    ],
)
def test_a_student_that_does_not_fit_is_refused_before_an_earlier_run_is_replaced(
    student, message, recipe_of
):
    folder = distill(recipe_of("encoder"))
    before = sorted(path for path in folder.parent.rglob("*"))
    with pytest.raises(ValueError, match=message):
        distill(recipe_of("encoder", student=student), overwrite=True)
    assert sorted(path for path in folder.parent.rglob("*")) == before


def test_windows_of_a_large_text_are_not_cached(recipe_of, monkeypatch):
    for name in ("MOST_PLANNED", "BLOCK", "BLOCKS_OF_WINDOW"):
        monkeypatch.setattr(text, name, 2)
    with pytest.raises(ValueError, match=r"^general: cache: .* windows, of which a cache holds one"):
        distill(recipe_of("decoder", general={"cache": {}}))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_teacher_computes_in_the_precision_of_the_recipe(precision, recipe_of, tmp_path):
    recipe = recipe_of("encoder", training={"precision": precision})
    step = GeneralStep.prepare(recipe.general)
    accelerator = build_accelerator(recipe.general.training, tmp_path)
    _, objective = build_setup(step, recipe.student, recipe.general, step.text.source, accelerator)
    assert objective.teacher.precision == precision


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([{"kind": "cosine"}], "cosine compares states of one width"),
        ([{"kind": "hidden_states", "layers": "last"}], "last layer alone compares states of one width"),
        ([{"kind": "attention_maps"}], "but the student has 2 and the teacher 4"),
        ([{"kind": "relations", "heads": 5}], r"relations\.heads is 5"),
        ([{"kind": "relations", "teacher_layer": 4}], "but the teacher has 4 layers"),
        ([{"kind": "logit_mse"}, {"kind": "logit_mse"}], "has logit_mse twice"),
    ],
)
def test_losses_that_cannot_compare_two_models_are_refused(losses, message, recipe_of, teachers):
    recipes = changed(recipe_of("encoder"), losses=losses).general.losses
    teacher = Checkpoint.open(str(teachers / "encoder")).config
    fields = teacher.to_dict() | {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    student = type(teacher)(**fields | {"head_dim": 8})
    with pytest.raises(ValueError, match=message):
        losses_for(recipes, student, teacher)


def test_maps_of_attention_are_compared_of_whole_sequences_and_equal_heads_in_each_stack(recipe_of):
    losses = changed(recipe_of("seq2seq"), losses=[{"kind": "attention_maps"}]).general.losses
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2}
    teacher = TercetSeq2SeqConfig(**sizes)
    with pytest.raises(ValueError, match="but the student has 2 and the teacher 4"):
        losses_for(losses, TercetSeq2SeqConfig(**sizes, decoder_num_attention_heads=2), teacher)
    types = ["full_attention", "sliding_attention"]
    with pytest.raises(ValueError, match="there are layers of sliding_attention"):
        losses_for(losses, teacher, TercetSeq2SeqConfig(**sizes, layer_types=types, sliding_window=4))


def test_a_smaller_model_may_be_the_student(recipe_of, teachers, tmp_path):
    first = distill(recipe_of("encoder", "first"))
    again = recipe_of("encoder", "again", student={"path": str(first)})
    weights = Checkpoint.open(str(distill(again))).ours().state_dict()
    assert any(not torch.equal(weights[name], tensor)
               for name, tensor in Checkpoint.open(str(first)).ours().state_dict().items())  # fmt: skip
    assert replace(again, student=replace(again.student, path=None)) != again
