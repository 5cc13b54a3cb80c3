"""A student begins with its teacher's weights, tensor by tensor."""

import pytest
import torch

from tercet.distill.recipe import StudentRecipe
from tercet.distill.student import build_student, whole_tensors
from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.stock.models import to_stock
from tercet.pretraining.model import load_preset

from ..stock_models import SIZES

CLASSES = {
    "encoder": TercetEncoderForMaskedLM,
    "decoder": TercetDecoderForCausalLM,
    "seq2seq": TercetSeq2SeqForConditionalGeneration,
}
SMALL = SIZES | {"num_hidden_layers": 6, "vocab_size": 40, "max_position_embeddings": 16}


def teacher_of(member, model_class=None, preset=None, **fields):
    """Make a teacher with random tensors everywhere."""
    model_class = model_class or CLASSES[member]
    values = load_preset(preset or f"{member}-tiny")
    values.pop("model_type")
    torch.manual_seed(1)
    model = model_class(model_class.config_class(**values | SMALL | fields))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


@pytest.mark.parametrize("member", CLASSES)
@pytest.mark.parametrize(
    ("choice", "layers"),
    [
        ({"layers": "every"}, [0, 2, 4]),
        ({"layers": "spread"}, [0, 2, 5]),
        ({"layers": "first", "num_layers": 2}, [0, 1]),
        ({"layers": "last", "num_layers": 2}, [4, 5]),
        ({"layers": (1, 3, 4, 5)}, [1, 3, 4, 5]),
    ],
)
def test_every_tensor_is_the_teachers(member, choice, layers):
    teacher = teacher_of(member)
    student = build_student(StudentRecipe(**choice), teacher, CLASSES[member], seed=0)
    theirs, seen = teacher.state_dict(), 0
    for name, tensor in student.state_dict().items():
        origin = name
        for number, layer in reversed(list(enumerate(layers))):
            if f"layers.{number}." in name:
                origin = name.replace(f"layers.{number}.", f"layers.{layer}.")
        assert torch.equal(tensor, theirs[origin]), name
        seen += 1
    assert seen == len(student.state_dict()) > 10
    assert student.config.num_hidden_layers == len(layers)


def test_encoder_and_decoder_of_a_translator_lose_layers_separately():
    teacher = teacher_of("seq2seq")
    recipe = StudentRecipe(layers=(0, 1, 2, 3, 4, 5), decoder_layers="last", num_decoder_layers=1)
    student = build_student(recipe, teacher, CLASSES["seq2seq"], seed=0)
    assert (student.config.num_hidden_layers, student.config.decoder_num_hidden_layers) == (6, 1)
    own, theirs = student.state_dict(), teacher.state_dict()
    for name, tensor in own.items():
        if "decoder.layers" in name:
            assert torch.equal(tensor, theirs[name.replace("layers.0.", "layers.5.")]), name
        else:
            assert torch.equal(tensor, theirs[name]), name


def test_distilberts_student_has_neither_token_types_nor_a_pooler_and_leaves_as_a_distilbert():
    teacher = teacher_of("encoder", TercetEncoderForPreTraining, "bert-base")
    assert any("next_sentence" in name for name in teacher.state_dict())
    student = build_student(StudentRecipe(), teacher, CLASSES["encoder"], seed=0)
    names = list(student.state_dict())
    assert not [name for name in names if "token_types" in name or "next_sentence" in name]
    assert student.config.type_vocab_size == 0
    stock = to_stock(student, "distilbert")
    assert type(stock).__name__ == "DistilBertForMaskedLM"
    assert stock.config.n_layers == 3
    kept = build_student(StudentRecipe(token_types="kept"), teacher, CLASSES["encoder"], seed=0)
    assert torch.equal(
        kept.state_dict()["model.embeddings.token_types.weight"],
        teacher.state_dict()["model.embeddings.token_types.weight"],
    )


def test_distilled_gpt2_and_bart_leave_as_such():
    for member, preset, name in (("decoder", "gpt2", "GPT2LMHeadModel"), ("seq2seq", "bart-base", "BartFor")):
        student = build_student(StudentRecipe(), teacher_of(member, preset=preset), CLASSES[member], seed=0)
        assert type(to_stock(student)).__name__.startswith(name)


def test_random_weights_take_nothing_and_follow_their_seed():
    teacher = teacher_of("encoder")
    first, again, other = (
        build_student(StudentRecipe(initialization="random"), teacher, CLASSES["encoder"], seed=seed)
        for seed in (0, 0, 1)
    )
    theirs = teacher.state_dict()
    matrices = [name for name, tensor in first.state_dict().items() if tensor.dim() == 2]
    assert matrices
    for name in matrices:
        assert torch.equal(first.state_dict()[name], again.state_dict()[name])
        assert not torch.equal(first.state_dict()[name], other.state_dict()[name])
        assert not torch.equal(first.state_dict()[name], theirs[name])


def test_a_narrower_student_begins_with_random_weights():
    overrides = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    teacher = teacher_of("decoder")
    with pytest.raises(ValueError, match=r"no weights of these shapes .* student\.initialization=random"):
        build_student(StudentRecipe(overrides=overrides), teacher, CLASSES["decoder"], seed=0)
    recipe = StudentRecipe(overrides=overrides, initialization="random")
    student = build_student(recipe, teacher, CLASSES["decoder"], seed=0)
    assert (student.config.hidden_size, student.config.head_dim) == (16, 8)


def test_both_stacks_have_the_widths_that_are_asked_for():
    overrides = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    recipe = StudentRecipe(overrides=overrides, initialization="random")
    config = build_student(recipe, teacher_of("seq2seq"), CLASSES["seq2seq"], seed=0).config
    assert config.decoder_intermediate_size == 24
    assert (config.decoder_num_attention_heads, config.decoder_head_dim) == (2, 8)


def test_a_model_that_is_the_student_leaves_nothing_to_choose():
    assert StudentRecipe(path="runs/small/model").layers == "every"
    with pytest.raises(ValueError, match="path is runs/small/model, the whole student"):
        StudentRecipe(path="runs/small/model", num_layers=2)


def test_layers_keep_their_types():
    types = ["full_attention", "sliding_attention"] * 3
    teacher = teacher_of("decoder", layer_types=types, sliding_window=4)
    student = build_student(StudentRecipe(layers=(0, 1, 3)), teacher, CLASSES["decoder"], seed=0)
    assert student.config.types_of_layers == ["full_attention", "sliding_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (StudentRecipe(decoder_layers="first"), r"student\.decoder_layers is set, .*: set student\.layers"),
        (StudentRecipe(num_decoder_layers=1), r"student\.num_decoder_layers is .*: set student\.num_layers"),
        (StudentRecipe(overrides={"hidden": 3}), r"student\.overrides\.hidden is not a field"),
        (StudentRecipe(overrides={"vocab_size": 3}), "share a vocabulary"),
        (StudentRecipe(overrides={"num_hidden_layers": 2}), r"are selected by student\.num_layers"),
        (StudentRecipe(overrides={"hidden_act": "x"}), r"student\.overrides"),
        (
            StudentRecipe(overrides={"rope_parameters": {"rope_theta": 0}}),
            r"student\.overrides: .*rope_theta is 0: ",
        ),
        (StudentRecipe(layers=(0, 9)), r"layers are 0 to 5"),
    ],
)
def test_impossible_students_are_refused(recipe, message):
    with pytest.raises(ValueError, match=message):
        build_student(recipe, teacher_of("encoder"), CLASSES["encoder"], seed=0)


def test_tensors_of_a_model_without_head_have_the_names_of_one_with_it():
    teacher = teacher_of("decoder")
    assert whole_tensors(teacher.model).keys() <= whole_tensors(teacher).keys()
