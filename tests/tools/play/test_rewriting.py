"""Translations and restored texts are what `generate` writes, with the probabilities of the model."""

from dataclasses import replace

import pytest
import torch

from tercet.data.files.columns import as_rows
from tercet.finetune.prediction import Predictor
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.tools.play.loaded_model import LoadedModel
from tercet.tools.play.sessions import abilities_of


def test_restored_gaps_are_what_generate_writes_behind_the_sentinels(load):
    restore = abilities_of(load("spans"))["restore"]
    tokenizer, model = restore.model.tokenizer, restore.model.model
    inputs = tokenizer("The <extra_id_0> sat on <extra_id_1>.", return_tensors="pt")
    written = model.generate(
        **{name: inputs[name] for name in ("input_ids", "attention_mask")}, num_beams=1, max_new_tokens=12
    )
    assert restore.prepare("The ___ sat on ____.") == "The <extra_id_0> sat on <extra_id_1>."
    _, ranking = restore.answer(["The ___ sat on ___."], {"beams": 1, "length": 12})
    assert ranking.entries[0].text == restore.read(written[0], "")


def test_spans_stand_in_the_gaps_that_their_sentinels_name(load):
    restore = abilities_of(load("spans"))["restore"]
    ids = restore.model.tokenizer.convert_tokens_to_ids
    end = restore.model.tokenizer.eos_token_id
    answer = torch.tensor([0, ids("<extra_id_1>"), ids("a"), ids("<extra_id_0>"), ids("t"), end])
    pieces = restore.pieces(answer, "The ___ sat on ___.")
    assert "".join(piece.text for piece in pieces) == "The t sat on a."
    assert [piece.text for piece in pieces if piece.role == "new"] == ["t", "a"]


def test_a_mask_stands_for_a_gap_where_there_are_no_sentinels(load):
    restore = abilities_of(load("denoiser"))["restore"]
    assert restore.prepare("The ___ sat.") == f"The {restore.model.tokenizer.mask_token} sat."


def test_the_probability_per_token_is_the_geometric_mean_of_a_forward_pass(load, monkeypatch):
    restore = abilities_of(load("denoiser"))["restore"]
    inputs = restore.model.inputs("The cat sat.")
    (end,) = restore.ends
    monkeypatch.setattr(restore.model.model.generation_config, "eos_token_id", [end, 11])
    answers = torch.tensor([[2, 5, 7, end, 1, 1], [2, 9, 8, 7, 6, 5], [2, 5, 11, 1, 1, 1]])
    lengths = [3, 5, 2]
    with torch.no_grad():
        for row, length in enumerate(lengths):
            logits = restore.model.model(**inputs, decoder_input_ids=answers[row : row + 1, :-1]).logits[0]
            logs = logits.log_softmax(dim=-1)[range(length), answers[row, 1 : length + 1]]
            found = restore.probability_per_token(inputs, answers)[row]
            assert found == pytest.approx(logs.mean().exp().item(), rel=1e-4)


def test_answers_are_ranked_and_as_many_as_asked_for(load):
    restore = abilities_of(load("denoiser"))["restore"]
    passage, ranking = restore.answer(["The ___ sat."], {"beams": 4, "answers": 3, "length": 8})
    values = [entry.value for entry in ranking.entries]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)
    assert passage.text == ranking.entries[0].text


def test_a_fine_tuned_model_writes_what_predict_writes(load, folders):
    write = abilities_of(load("writer"))["write"]
    predictor = Predictor(Checkpoint.open(str(folders / "writer" / "model")))
    (expected,) = predictor.predict(as_rows({"source": ["The cat sat."]}))
    passage, _ = write.answer(["The cat sat."], {"beams": 1, "answers": 1})
    assert passage.text == (expected["text"].strip() or "(nothing)")


def test_a_model_that_was_trained_to_translate_offers_that(load):
    model = load("denoiser")
    run = replace(model.run, recipe={"objective": {"kind": "translation"}})
    offered = abilities_of(LoadedModel(model.name, model.checkpoint, model.model, run, None))
    assert "translate" in offered
    assert not {"restore", "write"} & offered.keys()


def test_a_translator_offers_the_held_out_sources_of_its_own_run(load):
    """Captions would mean nothing to a model that writes telegrams out."""
    model = load("denoiser")
    samples = [{"source": "return number rows", "target": "Return the number of rows.", "written": "Rows."}]
    recipe = {"objective": {"kind": "translation"}}
    run = replace(model.run, recipe=recipe, evaluation={"samples": samples})
    for facts, first in ((run, "return number rows"), (replace(run, evaluation={}), "Two young men")):
        told = LoadedModel(model.name, model.checkpoint, model.model, facts, None)
        translate = abilities_of(told)["translate"]
        assert translate.examples[0][0].startswith(first)
