"""The recurrent translator: one result in every layout, and that of the definition, step by step.

Recurrent layers equal their equations, whichever order a batch's tokens are read in.

The recurrent translator writes what its full pass predicts, with beams too, and is saved whole.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
from transformers.modeling_outputs import BaseModelOutput

from tercet.modeling import (
    TercetCharacterConfig,
    TercetElmoConfig,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetRecurrentSeq2SeqModel,
)
from tercet.modeling.attention.scores import SCORES
from tercet.modeling.recurrent.character import CharacterReader
from tercet.modeling.recurrent.decoder import RecurrentCache, Source
from tercet.modeling.recurrent.elmo import DirectedLayers
from tercet.modeling.recurrent.encoder import TimeSteps
from tercet.modeling.recurrent.layers import CELLS, build_layers
from tercet.modeling.recurrent.tagger import BidirectionalLayer
from tercet.modeling.sequences import find_sequences

from ..tolerances import CLOSE
from .conftest import Ragged, perturbed

FIELDS: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "eos_token_id": 1,
    "initializer_range": 0.3,
}


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


def test_labels_alone_are_shifted_within_each_target(batch, targets):
    model = build()
    packed = packed_inputs(batch, targets)
    by_bounds = {name: value for name, value in packed.items() if "position" not in name}
    by_positions = {name: value for name, value in packed.items() if "cu_seq" not in name}
    left = padded_inputs(batch, targets, "right", "left")
    for inputs in (left, packed, by_bounds, by_positions):
        expected = model(**inputs).loss
        del inputs["decoder_input_ids"]
        assert_close(model(**inputs).loss, expected, **CLOSE)


def test_the_decoder_equals_its_definition(cell_type, attention_score):
    decoder = build(cell_type=cell_type, attention_score=attention_score).model.decoder
    parts = decoder.layers[0].num_parts
    x, states, first = torch.randn(3, 5, 32), torch.randn(3, 7, 32), torch.randn(3, 2, parts, 32)

    def outcome(step_by_step: bool):
        inputs = [each.clone().requires_grad_() for each in (x, states, first)]
        source = Source(inputs[1], find_sequences(inputs[1]))
        if step_by_step:
            found = decoder.define(inputs[0], source, inputs[2])
        else:
            found = decoder(inputs[0], find_sequences(inputs[0]), source, inputs[2]).states
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
        (packed | {"past_key_values": cache}, "cache is given with packed sequences"),
        (padded | {"past_key_values": object()}, "cache is a object, but a recurrent decoder has"),
        (padded | {"encoder_outputs": BaseModelOutput(torch.zeros(5, 9, 32))}, "have no final_state"),
        (padded | {"labels": padded["labels"].clamp(min=61)}, "labels hold 61"),
    ]:
        with pytest.raises(ValueError, match=words):
            model(**inputs)
    with pytest.raises(ValueError, match="attention_score is 'none': there are no weights"):
        build(attention_score="none")(**padded, output_attentions=True)


def test_heads_of_keys_are_those_of_queries():
    assert TercetRecurrentSeq2SeqConfig(num_attention_heads=2, num_key_value_heads=2).num_key_value_heads == 2


def test_the_configuration_of_the_decoder_warns_of_nothing(caplog):
    config = TercetRecurrentSeq2SeqConfig().get_text_config(decoder=True)
    TercetRecurrentSeq2SeqConfig.from_dict(config.to_dict())
    assert "has no field" not in caplog.text


WIDTH = 12


MASK = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 1, 0]])


def layer_of(cell_type: str, *, is_bidirectional: bool):
    torch.manual_seed(0)
    (layer,) = build_layers(cell_type, WIDTH, 1, is_bidirectional=is_bidirectional)
    return layer


def test_a_layer_equals_its_equations(cell_type):
    layer = layer_of(cell_type, is_bidirectional=False)
    x, state = torch.randn(3, 5, WIDTH), torch.randn(3, layer.num_parts, WIDTH)
    results = []
    for compute in (layer.read, layer.define):
        inputs = [x.clone().requires_grad_(), state.clone().requires_grad_()]
        outputs, final = compute(*inputs)
        (outputs.square().sum() + final.sin().sum()).backward()
        parameters = [parameter.grad.clone() for parameter in layer.parameters()]
        results.append((outputs.detach(), final.detach(), [each.grad for each in inputs], parameters))
        layer.zero_grad()
    assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_both_directions_begin_at_their_own_end_of_each_sequence(cell_type):
    layer = layer_of(cell_type, is_bidirectional=True)
    x, steps = torch.randn(*MASK.shape, WIDTH), TimeSteps(find_sequences(MASK, MASK))
    sequences, final = layer.read(steps.gather(x), None)
    outputs = steps.scatter(sequences)
    for row, is_real in enumerate(MASK.bool()):
        alone, zeros = x[row, is_real][None], torch.zeros(1, layer.num_parts, WIDTH // 2)
        forth, end = layer.define(alone, zeros)
        back, beginning = layer.define(alone.flip(1), zeros, "_reverse")
        assert_close(outputs[row, is_real], torch.cat((forth, back.flip(1)), dim=-1)[0])
        assert_close(final[row], torch.cat((end, beginning), dim=-1)[0])
        assert not outputs[row, ~is_real].any()


def test_padded_and_packed_batches_are_read_in_the_same_order():
    x = torch.randn(*MASK.shape, WIDTH)
    stream = x[MASK.bool()][None]
    bounds = torch.nn.functional.pad(MASK.sum(1).cumsum(0), (1, 0)).int()
    padded, packed = TimeSteps(find_sequences(x, MASK)), TimeSteps(find_sequences(stream, cu_seq_lens=bounds))
    sequences = padded.gather(x)
    assert torch.equal(sequences.data, packed.gather(stream).data)
    assert torch.equal(packed.scatter(sequences), stream)
    assert torch.equal(padded.scatter(sequences), x * MASK[..., None])
    reference = torch.nn.utils.rnn.pack_sequence(
        [row[real] for row, real in zip(x, MASK.bool(), strict=True)], enforce_sorted=False
    )
    assert torch.equal(sequences.data, reference.data)
    assert torch.equal(sequences.batch_sizes, reference.batch_sizes)


def test_an_empty_sequence_is_refused():
    with pytest.raises(ValueError, match="sequence 1 of the batch is empty: give each sequence at least one"):
        TimeSteps(find_sequences(MASK[:2, :2], torch.tensor([[1, 1], [0, 0]])))


def test_a_cache_selects_repeats_and_reorders_rows():
    state, keys = torch.arange(3.0)[:, None, None, None], torch.arange(3.0)[:, None, None, None] + 10
    cache = RecurrentCache(state, keys, 4)
    cache.batch_repeat_interleave(2)
    assert cache.batch_size == 6
    cache.reorder_cache(torch.tensor([5, 0, 2]))
    assert cache.state.flatten().tolist() == [2, 0, 1]
    assert cache.keys is not None
    assert cache.keys.flatten().tolist() == [12, 10, 11]
    assert cache.get_seq_length() == 4


def test_a_cache_forgets_nothing():
    cache = RecurrentCache(torch.zeros(1, 1, 1, 1), None, 4)
    cache.crop(0)
    assert not cache.is_croppable
    with pytest.raises(ValueError, match="its state holds no single tokens, so read the tokens anew"):
        cache.crop(-1)
    with pytest.raises(ValueError, match="pass cache=None to start anew"):
        cache.reset()


@pytest.fixture
def source(batch) -> dict:
    ids, mask = batch.padded("left")
    return {"input_ids": ids, "attention_mask": mask}


def test_cached_steps_equal_one_pass(cell_type, attention_score, source):
    model = build(cell_type=cell_type, attention_score=attention_score, num_attention_heads=2)
    targets = torch.randint(3, 61, (5, 6))
    expected = model(**source, decoder_input_ids=targets)
    assert isinstance(expected.past_key_values, RecurrentCache)
    cache, logits = None, []
    for part in targets.split([2, 1, 3], dim=1):
        outputs = model(**source, decoder_input_ids=part, past_key_values=cache)
        cache = outputs.past_key_values
        logits.append(outputs.logits)
    assert_close(torch.cat(logits, dim=1), expected.logits, rtol=1e-4, atol=1e-5)
    assert cache.get_seq_length() == 6
    assert_close(cache.state, expected.past_key_values.state)


def test_a_padded_beginning_leaves_the_state_of_its_last_token(source):
    model, beginning = build(), torch.randint(3, 61, (5, 4))
    mask = torch.ones(5, 4, dtype=torch.long)
    mask[1, :2] = mask[3, 3:] = 0
    state = model(**source, decoder_input_ids=beginning, decoder_attention_mask=mask).past_key_values.state
    for row in range(5):
        single = {name: value[row : row + 1] for name, value in source.items()}
        tokens = beginning[row][mask[row] == 1][None]
        assert_close(model(**single, decoder_input_ids=tokens).past_key_values.state[0], state[row])


def test_greedy_decoding_writes_the_likeliest_token_of_the_full_pass(cell_type, attention_score, source):
    model = build(cell_type=cell_type, attention_score=attention_score)
    written = model.generate(**source, max_new_tokens=8, do_sample=False)
    likeliest = model(**source, decoder_input_ids=written[:, :-1]).logits.argmax(-1)
    is_written = (written[:, :-1] != 1).cumprod(1).bool()  # behind the end come pads
    assert torch.equal(written[:, 1:][is_written], likeliest[is_written])
    for options in ({"use_cache": False}, {"cache_implementation": "static"}):
        assert torch.equal(model.generate(**source, **options, max_new_tokens=8, do_sample=False), written)


def test_beams_take_their_states_along(cell_type, source):
    model = build(cell_type=cell_type, initializer_range=0.1)
    options: dict[str, Any] = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 7}
    options |= {"return_dict_in_generate": True, "output_scores": True}
    cached, anew = (model.generate(**source, **options, use_cache=use) for use in (True, False))
    before, after = cached.beam_indices[:, :-1], cached.beam_indices[:, 1:]
    assert ((before != after) & (after >= 0)).any()  # beams were reordered
    assert torch.equal(cached.sequences, anew.sequences)
    assert_close(cached.sequences_scores, anew.sequences_scores)


def test_generation_gives_attention_maps_of_each_step(source):
    model = build(num_attention_heads=2)
    written = model.generate(
        **source, max_new_tokens=3, min_new_tokens=3, return_dict_in_generate=True, output_attentions=True
    )
    maps = torch.cat([step[0] for step in written.cross_attentions], dim=2)
    outputs = model(**source, decoder_input_ids=written.sequences[:, :-1], output_attentions=True)
    assert_close(maps, outputs.cross_attentions[0])


def test_chunks_of_a_target_are_refused(source):
    with pytest.raises(ValueError, match=r"prefill_chunk_size is 2, .* decoders only, .* leave it out"):
        build().generate(**source, prefill_chunk_size=2, max_new_tokens=3)


def test_no_assistant_is_taken(source):
    with pytest.raises(ValueError, match="not supported with stateful models"):
        build().generate(**{n: x[:1] for n, x in source.items()}, assistant_model=build(), max_new_tokens=3)


@pytest.mark.parametrize("fields", [{}, {"tie_word_embeddings": False, "attention_score": "additive"}])
def test_what_is_saved_is_loaded_bit_for_bit(fields, cell_type, source, tmp_path):
    model = build(cell_type=cell_type, **fields)
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is TercetRecurrentSeq2SeqForConditionalGeneration
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert (loaded.lm_head.weight is loaded.get_input_embeddings().weight) == (not fields)
    expected = model.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())
    targets = torch.randint(3, 61, (5, 6))
    logits = model(**source, decoder_input_ids=targets).logits
    assert_close(loaded.eval()(**source, decoder_input_ids=targets).logits, logits)
    assert type(AutoModel.from_pretrained(tmp_path)) is TercetRecurrentSeq2SeqModel
    assert AutoConfig.from_pretrained(tmp_path).to_dict().items() >= fields.items()


def test_resized_embeddings_are_those_of_source_target_and_head(source):
    model = build()
    model.resize_token_embeddings(70)
    ids = torch.full((5, 2), 69)
    assert (
        model(**source | {"input_ids": source["input_ids"] + 8}, decoder_input_ids=ids).logits.shape[-1] == 70
    )


def read_recurrent(cell_type: str, x: Tensor) -> list[Tensor]:
    layer, steps = layer_of(cell_type, is_bidirectional=False), TimeSteps(find_sequences(x))
    outputs, final = layer.read(x, x.new_zeros(len(x), layer.num_parts, WIDTH))
    sequences, _ = layer.read(steps.gather(x), None)
    return [outputs, final, sequences.data]


def read_characters(x: Tensor) -> list[Tensor]:
    reader = CharacterReader(TercetCharacterConfig(vocab_size=9, hidden_size=WIDTH, embedding_size=WIDTH))
    reader.embed_tokens.to(x.dtype)
    return [reader(torch.randint(9, (4, 2)))]


def read_elmo(x: Tensor) -> list[Tensor]:
    layers = DirectedLayers(TercetElmoConfig(hidden_size=2 * WIDTH, lstm_cell_size=16))
    return [layers.read(0, x), layers.read(1, x)]


def read_tagger(x: Tensor) -> list[Tensor]:
    as_they_are: Any = SimpleNamespace(rows=lambda x, **_: x, from_rows=lambda x, **_: x)
    return [BidirectionalLayer(WIDTH, 8)(x, as_they_are)]


READERS = {
    "lstm": partial(read_recurrent, "lstm"),
    "gru": partial(read_recurrent, "gru"),
    "characters": read_characters,
    "elmo": read_elmo,
    "tagger": read_tagger,
}


@pytest.fixture
def autocast_of_a_gpu(monkeypatch):
    """Take tensors for those of a GPU, whose autocast is on; gives what switches it on in a type."""
    kept = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

    def switch_on(dtype: torch.dtype) -> None:
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", dtype)

    yield switch_on
    torch.set_autocast_enabled("cuda", kept[0])
    torch.set_autocast_dtype("cuda", kept[1])


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_on_a_gpu_in_bfloat16_layers_read_in_the_type_of_their_weights(reader, dtype, autocast_of_a_gpu):
    """Those of cuDNN would read in float16 under any autocast; where that is meant, gradients are scaled."""
    seen = []

    def note(module, inputs, _):
        if isinstance(module, nn.RNNBase):
            sequences, *states = (each for each in inputs if each is not None)
            sequences = sequences.data if isinstance(sequences, PackedSequence) else sequences
            parts = [part for state in states for part in (state if isinstance(state, tuple) else [state])]
            seen.extend((each.dtype, torch.is_autocast_enabled("cuda")) for each in (sequences, *parts))

    given = dtype if dtype == torch.bfloat16 else torch.float32  # this CPU has no other autocast
    autocast_of_a_gpu(dtype)
    hook = nn.modules.module.register_module_forward_hook(note)
    try:
        found = READERS[reader](torch.randn(3, 5, WIDTH, dtype=given))
    finally:
        hook.remove()
    assert set(seen) == {(torch.float32, dtype == torch.float16)}
    assert {each.dtype for each in found} == {given}
    sum(each.float().sum() for each in found).backward()
