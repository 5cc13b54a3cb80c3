"""A model that is another one after saving is found out, and so are ties that are none."""

from itertools import count

import torch
from transformers import LlamaForCausalLM

from tercet.doctor.diagnosis import examine
from tercet.doctor.examined_model import load_examined_model


def test_results_that_depend_on_what_is_not_saved_are_found(folder_of, complaints, monkeypatch):
    folder, counter = folder_of("llama"), count()
    build, forward = LlamaForCausalLM.__init__, LlamaForCausalLM.forward

    def build_anew(model, config):
        build(model, config)
        model.calibration = next(counter)

    def calibrated(
        model, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None
    ):
        outputs = forward(
            model, input_ids, attention_mask, position_ids, past_key_values, use_cache=use_cache
        )
        outputs.logits = outputs.logits + model.calibration
        return outputs

    monkeypatch.setattr(LlamaForCausalLM, "__init__", build_anew)
    monkeypatch.setattr(LlamaForCausalLM, "forward", calibrated)
    assert complaints(folder) == {"saving": "failed"}


def test_a_tie_that_the_file_undoes_is_found(folder_of, edit_weights, complaints):
    folder = folder_of("gpt2")
    edit_weights(folder, lambda tensors: tensors.update({"lm_head.weight": torch.randn(61, 32)}))
    assert complaints(folder) == {"tied weights": "failed"}


def test_a_head_of_its_own_is_well_where_the_configuration_cannot_say_so(folder_of, edit_weights, complaints):
    folder = folder_of("t5")
    edit_weights(folder, lambda tensors: tensors.update({"lm_head.weight": torch.randn(61, 32)}))
    assert not complaints(folder)


def failures(examined) -> dict[str, str]:
    """Name the examinations that failed, with what they measured."""
    findings = examine(examined).findings.items()
    return {name: finding.measured for name, finding in findings if finding.verdict == "failed"}


def test_a_tie_that_saving_undoes_is_found(folder_of):
    examined = load_examined_model(str(folder_of("llama")))
    examined.model.lm_head.weight = examined.model.model.embed_tokens.weight
    failed = failures(examined)
    assert set(failed) == {"saving", "tied weights"}  # the head is not in the file, and drawn at random
    expected = "not the same after saving: lm_head.weight=model.embed_tokens.weight"
    assert failed["tied weights"] == expected


def test_a_tie_that_cannot_be_saved_is_found(folder_of):
    examined = load_examined_model(str(folder_of("llama")))
    first, second = examined.model.model.layers
    second.input_layernorm.weight = first.input_layernorm.weight
    failed = failures(examined)
    assert set(failed) == {"saving", "tied weights"}
    assert "shared tensors" in failed["saving"]
