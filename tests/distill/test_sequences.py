"""Sequence-level distillation: students learn to write what their teacher writes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tercet.distill.general_step import GeneralStep, source_of
from tercet.distill.sequences import own_tokens, written_pairs
from tercet.modeling.generation.writing import padded

from ..reported import distill

CPU = torch.device("cpu")


def test_targets_are_what_the_teachers_beams_write(recipe_of, tmp_path):
    recipe = recipe_of("seq2seq")
    step = GeneralStep.prepare(recipe.general)
    corpus = replace(recipe.general.corpus, cache=str(tmp_path / "cache"), sequence_length=48)
    pairs = written_pairs(step.teacher, step.model, corpus, step.text.source, 3, CPU)
    closing = step.text.source.closing.tolist()
    assert 0 < len(pairs) <= len(step.text.source)
    numbers = {document: number for number, document in enumerate(step.text.source.documents)}
    for index in (0, len(pairs) // 2, len(pairs) - 1):
        pair = pairs[index]
        source = step.text.source[numbers[pairs.documents[index]]]["input_ids"]
        assert np.array_equal(pair["input_ids"], source)
        with torch.inference_mode():
            ids = step.model.eval().generate(
                **padded([source], step.tokenizer.pad_token_id),
                num_beams=3, max_new_tokens=48 - len(closing), do_sample=False,
            )[0].numpy()  # fmt: skip
        own = own_tokens(ids, step.model.config.decoder_start_token_id, step.text.source.closing, 0)
        assert pair["labels"].tolist() == [*own.tolist(), *closing]


def test_they_are_written_once(recipe_of, tmp_path, monkeypatch):
    recipe = recipe_of("seq2seq")
    step = GeneralStep.prepare(recipe.general)
    corpus = replace(recipe.general.corpus, cache=str(tmp_path / "cache"))
    own = step.teacher, step.model, corpus, step.text.source, 1, CPU
    first = written_pairs(*own)
    monkeypatch.setattr("tercet.distill.sequences.write_targets", None)
    again = written_pairs(*own)
    assert np.array_equal(first.target.tokens, again.target.tokens)


def test_a_student_learns_from_them(recipe_of):
    recipe = recipe_of("seq2seq")
    recipe = replace(recipe, general=replace(recipe.general, sequences=1))
    assert (distill(recipe) / "config.json").exists()


def test_who_reads_no_pairs_has_no_targets_to_replace(recipe_of):
    general = replace(recipe_of("decoder").general, sequences=2)
    step = GeneralStep.prepare(general)
    with pytest.raises(ValueError, match="which only translation has"):
        source_of(step, general, CPU)
