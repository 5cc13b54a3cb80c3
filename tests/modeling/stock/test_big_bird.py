"""BigBird in sparse attention: what it becomes, what it goes back to, and how certificates treat it."""

import copy

import pytest
import torch
from transformers import BigBirdForQuestionAnswering

from tercet import TercetEncoderForQuestionAnswering, TercetEncoderModel
from tercet.modeling.stock import certify, from_stock, to_stock
from tercet.tools.import_export.run import export_model

SPARSE = {
    "attention_type": "block_sparse",
    "block_size": 5,
    "num_random_blocks": 2,
    "max_position_embeddings": 72,
    "sep_token_id": 5,
}
KIND = "stock_big_bird_attention"


def test_sparse_attention_is_a_pattern_of_all_layers_in_both_directions(stock):
    model = stock("BigBirdForMaskedLM", **SPARSE)
    config = from_stock(model).config
    assert config.layer_types == [KIND, KIND]
    assert (config.attention_block_size, config.attention_random_blocks) == (5, 2)
    back = to_stock(from_stock(model)).config
    assert (back.model_type, back.attention_type) == ("big_bird", "block_sparse")
    assert (back.block_size, back.num_random_blocks) == (5, 2)


def test_layers_of_two_kinds_are_no_big_bird(stock):
    config = from_stock(stock("BigBirdModel", **SPARSE)).config
    config.layer_types = [KIND, "full_attention"]
    with pytest.raises(ValueError, match=r"in the way: layer_types is \['stock_big"):
        to_stock(TercetEncoderModel(config))


def test_what_is_certified_stays_as_it_is(stock):
    """A short text changes the stock model to full attention for good, which a certificate must not do."""
    model = stock("BigBirdModel", **SPARSE)
    assert certify(model, from_stock(model)).holds
    assert model.attention_type == "block_sparse"
    changed = copy.deepcopy(model)
    changed(torch.tensor([[7, 8, 9]]))
    assert changed.attention_type == "original_full"


def test_a_certificate_sees_sparse_attention(stock):
    options = SPARSE | {"max_position_embeddings": 70}
    sparse = stock("BigBirdForMaskedLM", **options)
    full = from_stock(stock("BigBirdForMaskedLM", **options | {"attention_type": "original_full"}))
    certificate = certify(sparse, full)
    assert not certificate.holds
    assert "layer 0" in str(certificate.first_difference)


def test_answers_are_those_of_transformers_behind_the_question(stock):
    """There transformers lowers the scores of the question, and takes what is behind it for segment 1."""
    model = stock("BigBirdForQuestionAnswering", **SPARSE)
    ids = torch.randint(6, 61, (1, 60), generator=torch.Generator().manual_seed(0))
    ids[0, 9] = SPARSE["sep_token_id"]
    expected = copy.deepcopy(model)(ids)
    segments = (torch.arange(60) >= 10).long()[None]
    found = from_stock(model)(ids, token_type_ids=segments)
    for theirs, ours in (
        (expected.start_logits, found.start_logits),
        (expected.end_logits, found.end_logits),
    ):
        torch.testing.assert_close(ours[0, 10:], theirs[0, 10:], rtol=1e-5, atol=1e-5)
        assert (theirs[0, 1:10] < -9e5).all()


def test_an_exported_head_for_answers_finds_the_question_by_the_separator(stock, tokenizer, tmp_path):
    model = stock("BigBirdForQuestionAnswering", max_position_embeddings=40)
    from_stock(model).save_pretrained(tmp_path / "ours")
    tokenizer.sep_token = "[SEP]"
    tokenizer.save_pretrained(tmp_path / "ours")
    assert export_model(str(tmp_path / "ours"), str(tmp_path / "back")).holds
    back = BigBirdForQuestionAnswering.from_pretrained(tmp_path / "back")
    ids = torch.arange(6, 36)[None]
    ids[0, 9] = tokenizer.sep_token_id
    is_of_question = back(ids).start_logits[0] < -9e5
    assert is_of_question.nonzero().flatten().tolist() == [*range(1, 10)]


def test_heads_for_answers_are_told_apart(stock):
    ours = from_stock(stock("BigBirdForQuestionAnswering", attention_type="original_full"))
    assert to_stock(ours).config.model_type == "big_bird"
    with pytest.raises(ValueError, match="answer_head is 'feed_forward', and would be 'linear'"):
        to_stock(ours, "bert")
    base = from_stock(stock("BigBirdModel", attention_type="original_full"))
    assert base.config.answer_head == "feed_forward"
    assert to_stock(base, "bert").config.model_type == "bert"
    assert to_stock(TercetEncoderForQuestionAnswering(base.config)).config.model_type == "big_bird"
