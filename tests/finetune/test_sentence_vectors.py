"""A model fine-tuned for search gives sentence-transformers the vectors that it gives us."""

import json

import numpy as np
import pytest

from tercet.finetune.prediction import predict_file
from tercet.finetune.run import finetune

from .conftest import classification_rows, write_rows


@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_vectors_are_those_of_sentence_transformers(member, pooling, recipe_of, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    overrides = {"overrides": {"classifier_pooling": pooling}}
    folder = finetune(recipe_of("ranking", member, model=overrides, training={"epochs": 1}))
    texts = [row["text"] for row in classification_rows(12, 3)]
    rows = write_rows(tmp_path / "queries.jsonl", [{"query": text} for text in texts])
    predict_file(str(folder), str(rows), str(tmp_path / "vectors.jsonl"))
    ours = [json.loads(line)["embedding"] for line in (tmp_path / "vectors.jsonl").read_text().splitlines()]
    theirs = library.SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(np.array(ours), theirs, atol=1e-5)
