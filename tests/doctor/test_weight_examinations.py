"""Weights that are missing, left over, no numbers or dead are found out, each by its examination."""

import pytest
import torch

from tercet.doctor.diagnosis import diagnose

DENSE = "cls.predictions.transform.dense.weight"


def test_a_missing_tensor_is_found(folder_of, edit_weights, complaints):
    folder = folder_of("bert")
    edit_weights(folder, lambda tensors: tensors.pop(DENSE))
    assert complaints(folder) == {"missing tensors": "failed"}
    assert DENSE in diagnose(str(folder)).findings["missing tensors"].measured


def test_a_tensor_of_another_shape_is_found(folder_of, edit_json, complaints):
    folder = folder_of("bert")
    edit_json(folder / "config.json", max_position_embeddings=48)
    assert complaints(folder) == {"missing tensors": "failed"}
    measured = diagnose(str(folder)).findings["missing tensors"].measured
    assert "position_embeddings.weight is (32, 32) in the file and (48, 32) by config.json" in measured


def test_an_unexpected_tensor_is_found(folder_of, edit_weights, complaints):
    folder = folder_of("decoder")
    edit_weights(folder, lambda tensors: tensors.update(stranger=torch.ones(2)))
    assert complaints(folder) == {"unexpected tensors": "warning"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_found(value, folder_of, edit_weights, complaints):
    folder = folder_of("encoder")
    name = "model.layers.1.self_attention.q_proj.weight"
    edit_weights(folder, lambda tensors: tensors[name][3, 5:7].fill_(value))
    assert complaints(folder) == {"finite weights": "failed"}
    findings = diagnose(str(folder)).findings
    assert findings["finite weights"].measured == f"not finite: {name} (2 of 1,024)"
    assert findings["right padding"].verdict == "not applicable"


def test_a_zero_matrix_is_found(folder_of, edit_weights, complaints):
    folder = folder_of("gpt2")
    edit_weights(folder, lambda tensors: tensors["transformer.h.0.mlp.c_fc.weight"].zero_())
    assert complaints(folder) == {"constant rows": "warning"}


def test_constant_rows_are_found_but_for_the_padding_token(folder_of, edit_weights, complaints):
    folder = folder_of("bert")
    embeddings = "bert.embeddings.word_embeddings.weight"
    edit_weights(folder, lambda tensors: tensors[embeddings][0].zero_())
    assert not complaints(folder)
    edit_weights(folder, lambda tensors: tensors[embeddings][7:9].fill_(0.5))
    assert complaints(folder) == {"constant rows": "warning"}
    assert diagnose(str(folder)).findings["constant rows"].measured.endswith(f"{embeddings} (2 of 61)")
