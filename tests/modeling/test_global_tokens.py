"""Tokens that are chosen to be global when a model is called: the same in every layout and kernel."""

import pytest
import torch
from torch.testing import assert_close
from transformers import Trainer, TrainingArguments

from tercet.modeling import (
    TercetDecoderForMaskedLM,
    TercetEncoderConfig,
    TercetEncoderForMultipleChoice,
    TercetEncoderModel,
    TercetSeq2SeqForMultipleChoice,
)
from tercet.modeling.attention.patterns import PATTERNS

from ..architectures import ARCHITECTURES
from ..tolerances import CLOSE
from .one_lesson import assert_one_lesson
from .ragged import padded

FIELDS = {
    "sliding_window": 2,
    "attention_stride": 4,
    "attention_block_size": 1,
    "attention_window_blocks": 1,
    "attention_global_tokens": 1,
    "attention_random_blocks": 1,
}
READERS = [each for each in ARCHITECTURES if "Decoder" not in each.__name__]
"""Models with an encoder."""
SPARSE = [kind for kind in PATTERNS if kind != "full_attention"]


def fields_of(kind):
    """Give fields for a model of two layers, the first of the type."""
    return FIELDS | {"layer_types": [kind, "full_attention"]}


def chosen_in(batch):
    """Choose the third token of each text that has one, and the last, by text."""
    rows = [torch.zeros_like(ids) for ids in batch.sequences]
    for row in rows:
        row[2:3] = row[-1:] = 1
    return rows


@pytest.mark.parametrize("kind", SPARSE)
def test_a_global_token_attends_to_all_and_all_attend_to_it(kind):
    pattern = PATTERNS[kind](TercetEncoderConfig(**FIELDS), is_causal=False)
    chosen = torch.zeros(24, dtype=torch.bool)
    chosen[[7, 20]] = True
    usual, found = pattern.map_of(24), pattern.map_of(24, chosen)
    for query in range(24):
        for key in range(24):
            expected = query in (7, 20) or key in (7, 20) or usual[query, key]
            assert found[query, key] == expected
    assert not usual.all()


@pytest.mark.parametrize("kind", [kind for kind in SPARSE if not PATTERNS[kind].is_bidirectional_only])
def test_a_causal_map_keeps_its_direction(kind):
    pattern = PATTERNS[kind](TercetEncoderConfig(**FIELDS), is_causal=True)
    chosen = torch.arange(24) == 20
    found = pattern.map_of(24, chosen)
    assert torch.equal(found, found.tril())
    assert found[20, :21].all()
    assert found[20:, 20].all()


@pytest.mark.parametrize("variant", ["modern", "t5", "grouped"])
@pytest.mark.parametrize("kind", SPARSE)
def test_every_layout_and_kernel_takes_the_choice(kind, variant, builder, batch, targets):
    def build(kernel):
        return builder("encoder", variant, kernel, **fields_of(kind))

    chosen = chosen_in(batch)
    assert_one_lesson(build, "encoder", batch, targets, chosen)
    (ids, mask), model = batch.padded(), build("sdpa")
    told = model(ids, mask, global_attention_mask=padded(chosen, 0, "right")).logits
    assert not torch.allclose(model(ids, mask).logits, told)


@pytest.mark.parametrize("kind", SPARSE)
def test_weights_are_those_of_the_map(kind, builder, batch):
    model = builder("encoder", "modern", "eager", **fields_of(kind))
    ids, chosen = batch.sequences[2], chosen_in(batch)[2]
    recorded = model(ids[None], global_attention_mask=chosen[None], output_attentions=True).attentions[0]
    allowed = PATTERNS[kind](model.config, is_causal=False).map_of(len(ids), chosen.bool())
    assert recorded[..., ~allowed].max() == 0 < recorded[..., allowed].min()


@pytest.mark.parametrize("kind", ["sliding_attention", "big_bird_attention"])
def test_long_texts_are_computed_with_the_map_instead_of_blocks(kind, builder):
    fields = fields_of(kind) | {"attention_block_size": 16, "max_position_embeddings": 400}
    model = builder("encoder", **fields)
    ids = torch.randint(3, 61, (1, 330), generator=torch.Generator().manual_seed(0))
    chosen = (torch.arange(330) == 200)[None]
    states = model(ids, global_attention_mask=chosen).logits
    assert not torch.allclose(states, model(ids).logits)
    model.set_attn_implementation("eager")
    assert_close(states, model(ids, global_attention_mask=chosen).logits, **CLOSE)


def test_the_encoder_of_a_seq2seq_model_has_global_tokens(builder, batch, targets):
    model = builder("seq2seq", **fields_of("sliding_attention"), decoder_layer_types=["full_attention"] * 2)
    (ids, mask), (target, _), chosen = batch.padded(), targets.padded(), padded(chosen_in(batch), 0, "right")
    found = model(ids, mask, target, global_attention_mask=chosen)
    encoder = model.get_encoder()
    assert torch.equal(
        found.encoder_last_hidden_state, encoder(ids, mask, global_attention_mask=chosen).last_hidden_state
    )
    assert not torch.allclose(found.logits, model(ids, mask, target).logits)
    options = {"do_sample": False, "max_new_tokens": 4, "eos_token_id": None, "pad_token_id": 0}
    texts = [
        model.generate(ids, attention_mask=mask, global_attention_mask=chosen, use_cache=use_cache, **options)
        for use_cache in (True, False)
    ]
    assert torch.equal(*texts)


@pytest.mark.parametrize("architecture", READERS, ids=lambda architecture: architecture.__name__)
def test_the_stock_trainer_keeps_the_choice(architecture, task_builder, examples, tmp_path):
    model, inputs = task_builder(architecture, **fields_of("sliding_attention")), examples(architecture)
    chosen = inputs | {"global_attention_mask": inputs["attention_mask"]}
    rows = [{name: value[idx] for name, value in chosen.items()} for idx in range(4)]
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    kept = next(iter(Trainer(model=model, args=arguments, train_dataset=rows).get_train_dataloader()))
    assert "global_attention_mask" in kept


@pytest.mark.parametrize("architecture", [TercetEncoderForMultipleChoice, TercetSeq2SeqForMultipleChoice])
def test_choices_have_the_global_tokens_of_their_rows(architecture, task_builder, examples):
    model, inputs = task_builder(architecture, **fields_of("sliding_attention")), examples(architecture)
    chosen = torch.zeros_like(inputs["input_ids"])
    chosen[..., 0] = 1
    found = model(**inputs, global_attention_mask=chosen).logits
    assert torch.equal(found, model(**inputs, global_attention_mask=chosen.flatten(0, 1)).logits)
    alone = {name: inputs[name][1:2, 1:] for name in ("input_ids", "attention_mask")}
    single = model(**alone, global_attention_mask=chosen[1:2, 1:]).logits
    assert_close(found[1, 1], single[0, 0], **CLOSE)
    assert not torch.allclose(found, model(**inputs).logits)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"global_attention_mask": [[1, 0, 0]] * 2}, r"is a list, but has to be a tensor of size \(2, 3\)"),
        ({"global_attention_mask": torch.ones(2, 4)}, r"has the size \(2, 4\), but .* size \(2, 3\)"),
        (
            {
                "global_attention_mask": torch.tensor([[0, 0, 0], [0, 0, 1]]),
                "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
            },
            "marks position 2 of row 1, which is a pad: mark tokens of the text alone",
        ),
        (
            {
                "global_attention_mask": torch.ones(2, 3),
                "attention_mask": torch.ones(2, 1, 3, 3, dtype=torch.bool),
            },
            "with an attention_mask of pairs",
        ),
    ],
)
def test_a_choice_outside_the_text_is_refused(inputs, message, builder):
    model = builder("encoder", **fields_of("sliding_attention"))
    with pytest.raises(ValueError, match=message):
        model(torch.tensor([[5, 6, 7], [8, 9, 4]]), **inputs)


def test_kernels_without_masks_and_decoders_are_refused(builder, task_builder):
    ids = torch.tensor([[5, 6]])
    for model in (builder("decoder"), task_builder(TercetDecoderForMaskedLM)):
        with pytest.raises(ValueError, match="to TercetDecoderModel, but encoders alone take one: leave it"):
            model(ids, global_attention_mask=torch.ones_like(ids))
    model = TercetEncoderModel(
        TercetEncoderConfig(hidden_size=32, num_attention_heads=2, num_hidden_layers=1)
    )
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(ValueError, match="takes no mask, as global_attention_mask needs one"):
        model(ids, global_attention_mask=torch.ones_like(ids))
