"""What two models are asked is defined in both: where texts end, their pads, and what a decoder is given."""

import pytest
import torch

from tercet.modeling.stock import certify, from_stock
from tercet.modeling.stock.probes import probes_for


@pytest.mark.parametrize("name", ["BartForSequenceClassification", "MBartForQuestionAnswering"])
def test_texts_end_in_the_only_end_where_labels_depend_on_it(stock, tokenizer, name: str) -> None:
    model = stock(name)
    for probe in probes_for(model, from_stock(model), tokenizer):
        for part in (probe, probe.unpadded()):
            ends = [ids[length - 1].item() for ids, length in zip(part.input_ids, part.lengths, strict=True)]
            assert ends == [model.config.eos_token_id] * len(ends)
        assert (probe.input_ids == model.config.eos_token_id).sum(-1).tolist() == [1] * len(probe.lengths)


@pytest.mark.parametrize("name", ["BartForQuestionAnswering", "T5ForSequenceClassification"])
def test_decoders_make_their_input_themselves_for_a_task(stock, name: str) -> None:
    model = stock(name)
    for probe in probes_for(model, from_stock(model), None):
        assert set(probe.inputs()) == {"input_ids", "attention_mask"}


def test_decoders_are_given_a_target_otherwise(stock) -> None:
    model = stock("BartModel")
    (probe,) = probes_for(model, from_stock(model), None)
    assert torch.equal(probe.inputs()["decoder_input_ids"], probe.input_ids)


def test_texts_stand_alone_where_a_label_is_read_at_the_end_and_no_pad_is_named(stock, tokenizer) -> None:
    model = stock("GPT2ForSequenceClassification")
    ours = from_stock(model)
    probes = probes_for(model, ours, tokenizer)
    assert len({probe.name for probe in probes}) == len(probes) == 4 + 6
    assert all(probe.attention_mask.all() and len(probe.lengths) == 1 for probe in probes)
    certificate = certify(model, ours, tokenizer)
    assert certificate.holds
    assert {each.probe for each in certificate.differences} == {probe.name for probe in probes}


def test_tokenizer_is_as_it_was_before(stock, tokenizer) -> None:
    model, before = stock("BertModel"), tokenizer.backend_tokenizer.to_str()
    probes_for(model, from_stock(model), tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == before


def test_pads_stand_behind_only(stock, tokenizer) -> None:
    """Stock decoders look for the last token that is no pad: a text may end in one, where it is the end."""
    model = stock("LlamaForSequenceClassification", pad_token_id=tokenizer.vocab["."])
    ours = from_stock(model)
    for probe in probes_for(model, ours, tokenizer):
        assert torch.equal(probe.input_ids != model.config.pad_token_id, probe.attention_mask == 1)
    assert certify(model, ours, tokenizer).holds
