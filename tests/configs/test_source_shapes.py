"""Keys read from source are those of the dataclasses, and reading them imports nothing heavy."""

import subprocess
import sys

import pytest

from tercet.configs import recipe as checking
from tercet.configs.source_shapes import field_names, read_shape
from tercet.distill.recipe import DistillationRecipe
from tercet.fewshot.recipe import FewShotRecipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.modeling import TercetSeq2SeqConfig
from tercet.planning.machines import PlanRecipe
from tercet.pretraining.recipe import PretrainingRecipe

RECIPES = [PretrainingRecipe, FineTuningRecipe, DistillationRecipe, FewShotRecipe, PlanRecipe]


@pytest.mark.parametrize("cls", RECIPES, ids=lambda cls: cls.__name__)
def test_shape_has_the_keys_of_the_recipe(cls):
    shape = read_shape(cls.__module__, cls.__name__)
    assert list(checking._all_keys(shape, (), ())) == list(checking._all_keys(cls, (), ()))


@pytest.mark.parametrize(
    "data",
    [
        {"training": {"stepz": 3}},
        {"training": {"optimizer": {"lr": 1}}},
        {"training": {"stages": [{"steps": 1}, {"step": 2}]}},
        {"objective": {"kind": "denoising", "rate": 0.1}},
        {"objective": {"kind": "causal_language_modeling", "mlm_probability": 0.1}},
        {"learning_rate": 1},
    ],
    ids=str,
)
def test_shape_refuses_in_the_words_of_the_recipe(data):
    messages = []
    for cls in (PretrainingRecipe, read_shape(PretrainingRecipe.__module__, "PretrainingRecipe")):
        with pytest.raises(ValueError, match=r"unknown key|renamed") as refusal:
            checking.check_keys(cls, data)
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]


def test_fields_of_a_configuration_include_those_of_its_bases():
    names = field_names("tercet.modeling.configuration_tercet", "TercetSeq2SeqConfig")
    assert {"hidden_size", "rope_theta", "norm_placement", "decoder_head_dim"} <= set(names)
    assert all(hasattr(TercetSeq2SeqConfig(), name) for name in names)


def test_unknown_classes_allow_everything():
    assert read_shape("tercet.configs.recipe", "NoSuchClass") is read_shape("tercet.none.such", "Class")


def test_reading_a_shape_does_not_import_torch():
    program = (
        "import sys; sys.orig_argv = ['python', '-m', 'tercet']\n"
        "from tercet.configs.source_shapes import read_shape\n"
        "read_shape('tercet.distill.recipe', 'DistillationRecipe')\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
