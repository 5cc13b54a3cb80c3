"""A corpus of more documents than are planned as a whole is read by windows of blocks of it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tercet.data.steps.windows import WindowedSource
from tercet.pretraining import text
from tercet.pretraining.revisions import keeping_revisions
from tercet.pretraining.run import windows_in
from tercet.pretraining.text import passes_of

from ..pretraining_parts import reader_of
from .conftest import changed
from .objectives.test_recipes import draw_corpus


def plan_small_texts_alone(monkeypatch) -> None:
    """Read a text of more than 42 documents by windows of some twelve."""
    monkeypatch.setattr(text, "MOST_PLANNED", 42)
    monkeypatch.setattr(text, "BLOCK", 4)
    monkeypatch.setattr(text, "BLOCKS_OF_WINDOW", 3)


def data_of(source) -> Any:
    """Stand in for a run's data: a step has some hundred tokens of an epoch of a source."""
    tokens = int(source.epoch(0).lengths.sum())
    steps = SimpleNamespace(source=source, plan=lambda epoch: (source.epoch(epoch), range(tokens // 100)))
    return SimpleNamespace(stages=[SimpleNamespace(first_step=0, steps=steps)], is_stream=False)


def test_a_pass_over_windows_has_every_sequence_of_the_corpus(
    monkeypatch, recipe_of, texts, tmp_path, pair_tokenizer
):
    corpus = draw_corpus(43, 0)
    recipe = recipe_of("masked_language_modeling", texts, tmp_path)
    whole = reader_of(recipe, pair_tokenizer).examples(corpus, 16).epoch(0)
    plan_small_texts_alone(monkeypatch)
    source = reader_of(recipe, pair_tokenizer).examples(corpus, 16)
    assert isinstance(source, WindowedSource)
    assert source.windows == 3
    for lap in (0, 1):
        found = [source.epoch(lap * 3 + window) for window in range(3)]
        rows = [window[index]["input_ids"].tolist() for window in found for index in range(len(window))]
        assert sorted(rows) == sorted(whole[index]["input_ids"].tolist() for index in range(len(whole)))
        packed = found[0].pack(np.arange(5)).makers["input_ids"]()
        assert [row.tolist() for row in packed] == rows[:5]


def test_static_masks_are_for_examples_that_keep_their_places(
    monkeypatch, recipe_of, texts, tmp_path, pair_tokenizer
):
    recipe = changed(recipe_of("masked_language_modeling", texts, tmp_path), "objective", masking="static")
    reader_of(recipe, pair_tokenizer).examples(draw_corpus(43, 0), 16)
    with pytest.raises(ValueError, match=r"masking is static, but corpus\.train is a stream, whose examples"):
        reader_of(changed(recipe, streaming=True), pair_tokenizer).training_source([])
    plan_small_texts_alone(monkeypatch)
    with pytest.raises(ValueError, match="a text of 43 documents, which is read by windows, whose examples"):
        reader_of(recipe, pair_tokenizer).examples(draw_corpus(43, 0), 16)


def test_texts_with_shares_are_read_as_often_as_they_are_as_a_whole(
    monkeypatch, recipe_of, texts, tmp_path, pair_tokenizer
):
    recipe = recipe_of("masked_language_modeling", texts, tmp_path, steps=1000)
    corpora, shares = {"large": draw_corpus(86, 0), "small": draw_corpus(20, 1)}, {"large": 1.0, "small": 1.0}

    def times() -> tuple[int, dict[str, float]]:
        data = data_of(reader_of(recipe, pair_tokenizer).weighted_examples(corpora, shares, 16))
        return windows_in(data), passes_of(data.stages, 1000)

    whole = times()
    plan_small_texts_alone(monkeypatch)
    by_windows = times()
    assert [whole[0], by_windows[0]] == [1, 7]
    assert by_windows[1] == pytest.approx(whole[1], rel=0.2)  # windows differ, which so few documents show


def test_words_are_counted_by_the_tokens_of_all_windows(
    monkeypatch, recipe_of, texts, tmp_path, pair_tokenizer
):
    class Text(list):
        def fingerprint(self):
            return "some"

    recipe = recipe_of("masked_language_modeling", texts, tmp_path, revisions="babylm")
    corpus, words = draw_corpus(43, 0), Text(["some words"] * 43)
    tokens = int(reader_of(recipe, pair_tokenizer).examples(corpus, 16).epoch(0).lengths.sum())
    plan_small_texts_alone(monkeypatch)
    data = data_of(reader_of(recipe, pair_tokenizer).examples(corpus, 16))
    parts: Any = SimpleNamespace(data=data, text=SimpleNamespace(texts={"train": (words,)}))
    session: Any = SimpleNamespace(recipe=recipe.training, accelerator=None)
    with keeping_revisions(session, parts, recipe.corpus.cache) as series:
        assert series.words_per_token == [(0, 2 * 43 / tokens)]


def test_a_part_of_a_corpus_has_its_documents():
    corpus = draw_corpus(12, 0)
    part = corpus.part(3, 9)
    assert part.num_documents == 6
    assert np.shares_memory(part.tokens, corpus.tokens)
    for number in range(6):
        assert part.document(number).tolist() == corpus.document(3 + number).tolist()
    assert part.sentence(1).tolist() == corpus.sentence(3 * 3 + 1).tolist()
    assert len(part.document_bytes) == 6
