"""A corpus of more documents than are planned as a whole is read by windows of blocks of it."""

import numpy as np

from tercet.pretraining import text
from tercet.training.windows import WindowedSource

from ..objectives.test_recipes import make_corpus


def test_a_pass_over_windows_has_every_sequence_of_the_corpus(
    monkeypatch, recipe_of, texts, tmp_path, pair_tokenizer
):
    corpus = make_corpus(43, 0)
    recipe = recipe_of("masked_language_modeling", texts, tmp_path)
    whole = text.examples_of(recipe, corpus, pair_tokenizer, 16).epoch(0)
    monkeypatch.setattr(text, "MOST_PLANNED", 42)
    monkeypatch.setattr(text, "BLOCK", 4)
    monkeypatch.setattr(text, "BLOCKS_OF_WINDOW", 3)
    source = text.examples_of(recipe, corpus, pair_tokenizer, 16)
    assert isinstance(source, WindowedSource)
    assert source.windows == 3
    for lap in (0, 1):
        found = [source.epoch(lap * 3 + window) for window in range(3)]
        rows = [window[index]["input_ids"].tolist() for window in found for index in range(len(window))]
        assert sorted(rows) == sorted(whole[index]["input_ids"].tolist() for index in range(len(whole)))
        packed = found[0].pack(np.arange(5)).makers["input_ids"]()
        assert [row.tolist() for row in packed] == rows[:5]


def test_a_part_of_a_corpus_has_its_documents():
    corpus = make_corpus(12, 0)
    part = corpus.part(3, 9)
    assert part.num_documents == 6
    assert np.shares_memory(part.tokens, corpus.tokens)
    for number in range(6):
        assert part.document(number).tolist() == corpus.document(3 + number).tolist()
    assert part.sentence(1).tolist() == corpus.sentence(3 * 3 + 1).tolist()
    assert len(part.document_bytes) == 6
