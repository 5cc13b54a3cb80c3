"""Teachers of this house and others, and those that cannot teach: one clear line each."""

from dataclasses import replace

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from tercet.configs.recipe import parse_recipe, recipe_data
from tercet.distill.recipe import DistillationRecipe
from tercet.distill.run import distill
from tercet.distill.signal_building import build_signals
from tercet.distill.teacher import load_source, require_same_vocabulary
from tercet.modeling import TercetEncoderModel
from tercet.pretraining.tokenizer import train_tokenizer

from .conftest import WORDS


def changed(recipe, **general):
    data = recipe_data(recipe)
    data["general"] |= general
    return parse_recipe(DistillationRecipe, data)


def test_a_stock_model_teaches(recipe_of, tmp_path):
    tokenizer = train_tokenizer([" ".join(WORDS)] * 20, "wordpiece", 300, template="pair")
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    folder = distill(changed(recipe_of("encoder"), teacher=str(tmp_path / "bert")))
    assert load_source(str(folder)).model.config.num_hidden_layers == 1


def test_vocabularies_are_compared_token_by_token(teachers):
    first = PreTrainedTokenizerFast.from_pretrained(teachers / "encoder")
    require_same_vocabulary(first, first)
    second = train_tokenizer([" ".join(reversed(WORDS))] * 20, "wordpiece", 60)
    with pytest.raises(
        ValueError, match=r"vocabularies \(60 and .*: id 60 is None for the student and '.*' for the teacher"
    ):
        require_same_vocabulary(first, second)


def test_a_student_of_another_vocabulary_is_refused(recipe_of, teachers, tmp_path):
    source = load_source(str(teachers / "encoder"))
    source.model.save_pretrained(tmp_path / "own")
    train_tokenizer(["cat fish"] * 9, "wordpiece", 60, template="pair").save_pretrained(tmp_path / "own")
    recipe = recipe_of("encoder", student={"path": str(tmp_path / "own")})
    with pytest.raises(ValueError, match="different vocabularies"):
        distill(recipe)


def test_a_teacher_without_the_needed_outputs_is_refused(recipe_of, teachers, tmp_path):
    source = load_source(str(teachers / "encoder"))
    bare = TercetEncoderModel(source.model.config)
    bare.save_pretrained(tmp_path / "bare")
    source.tokenizer.save_pretrained(tmp_path / "bare")
    recipe = recipe_of("encoder")
    with pytest.raises(ValueError, match="is a TercetEncoderModel, which expects no tokens"):
        distill(changed(recipe, teacher=str(tmp_path / "bare")))
    with pytest.raises(ValueError, match="is a tercet_decoder, but masked_language_modeling is learned by"):
        distill(changed(recipe, teacher=str(teachers / "decoder")))
    with pytest.raises(ValueError, match="which asks for more than tokens"):
        distill(changed(recipe, objective={"kind": "masked_language_modeling_with_next_sentence"}))
    source.model.save_pretrained(tmp_path / "mute")
    with pytest.raises(ValueError, match="has no tokenizer"):
        distill(changed(recipe, teacher=str(tmp_path / "mute")))
    assert not recipe.folder.exists()


def test_layers_that_do_not_fit_are_refused(recipe_of):
    with pytest.raises(ValueError, match=r"student\.layers is \[1, 9\], but the teacher's layers are 0 to 3"):
        distill(recipe_of("encoder", student={"layers": [1, 9]}))


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        ([{"kind": "cosine"}], "cosine compares states of one width"),
        ([{"kind": "hidden_states", "layers": "last"}], "last layer alone compares states of one width"),
        ([{"kind": "attention_maps"}], "compares head by head, but the student has 2 and the teacher 4"),
        ([{"kind": "relations", "heads": 5}], r"relations\.heads is 5"),
        ([{"kind": "relations", "teacher_layer": 4}], "but the teacher has 4 layers"),
        ([{"kind": "logit_mse"}, {"kind": "logit_mse"}], "has logit_mse twice"),
    ],
)
def test_signals_that_cannot_compare_two_models_are_refused(signals, message, recipe_of, teachers):
    recipes = changed(recipe_of("encoder"), signals=signals).general.signals
    teacher = load_source(str(teachers / "encoder")).model.config
    fields = teacher.to_dict() | {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    student = type(teacher)(**fields | {"head_dim": 8})
    with pytest.raises(ValueError, match=message):
        build_signals(recipes, student, teacher)


def test_a_smaller_model_may_be_the_student(recipe_of, teachers, tmp_path):
    first = distill(recipe_of("encoder", "first"))
    again = recipe_of("encoder", "again", student={"path": str(first)})
    weights = load_source(str(distill(again))).model.state_dict()
    assert any(not torch.equal(weights[name], tensor)
               for name, tensor in load_source(str(first)).model.state_dict().items())  # fmt: skip
    assert replace(again, student=replace(again.student, path=None)) != again
