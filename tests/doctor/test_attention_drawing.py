"""Drawings show the map of every type of layers, cell by cell."""

import json

import pytest
import torch
from transformers import BertConfig, BertModel

from tercet.__main__ import main
from tercet.doctor.diagnosis import ALL, NONE, SOME, WIDTH, draw_attention
from tercet.modeling import TercetDecoderConfig, TercetDecoderModel, TercetEncoderConfig, TercetEncoderModel
from tercet.modeling.attention.patterns import PATTERNS

SIZES = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}


def draw(config_class, model_class, **fields):
    """Draw a tiny model."""
    return draw_attention(model_class(config_class(**SIZES | fields)))


def test_a_small_decoder_is_drawn_token_by_token():
    (full, sliding) = draw(
        TercetDecoderConfig,
        TercetDecoderModel,
        num_hidden_layers=3,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        sliding_window=2,
        max_position_embeddings=4,
    )
    assert full.rows == ["#...", "##..", "###.", "####"]
    assert sliding.rows == ["#...", "##..", ".##.", "..##"]
    assert (full.layers, sliding.layers) == ([0, 2], [1])
    assert (full.stack, full.num_tokens, full.tokens_per_cell) == ("decoder", 4, 1)


@pytest.mark.parametrize("kind", PATTERNS)
def test_cells_say_how_many_of_their_pairs_attend(kind):
    fields = {"attention_block_size": 4, "attention_random_blocks": 1, "attention_global_tokens": 4}
    (drawing,) = draw(
        TercetEncoderConfig,
        TercetEncoderModel,
        num_hidden_layers=1,
        layer_types=[kind],
        sliding_window=9,
        attention_stride=8,
        max_position_embeddings=71,
        **fields,
    )
    size = drawing.tokens_per_cell
    assert size == 3
    assert len(drawing.rows) == -(-71 // 3) <= WIDTH
    allowed = PATTERNS[kind](TercetEncoderConfig(**drawn_fields(fields)), is_causal=False).map_of(71)
    for row, line in enumerate(drawing.rows):
        for column, found in enumerate(line):
            cell = allowed[row * size : (row + 1) * size, column * size : (column + 1) * size]
            assert found == (ALL if cell.all() else SOME if cell.any() else NONE)


def drawn_fields(fields):
    """Give the fields of the pattern that is drawn."""
    return fields | {"sliding_window": 9, "attention_stride": 8}


def test_long_texts_are_cut(folder_of):
    (drawing,) = draw(
        TercetEncoderConfig, TercetEncoderModel, num_hidden_layers=1, max_position_embeddings=100_000
    )
    assert (drawing.num_tokens, drawing.tokens_per_cell, len(drawing.rows)) == (2048, 64, 32)


def test_foreign_models_are_not_drawn():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    assert draw_attention(BertModel(BertConfig(vocab_size=9, **sizes))) == []


def test_other_programs_get_the_drawings(folder_of, capsys):
    folder = folder_of("seq2seq", decoder_layer_types=["sliding_attention"] * 2, sliding_window=2)
    capsys.readouterr()
    main(["doctor", str(folder), "--json"])
    encoder, decoder = json.loads(capsys.readouterr().out)["attention"]
    assert (encoder["stack"], decoder["stack"]) == ("encoder", "decoder")
    window = torch.tensor([[each == "#" for each in row] for row in decoder["rows"]])
    assert window.sum() == 32 + 31
