"""Similarity is the cosine of pooled states."""

import shutil

import pytest
import torch
from torch.nn import functional as F

from tercet.data.files.columns import as_rows
from tercet.finetune.prediction import Predictor
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.sentence_vectors import SentenceVectors, sentence_files, write_files
from tercet.tools.play.loaded_model import load_model
from tercet.tools.play.sessions import abilities_of

TEXTS = ["The cat sat on the roof.", "Two young men are walking.", "a list of strings"]


@pytest.mark.parametrize("name", ["encoder", "decoder", "denoiser"])
def test_texts_are_ranked_by_the_cosine_of_their_mean_states(name, load):
    model = load(name)
    base = model.model.get_encoder() if name == "denoiser" else model.model.model
    with torch.no_grad():
        query, *vectors = [
            base(input_ids=model.tokenizer(text, return_tensors="pt")["input_ids"])
            .last_hidden_state[0]
            .mean(0)
            for text in ["The dog ran home.", *TEXTS]
        ]
    expected = {
        text: F.cosine_similarity(query, each, dim=0).item()
        for text, each in zip(TEXTS, vectors, strict=True)
    }
    ranking, note = abilities_of(model)["similar"].answer(["The dog ran home.", "\n".join(TEXTS)], {})
    assert {entry.text: entry.value for entry in ranking.entries} == pytest.approx(expected, abs=1e-5)
    values = [entry.value for entry in ranking.entries]
    assert values == sorted(values, reverse=True)
    assert "was not trained for similarity" in note.text


def test_a_model_of_sentence_vectors_gives_those_of_predict(load, folders):
    similar = abilities_of(load("searcher"))["similar"]
    predictor = Predictor(Checkpoint.open(str(folders / "searcher" / "model")))
    expected = [row["embedding"] for row in predictor.predict(as_rows({"query": TEXTS}))]
    with torch.no_grad():
        assert similar.vectors(TEXTS).tolist() == [pytest.approx(each, abs=2e-6) for each in expected]
    assert len(similar.answer([TEXTS[0], "\n".join(TEXTS)], {})) == 1  # no note: it was trained for this


def test_a_sentence_transformers_setting_names_the_pooling(load, folders, tmp_path):
    folder = tmp_path / "first"
    shutil.copytree(folders / "encoder" / "model", folder)
    write_files(sentence_files(SentenceVectors("first"), 32), folder)
    model = load_model(str(folder))
    with torch.no_grad():
        states = model.model.model(**model.inputs(TEXTS[0])).last_hidden_state[0]
        found = abilities_of(model)["similar"].vector(TEXTS[0])
    assert torch.allclose(found, F.normalize(states[0], dim=0), atol=1e-6)


def test_a_text_is_most_similar_to_itself(load):
    ranking, _ = abilities_of(load("encoder"))["similar"].answer([TEXTS[1], "\n".join(TEXTS)], {})
    assert ranking.entries[0].text == TEXTS[1]
    assert ranking.entries[0].value == pytest.approx(1, abs=1e-5)
