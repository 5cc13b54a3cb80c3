"""Heads of the sequence-to-sequence model read the source twice, or what the decoder is given instead."""

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import (
    TercetSeq2SeqConfig,
    TercetSeq2SeqForMultipleChoice,
    TercetSeq2SeqForQuestionAnswering,
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
)

CONFIG = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 37, "num_attention_heads": 4}
HEADS = [
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
    TercetSeq2SeqForMultipleChoice,
    TercetSeq2SeqForQuestionAnswering,
]


@torch.no_grad()
@pytest.mark.parametrize("head", HEADS)
def test_what_the_decoder_reads_may_be_given(head):
    torch.manual_seed(0)
    model = head(TercetSeq2SeqConfig(**CONFIG, num_hidden_layers=2)).eval()
    ids, mask = torch.randint(3, 61, (2, 7)), torch.ones(2, 7).long()
    mask[1, 5:] = 0
    if head is TercetSeq2SeqForMultipleChoice:
        ids, mask = ids[:, None].expand(2, 3, 7), mask[:, None].expand(2, 3, 7)
    start = model.config.decoder_start_token_id
    again = torch.nn.functional.pad(ids[..., :-1], (1, 0), value=start)
    alone = model(ids, mask)
    given = model(ids, mask, decoder_input_ids=again, decoder_attention_mask=mask)
    assert_close(given.to_tuple()[0], alone.to_tuple()[0])
    other = model(ids, mask, decoder_input_ids=ids[..., :4], decoder_attention_mask=mask[..., :4])
    assert not torch.equal(other.encoder_last_hidden_state, alone.to_tuple()[0])
    if head is TercetSeq2SeqForTokenClassification:
        assert other.logits.shape == (2, 4, 2)
    assert not torch.allclose(other.to_tuple()[0].flatten()[:2], alone.to_tuple()[0].flatten()[:2])
