"""The recurrent translator writes what its full pass predicts, with beams too, and is saved whole."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from tercet.modeling import TercetRecurrentSeq2SeqForConditionalGeneration, TercetRecurrentSeq2SeqModel
from tercet.modeling.recurrent.decoder import RecurrentCache

from .test_recurrent_seq2seq import attention_score, build, cell_type  # noqa: F401


@pytest.fixture
def source(batch) -> dict:
    ids, mask = batch.padded("left")
    return {"input_ids": ids, "attention_mask": mask}


def test_cached_steps_equal_one_pass(cell_type, attention_score, source):  # noqa: F811
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


def test_greedy_decoding_writes_the_likeliest_token_of_the_full_pass(cell_type, attention_score, source):  # noqa: F811
    model = build(cell_type=cell_type, attention_score=attention_score)
    written = model.generate(**source, max_new_tokens=8, do_sample=False)
    likeliest = model(**source, decoder_input_ids=written[:, :-1]).logits.argmax(-1)
    is_written = (written[:, :-1] != 1).cumprod(1).bool()  # behind the end come pads
    assert torch.equal(written[:, 1:][is_written], likeliest[is_written])
    assert torch.equal(model.generate(**source, max_new_tokens=8, do_sample=False, use_cache=False), written)


def test_beams_take_their_states_along(cell_type, source):  # noqa: F811
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
def test_what_is_saved_is_loaded_bit_for_bit(fields, cell_type, source, tmp_path):  # noqa: F811
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
