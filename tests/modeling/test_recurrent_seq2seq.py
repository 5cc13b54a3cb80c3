"""The recurrent translator: one result in every layout, and that of the definition, step by step."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers.modeling_outputs import BaseModelOutput

from tercet.modeling import (
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
)
from tercet.modeling.attention.scores import SCORES
from tercet.modeling.recurrent.decoder import Source
from tercet.modeling.recurrent.layers import CELLS

from .conftest import Ragged, perturbed

FIELDS: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "eos_token_id": 1,
    "initializer_range": 0.3,
}
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


def build(**fields) -> TercetRecurrentSeq2SeqForConditionalGeneration:
    """Build a small model with random weights, in evaluation mode."""
    torch.manual_seed(0)
    config = TercetRecurrentSeq2SeqConfig(**FIELDS | fields)
    return perturbed(TercetRecurrentSeq2SeqForConditionalGeneration(config)).eval()


@pytest.fixture(params=CELLS)
def cell_type(request) -> str:
    return request.param


@pytest.fixture(params=[*SCORES, "none"])
def attention_score(request) -> str:
    return request.param


def padded_inputs(batch: Ragged, targets: Ragged, source_side: str = "right", target_side: str = "right"):
    """Sources and targets with pads on any side, and the labels of the real tokens."""
    ids, mask = batch.padded(source_side)
    labels, target_mask = targets.padded(target_side)
    starts = Ragged([F.pad(sequence[:-1], (1, 0)) for sequence in targets.sequences])
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "decoder_input_ids": starts.padded(target_side)[0],
        "decoder_attention_mask": target_mask,
        "labels": labels.masked_fill(target_mask == 0, -100),
    }


def packed_inputs(batch: Ragged, targets: Ragged) -> dict:
    """The same as a stream each."""
    source, target = batch.packed(), targets.packed()
    return {
        "input_ids": source["input_ids"],
        "position_ids": source["position_ids"],
        "cu_seq_lens_k": source["cu_seq_lens_q"],
        "decoder_input_ids": torch.cat([F.pad(ids[:-1], (1, 0)) for ids in targets.sequences])[None],
        "decoder_position_ids": target["position_ids"],
        "cu_seq_lens_q": target["cu_seq_lens_q"],
        "labels": target["input_ids"],
    }


def alone(batch: Ragged, targets: Ragged) -> list[dict]:
    """Each pair by itself, without masks."""
    pairs = zip(batch.sequences, targets.sequences, strict=True)
    return [
        {"input_ids": source[None], "decoder_input_ids": F.pad(ids[None, :-1], (1, 0)), "labels": ids[None]}
        for source, ids in pairs
    ]


def loss_and_gradients(model, inputs: list[dict]):
    total = torch.stack([model(**each, reduction="sum").loss for each in inputs]).sum()
    total.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return total.detach(), gradients


@pytest.mark.parametrize("training", [False, True])
def test_padded_packed_and_alone_give_one_loss_and_its_gradients(
    cell_type, attention_score, training, batch, targets
):
    model = build(cell_type=cell_type, attention_score=attention_score, num_attention_heads=2)
    expected_loss, expected = loss_and_gradients(model, alone(batch, targets))
    assert all(gradient.any() for gradient in expected.values())
    model.train(training)
    by_positions = {
        name: value for name, value in packed_inputs(batch, targets).items() if "cu_seq" not in name
    }
    for inputs in [
        padded_inputs(batch, targets),
        padded_inputs(batch, targets, "left", "right"),
        padded_inputs(batch, targets, "right", "left"),
        packed_inputs(batch, targets),
        by_positions,
    ]:
        loss, gradients = loss_and_gradients(model, [inputs])
        assert_close(loss, expected_loss, **CLOSE)
        assert_close(gradients, expected, rtol=1e-3, atol=1e-4)


def test_the_decoder_equals_its_definition(cell_type, attention_score):
    decoder = build(cell_type=cell_type, attention_score=attention_score).model.decoder
    parts = decoder.layers[0].num_parts
    x, states, first = torch.randn(3, 5, 32), torch.randn(3, 7, 32), torch.randn(3, 2, parts, 32)

    def outcome(step_by_step: bool):
        inputs = [each.clone().requires_grad_() for each in (x, states, first)]
        source = Source(inputs[1])
        if step_by_step:
            found = decoder.define(inputs[0], source, inputs[2])
        else:
            found = decoder(inputs[0], None, None, source, inputs[2]).states
        found.square().sum().backward()
        gradients = {name: p.grad.clone() for name, p in decoder.named_parameters()}
        decoder.zero_grad()
        return found.detach(), gradients, [each.grad for each in inputs]

    assert_close(outcome(False), outcome(True), rtol=1e-3, atol=1e-5)


def test_the_bilinear_score_is_that_of_the_paper():
    attention = build(attention_score="bilinear").model.decoder.attention
    assert attention is not None
    states, source = torch.randn(1, 1, 32), torch.randn(1, 4, 32)
    matrix = attention.score.matrix[0]
    weights = torch.stack([states[0, 0] @ matrix @ each for each in source[0]]).softmax(0)
    context = (weights[:, None] * source[0]).sum(0)
    combined = (attention.combine.weight @ torch.cat((context, states[0, 0]))).tanh()
    found, maps = attention(states, source, attention.prepare_keys(source), None)
    assert_close(maps[0, 0, 0], weights)
    assert_close(found[0, 0], combined)


def test_ignored_labels_teach_nothing(batch, targets):
    model = build()
    inputs = padded_inputs(batch, targets)
    inputs["labels"][0, 1] = -100
    loss = model(**inputs, reduction="sum").loss
    logits = model(**{name: value for name, value in inputs.items() if name != "labels"}).logits
    labels = inputs["labels"]
    assert_close(loss, F.cross_entropy(logits[labels >= 0], labels[labels >= 0], reduction="sum"))
    assert_close(model.train()(**inputs, reduction="sum").loss, loss)


def test_labels_are_shifted_behind_the_start_token():
    model = build(decoder_start_token_id=7)
    ids, labels = torch.randint(3, 61, (2, 5)), torch.tensor([[4, 5, 1], [6, 1, -100]])
    given = model(ids, decoder_input_ids=torch.tensor([[7, 4, 5], [7, 6, 1]]), labels=labels)
    assert torch.equal(model(ids, labels=labels).loss, given.loss)
    assert given.past_key_values is None


def test_smoothed_labels_reach_the_loss(batch, targets):
    model, inputs = build(), padded_inputs(batch, targets)
    logits = model(**inputs).logits.flatten(0, 1)
    expected = F.cross_entropy(logits, inputs["labels"].flatten(), label_smoothing=0.1)
    assert_close(model.train()(**inputs, label_smoothing=0.1).loss, expected)


def test_attention_maps_are_distributions_over_the_real_tokens(batch, targets):
    model = build(num_attention_heads=2)
    for side in ("left", "right"):
        inputs = padded_inputs(batch, targets, side)
        (maps,) = model(**inputs, output_attentions=True).cross_attentions
        assert maps.shape == (5, 2, inputs["labels"].shape[1], inputs["input_ids"].shape[1])
        assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
        assert not maps.masked_select((inputs["attention_mask"] == 0)[:, None, None]).any()
        assert model(**inputs).cross_attentions is None


def test_hidden_states_begin_with_embeddings_and_end_with_the_last_layer(batch, targets):
    model, inputs = build(attention_score="none"), padded_inputs(batch, targets)
    outputs = model.model(
        **{name: x for name, x in inputs.items() if name != "labels"}, output_hidden_states=True
    )
    assert len(outputs.encoder_hidden_states) == len(outputs.decoder_hidden_states) == 3
    assert torch.equal(outputs.encoder_hidden_states[-1], outputs.encoder_last_hidden_state)
    assert torch.equal(outputs.decoder_hidden_states[-1], outputs.last_hidden_state)


def test_without_attention_only_the_state_passes_between_the_stacks():
    model = build(attention_score="none")
    ids, target = torch.randint(3, 61, (2, 5)), torch.randint(3, 61, (2, 4))
    read = model.get_encoder()(ids)
    expected = model(encoder_outputs=read, decoder_input_ids=target).logits
    read.last_hidden_state = torch.randn_like(read.last_hidden_state)
    assert torch.equal(model(encoder_outputs=read, decoder_input_ids=target).logits, expected)
    read.final_state = read.final_state.roll(1, dims=0)
    assert not torch.allclose(model(encoder_outputs=read, decoder_input_ids=target).logits, expected)


def test_the_encoder_has_the_configuration_of_the_model():
    model = build()
    assert model.get_encoder().config is model.config
    assert not any("config" in name for name in model.state_dict())


def test_dropout_acts_in_training_alone(batch, targets):
    model, inputs = build(dropout=0.5, attention_dropout=0.5), padded_inputs(batch, targets)
    assert torch.equal(model(**inputs).loss, model(**inputs).loss)
    model.train()
    assert not torch.equal(model(**inputs).loss, model(**inputs).loss)


def test_mixed_precision_trains(cell_type, attention_score, batch, targets):
    model = build(cell_type=cell_type, attention_score=attention_score, initializer_range=0.05).train()
    inputs = packed_inputs(batch, targets)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(**inputs).loss
    loss.backward()
    assert loss.item() == pytest.approx(model(**inputs).loss.item(), rel=0.02)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_size": 31}, "hidden_size is 31: choose an even one"),
        ({"num_attention_heads": 5}, r"hidden_size \(32\) is not a multiple of num_attention_heads \(5\)"),
        ({"attention_score": "cosine"}, "attention_score is 'cosine': choose one of .*, none"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0: choose 1 or more"),
        ({"attention_dropout": 1.0}, "attention_dropout is 1.0"),
        ({"cell_type": "rnn"}, "cell_type"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(fields, words):
    with pytest.raises(Exception, match=words):
        build(**fields)


def test_what_cannot_be_read_is_refused_with_a_remedy(batch, targets):
    model, padded, packed = build(), padded_inputs(batch, targets), packed_inputs(batch, targets)
    cache = model(**padded, use_cache=True).past_key_values
    ids = padded["input_ids"]
    for inputs, words in [
        ({"input_ids": ids}, "pass either decoder_input_ids or decoder_inputs_embeds: both are missing"),
        ({"decoder_input_ids": ids}, "pass either input_ids or inputs_embeds: both are missing"),
        (
            padded | {"attention_mask": padded["attention_mask"][:, 1:]},
            "attention_mask has the size .* one number for each token",
        ),
        (packed | {"cu_seq_lens_k": None}, "cu_seq_lens_k is missing"),
        (packed | {"cu_seq_lens_q": None}, "cu_seq_lens_q is missing"),
        (
            packed | {"cu_seq_lens_k": packed["cu_seq_lens_k"][[0, -1]]},
            "bounds 1 sources, but cu_seq_lens_q 5",
        ),
        (packed | {"output_attentions": True}, "output_attentions is given with packed sequences"),
        (packed | {"past_key_values": cache}, "past_key_values is given with packed sequences"),
        (padded | {"past_key_values": object()}, "past_key_values is a object, but a recurrent decoder has"),
        (padded | {"encoder_outputs": BaseModelOutput(torch.zeros(5, 9, 32))}, "have no final_state"),
        (padded | {"labels": padded["labels"].clamp(min=61)}, "labels hold 61"),
    ]:
        with pytest.raises(ValueError, match=words):
            model(**inputs)
    with pytest.raises(ValueError, match="attention_score is 'none': there are no weights"):
        build(attention_score="none")(**padded, output_attentions=True)


@pytest.mark.parametrize("attention_score", ["bilinear", "none"])
def test_a_small_model_learns_to_write_backwards(attention_score):
    model = build(hidden_size=48, num_hidden_layers=1, vocab_size=10, attention_score=attention_score).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(250):
        ids = torch.randint(2, 10, (32, 4), generator=generator)
        loss = model(ids, labels=F.pad(ids.flip(1), (0, 1), value=1)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = torch.randint(2, 10, (50, 4), generator=generator)
    written = model.eval().generate(ids, max_new_tokens=5, do_sample=False)
    is_right = (written[:, 1:5] == ids.flip(1)).all(1)
    assert is_right.float().mean() >= 0.8


def test_heads_of_keys_are_those_of_queries():
    assert TercetRecurrentSeq2SeqConfig(num_attention_heads=2, num_key_value_heads=2).num_key_value_heads == 2
    with pytest.raises(ValueError, match=r"num_key_value_heads is 4, but a recurrent .* \(2\): leave it out"):
        TercetRecurrentSeq2SeqConfig(num_attention_heads=2, num_key_value_heads=4)


def test_the_configuration_of_the_decoder_warns_of_nothing(caplog):
    config = TercetRecurrentSeq2SeqConfig().get_text_config(decoder=True)
    TercetRecurrentSeq2SeqConfig.from_dict(config.to_dict())
    assert "has no field" not in caplog.text
