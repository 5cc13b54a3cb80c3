"""Encoders of sentences: runs from a preset and from an imported checkpoint."""

from pathlib import Path

import pytest
import torch
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

from tercet import TercetEncoderForSentenceEmbedding
from tercet.configs.recipe import parse_recipe, recipe_data
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.tools.import_export.run import import_model

from ..pretraining_parts import model_of
from ..saved_weights import weights_in
from ..word_level import ROLES, SIGNS, word_level
from .conftest import WORDS, recipe_data_of

KIND = "sentence_denoising"
CONSTANT = {"kind": "constant", "warmup_steps": 0}


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of whole words that frames texts as BERT's do."""
    frames = {"template": "[CLS] $A [SEP]", "pair_template": "[CLS] $A [SEP] $B:1 [SEP]:1"}
    return word_level([*SIGNS, ".", *WORDS], split=Whitespace(), **frames, **ROLES)


@pytest.fixture(scope="module")
def imported(tmp_path_factory) -> Path:
    """Import a small stock BERT of random weights."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    tokenizer = word_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=64,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder / "stock")
    tokenizer.save_pretrained(folder / "stock")
    import_model(str(folder / "stock"), str(folder / "ours"))
    return folder


def recipe_on(path: Path, texts: Path, output: Path, **training) -> PretrainingRecipe:
    """Describe a run that continues from a model."""
    data = recipe_data_of(KIND, texts, output, **{"schedule": CONSTANT} | training)
    del data["tokenizer"]
    return parse_recipe(PretrainingRecipe, data | {"model": {"path": str(path)}})


def cosines(model: TercetEncoderForSentenceEmbedding, folder: Path, texts: list[str]) -> torch.Tensor:
    """Compare texts by the cosines of their vectors."""
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        vectors = model(**inputs).sentence_embeddings
    return vectors @ vectors.T


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_an_imported_checkpoint_begins_with_its_vectors(pooling, imported, texts, tmp_path):
    """The encoder is the stock model; of the decoder, only cross-attention is new."""
    recipe = recipe_on(imported / "ours", texts, tmp_path / "run")
    data = {"kind": KIND, "pooling": pooling}
    recipe = parse_recipe(PretrainingRecipe, {**recipe_data(recipe), "objective": data})
    tokenizer = AutoTokenizer.from_pretrained(imported / "ours")
    with pytest.warns(UserWarning, match="has no weights for decoder.*cross_attention") as told:
        model = model_of(recipe, tokenizer).eval()
    [message] = [str(each.message) for each in told if "has no weights" in str(each.message)]
    names = message.partition("has no weights for ")[2].partition(": they are")[0].split(", ")
    assert all("cross_attention" in name for name in names if not name.startswith("and "))
    stock = BertModel.from_pretrained(imported / "stock").eval()
    inputs = tokenizer(["the cat sat.", "a big dog ran under the tree."], padding=True, return_tensors="pt")
    with torch.no_grad():
        states = stock(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        pooled = states[:, 0] if pooling == "first" else (states * mask).sum(1) / mask.sum(1)
        expected = torch.nn.functional.normalize(pooled, dim=-1)
        found = model.get_submodule("encoder")(**inputs).sentence_embeddings
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_run_on_an_imported_checkpoint_leaves_an_encoder_of_sentences(imported, texts, tmp_path):
    folder = pretrain(recipe_on(imported / "ours", texts, tmp_path / "run"))
    model_class: type = TercetEncoderForSentenceEmbedding
    model, loading = model_class.from_pretrained(folder, output_loading_info=True)  # pyright: ignore
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert model.config.architectures == ["TercetEncoderForSentenceEmbedding"]
    assert model.config.classifier_pooling == "mean"
    found = cosines(model, folder, ["the cat sat.", "the cat sat.", "a big dog ran under the tree."])
    assert found[0, 1] == pytest.approx(1, abs=1e-5)
    assert found[0, 2] < 1
    earlier, ours = weights_in(imported / "ours"), weights_in(folder)
    assert any(not torch.equal(ours[name], earlier[name]) for name in ours)
    assert {name for name in earlier if name.startswith("model.")} == set(ours)
