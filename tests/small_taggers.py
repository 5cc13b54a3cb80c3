"""Small pretrained models whose word vectors taggers read, with their tokenizers."""

from pathlib import Path

import torch

from tercet import (
    TercetCharacterConfig,
    TercetCharacterLanguageModel,
    TercetElmoModel,
    TercetTaggerConfig,
    TercetTaggerForTokenClassification,
)
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling.recurrent.word_embedders import adopt, describe
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.model_folder import load_tokenizer
from tercet.tools.convert.static_vectors import build, save_word_vectors

from .small_elmo import small_config

TEXTS = ["the cat sat under the big tree", "A dog ran over the small fish"] * 20


def save_static(folder: Path) -> Path:
    """Write static vectors of a few words, with n-grams."""
    torch.manual_seed(1)
    words = ["the", "cat", "dog", "tree"]
    save_word_vectors(build(words, torch.randn(4, 10), torch.randn(20, 10)), folder)
    return folder


def save_characters(folder: Path, **options) -> Path:
    """Write a character model, untrained."""
    torch.manual_seed(2)
    tokenizer = train_tokenizer(TEXTS, "characters", 60, **options)
    config = TercetCharacterConfig(vocab_size=len(tokenizer), hidden_size=12, embedding_size=8)
    TercetCharacterLanguageModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_elmo(folder: Path) -> Path:
    """Write an ELMo, untrained, which drops states in training."""
    torch.manual_seed(3)
    tokenizer = train_tokenizer(TEXTS, "words", 540)
    model = TercetElmoModel(small_config(hidden_size=16, lstm_cell_size=24, dropout=0.25))
    model.learn_spelling(tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


MAKERS = {"static": save_static, "characters": save_characters, "elmo": save_elmo}
"""Each kind of model whose vectors taggers read, and what writes it."""


def save_sources(folder: Path) -> Path:
    """Write one model of each kind, by its name."""
    for name, make in MAKERS.items():
        make(folder / name)
    return folder


def build_new_tagger(sources: Path, *names: str, **fields) -> TercetTaggerForTokenClassification:
    """Build a tagger on the vectors of some of these models, whose mode nobody has set."""
    loaded = [(Checkpoint.open(str(sources / name)).ours(), load_tokenizer(sources / name)) for name in names]
    embeddings = [describe(model.config, tokenizer) for model, tokenizer in loaded]
    torch.manual_seed(0)
    config = TercetTaggerConfig(embeddings=embeddings, **{"hidden_size": 16, "num_labels": 3} | fields)
    tagger = TercetTaggerForTokenClassification(config)
    for embedder, source in zip(tagger.model.features.parts, loaded, strict=True):
        adopt(embedder, *source)
    with torch.no_grad():
        for parameter in tagger.crf.parameters():
            parameter.normal_()
    return tagger
