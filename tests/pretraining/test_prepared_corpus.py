"""A run on a prepared corpus is the run on its text."""

import pytest

pytest.importorskip("datatrove", reason="the extra `prepare` is not installed")

import tercet
from tercet.configs.recipe import parse_recipe
from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.tools.plan.model_costs import build_planned_model
from tercet.training.tracking import LOG, read_log

from ..saved_weights import require_same_models
from .conftest import recipe_data_of


@pytest.mark.parametrize("kind", ["masked_language_modeling_with_next_sentence", "causal_language_modeling"])
def test_losses_on_a_prepared_corpus_are_those_on_its_text(kind, ragged_texts, tmp_path, monkeypatch):
    monkeypatch.setenv("TERCET_CACHE", str(tmp_path / "cache"))
    text = ragged_texts / "train.txt"
    train_tokenizer([text.read_text()], "wordpiece", 300).save_pretrained(tmp_path / "tokenizer")
    shards = {"path": str(text), "shard_bytes": text.stat().st_size // 4}
    manifest = tercet.prepare(
        {"corpus": shards, "tokenizer": str(tmp_path / "tokenizer"), "output": str(tmp_path / "prepared")}
    )

    def recipe_of(name: str, train: str, tokenizer: str | None, **training) -> PretrainingRecipe:
        data = recipe_data_of(kind, ragged_texts, tmp_path / name, steps=4, log_every=1, **training)
        data["corpus"]["train"], data["tokenizer"] = train, {"path": tokenizer}
        return parse_recipe(PretrainingRecipe, data)

    plain = recipe_of("plain", str(text), str(tmp_path / "tokenizer"))
    prepared = recipe_of("prepared-run", manifest, None)
    require_same_models(pretrain(plain), pretrain(prepared))

    def losses(recipe: PretrainingRecipe) -> list[float]:
        return [record["loss"] for record in read_log(recipe.folder / LOG) if "loss" in record]

    assert losses(plain) == losses(prepared)
    assert len(losses(plain)) == 4
    vocabulary = len(load_tokenizer(str(tmp_path / "tokenizer")))
    assert build_planned_model(prepared).config.vocab_size == vocabulary
    by_words = recipe_of("by-words", manifest, None, revisions="babylm")
    with pytest.raises(ValueError, match=r"holds tokens, not text \(training.revisions is babylm, which"):
        pretrain(by_words)
    assert not by_words.folder.exists()
