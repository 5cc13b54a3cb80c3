"""Padding masks of any numbers, and with pads between tokens: training reads them as evaluation does."""

import pytest
import torch
from torch.testing import assert_close
from transformers import GPT2Config, GPT2LMHeadModel

from tercet.stock.models import from_stock

LENGTHS = (9, 6, 7, 2)


@pytest.fixture
def texts():
    """Ids (B, T) and a mask of ones and zeros, with pads on the left of one row, on the right of others."""
    mask = (torch.arange(9) < torch.tensor(LENGTHS)[:, None]).long()
    mask[2] = mask[2].flip(0)
    return torch.randint(3, 61, mask.shape, generator=torch.Generator().manual_seed(0)), mask


@pytest.fixture
def texts_with_holes(texts):
    """The same, with pads between tokens in two rows."""
    ids, mask = texts
    mask[0, 3:5] = 0
    mask[1, 2] = 0
    return ids, mask


def loss_of(model, ids, mask, is_training):
    """Loss and gradients of a batch, in training or evaluation."""
    model.train(is_training).zero_grad()
    decoder = {"decoder_attention_mask": mask} if model.config.is_encoder_decoder else {}
    loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100), **decoder).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("values", [2, -1, 0.5, True])
@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("variant", ["bert", "modern", "sliding_t5"])
def test_whatever_is_not_zero_marks_a_token(member, variant, is_training, values, builder, texts):
    model = builder(member, variant)
    ids, mask = texts
    given = mask.bool() if values is True else mask * values
    assert_close(loss_of(model, ids, given, is_training), loss_of(model, ids, mask, is_training))


def test_masks_with_holes_give_training_the_loss_of_evaluation(member, variant, builder, texts_with_holes):
    model = builder(member, variant)
    ids, mask = texts_with_holes
    assert_close(loss_of(model, ids, mask, True), loss_of(model, ids, mask, False), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("is_training", [True, False])
def test_masks_with_holes_give_the_stock_models_loss(is_training, texts_with_holes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
    stock = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).eval()
    ours = from_stock(stock).train(is_training)
    ids, mask = texts_with_holes
    # Stock counts columns, and the first token behind a pad as its target: ours does neither.
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    is_inner = (mask != 0) & (positions > 0)
    labels = ids.masked_fill(~is_inner, -100)
    expected = stock(ids, attention_mask=mask, position_ids=positions, labels=labels).loss
    assert_close(ours(ids, attention_mask=mask, labels=labels).loss, expected)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])
def test_a_batch_without_any_token_teaches_nothing(member, is_training, builder):
    model = builder(member).train(is_training)
    ids = torch.zeros(1, 4, dtype=torch.long)
    inputs = {"input_ids": ids, "attention_mask": ids, "labels": ids}
    model(**inputs | ({"decoder_attention_mask": ids} if member == "seq2seq" else {})).loss.backward()
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
