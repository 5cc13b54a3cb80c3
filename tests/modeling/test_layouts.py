"""Padded, packed and alone: three layouts of the same sequences, one result, gradients included.

Streams and their groups: nothing lost, nothing mixed, gradients exact.
"""

import math
import time
from itertools import chain, combinations, groupby, pairwise

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tercet.modeling.attention import kernels, packing
from tercet.modeling.attention.packing import (
    MOST_GROUPS,
    PackedSequences,
    fill_rows,
    group_cuts,
    group_sequences,
    rounded_length,
    share_rows,
)
from tercet.modeling.layers.block import Block

from ..tolerances import CLOSE
from .one_lesson import assert_one_lesson, gradients, inputs_of, packed_inputs_of
from .ragged import ragged


def share_rows_up_to(longest, monkeypatch):
    """Let sequences of up to so many tokens share rows, also in float32, whatever it costs."""
    monkeypatch.setattr("tercet.modeling.stack.compiles_products", lambda x: longest > 0)
    monkeypatch.setattr(packing, "LONGEST_SHARING", longest)
    monkeypatch.setattr(packing, "GATHER_COST", math.inf)


@pytest.mark.parametrize("variant", ["bert", "grouped", "t5", "sliding", "sliding_t5", "alibi"])
def test_short_and_long_sequences_take_several_ways_to_one_result(
    member, variant, builder, batch, targets, monkeypatch
):
    model = builder(member, variant).train()
    results = []
    # In a single group the shorter sequences are padded.
    for longest, most_groups, sharing in ((256, 4, 128), (256, 4, 0), (0, 4, 0), (256, 1, 0), (0, 1, 0)):
        monkeypatch.setattr(kernels, "SHORT", longest)
        monkeypatch.setattr(packing, "MOST_GROUPS", most_groups)
        share_rows_up_to(sharing, monkeypatch)
        loss = model(**packed_inputs_of(member, batch, targets)).loss
        loss.backward()
        results.append((loss.detach(), gradients(model)))
    for result in results[1:]:
        assert_close(result, results[0], **CLOSE)


@pytest.mark.parametrize("variant", ["grouped", "t5", "sliding", "alibi"])
def test_filled_streams_give_the_same_loss_and_gradients(
    member, variant, builder, batch, targets, monkeypatch
):
    model, results, seen = builder(member, variant).train(), [], []
    monkeypatch.setattr(packing, "LONGEST_SHARING", 0)
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:
        block.register_forward_pre_hook(lambda block, given: seen.append(given[0].shape[1]))
    for fills in (False, True):
        monkeypatch.setattr("tercet.modeling.stack.compiles_products", lambda x, fills=fills: fills)
        for inputs in (
            packed_inputs_of(member, batch, targets),
            inputs_of(member, batch, targets, slice(None), "left"),
        ):
            loss = model(**inputs, reduction="sum").loss
            loss.backward()
            results.append((loss.detach(), gradients(model)))
    plain, filled = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert all(
        number % 8 == 0 and 0 < number - before <= 8 for before, number in zip(plain, filled, strict=True)
    )
    for before, result in zip(results[:2], results[2:], strict=True):
        assert_close(result, before, rtol=1e-3, atol=1e-4)


def test_every_layout_and_kernel_gives_the_same_loss_and_gradients(member, variant, builder, batch, targets):
    assert_one_lesson(lambda kernel: builder(member, variant, kernel), member, batch, targets)


@pytest.mark.parametrize("variant", ["bert", "qwen", "sliding", "sliding_neox"])
def test_shared_rows_give_the_same_loss_and_gradients(member, variant, builder, batch, targets, monkeypatch):
    share_rows_up_to(128, monkeypatch)
    assert_one_lesson(lambda kernel: builder(member, variant, kernel), member, batch, targets)


@pytest.mark.parametrize(("dtype", "shares"), [(torch.float32, False), (torch.bfloat16, True)])
def test_sequences_share_rows_where_products_are_cheap(dtype, shares, builder, monkeypatch):
    model, seen = builder("encoder", "modern").to(dtype).train(), []
    monkeypatch.setattr(
        "tercet.modeling.stack.share_rows", lambda sequences: seen.append(share_rows(sequences))
    )
    model(**ragged(20, 12, 20, 12, 20, 12).packed())
    assert [each is not None for each in seen] == [True] * shares


@pytest.mark.parametrize(
    "place", ["layers.1", "layers.0.feed_forward", "layers.1.self_attention.q_proj", "norm"]
)
def test_hooks_of_layers_and_their_parts_read_the_stream_in_its_order(place, builder, monkeypatch):
    model, seen = builder("encoder", "modern"), []
    packed = ragged(5, 9, 12, 6).packed()
    model.model.get_submodule(place).register_forward_hook(lambda module, given, x: seen.append(x[:, :32]))
    for longest in (128, 0):
        share_rows_up_to(longest, monkeypatch)
        model(**packed)
    assert_close(*seen, **CLOSE)


def test_training_in_mixed_precision_takes_every_variant(member, variant, builder, batch, targets):
    model = builder(member, variant, initializer_range=0.05).train()
    inputs = packed_inputs_of(member, batch, targets)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(**inputs).loss
    loss.backward()
    assert loss.item() == pytest.approx(model(**inputs).loss.item(), rel=0.02)


def test_labels_alone_are_shifted_within_each_target(builder, batch, targets):
    model = builder("seq2seq", "modern")
    alone = [inputs_of("seq2seq", batch, targets, slice(i, i + 1), "right") for i in range(5)]
    expected = torch.stack([model(**each, reduction="sum").loss for each in alone]).sum()
    labels, mask = targets.padded("left")
    left = inputs_of("seq2seq", batch, targets, slice(None), "right") | {
        "decoder_attention_mask": mask,
        "labels": labels.masked_fill(mask == 0, -100),
    }
    packed = packed_inputs_of("seq2seq", batch, targets)
    del packed["decoder_input_ids"]
    by_bounds = {name: value for name, value in packed.items() if "position" not in name}
    by_positions = {name: value for name, value in packed.items() if "cu_seq" not in name}
    for inputs in (left, packed, by_bounds, by_positions):
        assert_close(model(**inputs, reduction="sum").loss, expected, **CLOSE)


@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_restarting_positions_alone_mean_packed(member, builder, batch):
    model = builder(member, "modern")
    packed = batch.packed()
    expected = model(**packed).logits
    del packed["cu_seq_lens_q"]
    assert_close(model(**packed).logits, expected)
    del packed["position_ids"]
    assert not torch.allclose(model(**packed).logits, expected, atol=1e-2)


def test_restarting_positions_mean_packed_in_every_row(builder):
    model = builder("encoder")
    ids = torch.randint(3, 61, (2, 6))
    positions = torch.tensor([[0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 4, 0]])
    rows = model(input_ids=ids, position_ids=positions).logits
    assert_close(rows[0, 3:], model(input_ids=ids[:1, 3:]).logits[0], **CLOSE)
    assert_close(rows[1, 5:], model(input_ids=ids[1:, 5:]).logits[0], **CLOSE)


@pytest.mark.parametrize("variant", ["modern", "t5", "sliding", "sliding_t5", "alibi"])
def test_recorded_outputs_of_packed_sequences_respect_them(variant, builder, batch):
    model = builder("encoder", variant)
    packed = batch.packed()
    outputs = model(**packed, output_attentions=True, output_hidden_states=True)
    assert_close(outputs.logits, model(**packed).logits, **CLOSE)
    weights = outputs.attentions[0]  # (1, H, N, N)
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert weights[0, :, :7, 7:].max() == 0
    assert len(outputs.hidden_states) == 3


@pytest.mark.parametrize("side", ["left", "right"])
def test_next_sentence_is_read_from_the_first_real_token(pretraining_model, batch, side):
    ids, mask = batch.padded(side)
    padded = pretraining_model(input_ids=ids, attention_mask=mask).seq_relationship_logits
    packed = pretraining_model(**batch.packed()).seq_relationship_logits
    alone = torch.cat(
        [pretraining_model(input_ids=row[None]).seq_relationship_logits for row in batch.sequences]
    )
    assert_close(padded, alone, **CLOSE)
    assert_close(packed, alone, **CLOSE)


def test_attention_dropout_in_packed_training_drops(builder, batch):
    model = builder("encoder", attention_dropout=0.5, dropout=0.0).train()
    packed = batch.packed() | {"labels": batch.packed()["input_ids"]}
    losses = {model(**packed).loss.item() for _ in range(3)}
    assert len(losses) == 3


def test_rows_without_any_token_are_harmless(builder):
    model = builder("encoder").train()
    lengths = torch.arange(9, -1, -1)
    mask = (torch.arange(9) < lengths[:, None]).long()
    ids = torch.randint(3, 61, mask.shape)
    labels = ids.masked_fill(mask == 0, -100)
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    assert_close(loss, model(input_ids=ids[:-1], attention_mask=mask[:-1], labels=labels[:-1]).loss)


def test_packed_targets_need_packed_sources(builder, batch, targets):
    packed = targets.packed()
    with pytest.raises(ValueError, match="cu_seq_lens_k is missing"):
        builder("seq2seq")(
            input_ids=batch.packed()["input_ids"],
            decoder_input_ids=packed["input_ids"],
            cu_seq_lens_q=packed["cu_seq_lens_q"],
        )


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("num_rows", "bounds", "answer"),
    [
        (2, [0, 4, 9], "with 2 rows: packed input has one row"),
        (2, [0, 4, 9, 13, 18], "with 2 rows: packed input has one row"),
        (1, [1, 4, 9], "from 0 up to the number of tokens"),
        (1, [4, 9], "from 0 up to the number of tokens"),
        (1, [0, 4], "for 9 tokens: give cumulative lengths"),
        (1, [0, 4, 12], "for 9 tokens: give cumulative lengths"),
        (1, [0, 5, 4, 9], "for 9 tokens: give cumulative lengths"),
    ],
)
def test_bounds_that_do_not_cut_one_row_are_refused(member, is_training, num_rows, bounds, answer, builder):
    model = builder(member).train(is_training)
    ids = torch.randint(3, 50, (num_rows, 9))
    with pytest.raises(ValueError, match=answer):
        model(input_ids=ids, cu_seq_lens_q=torch.tensor(bounds, dtype=torch.int32), labels=ids)


@pytest.mark.parametrize("bounds", [[0, 4, 4, 9], [0, 4, 9, 9], [0, 0, 4, 9]])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_an_empty_sequence_changes_nothing(member, bounds, builder):
    model = builder(member)
    ids = torch.randint(3, 50, (1, 9))
    losses = [
        model(input_ids=ids, cu_seq_lens_q=torch.tensor(each, dtype=torch.int32), labels=ids).loss
        for each in ([0, 4, 9], bounds)
    ]
    assert_close(*losses)


def test_every_packed_target_has_its_source(builder, batch, targets):
    inputs = packed_inputs_of("seq2seq", batch, targets)
    bounds = inputs["cu_seq_lens_k"]
    with pytest.raises(ValueError, match="give each target its source"):
        builder("seq2seq")(**inputs | {"cu_seq_lens_k": torch.cat((bounds[:-2], bounds[-1:]))})


def test_the_slow_path_of_packed_sequences_is_told(builder, batch, monkeypatch):
    told = []
    monkeypatch.setattr("tercet.modeling.stack.logger.warning_once", told.append)
    model = builder("encoder")
    model(**batch.packed())
    assert not told
    model(**batch.packed(), output_attentions=True)
    assert "packed sequences are separated by a block-diagonal mask" in told[0]


@pytest.mark.parametrize("training", [False, True])
def test_hooks_of_the_token_vectors_see_the_batch_as_it_was_given(member, training, builder, batch, targets):
    """NEFTune's noise depends on the number of tokens (transformers' issue 34659)."""
    model, seen = builder(member).train(training), []
    model.get_input_embeddings().register_forward_hook(lambda table, ids, x: seen.append(x.shape[:2]))
    inputs = inputs_of(member, batch, targets, slice(None), "left")
    model(**inputs)
    assert seen == [inputs[name].shape for name in ("input_ids", "labels")[: len(seen)]]


def bounds(lengths: list[int]) -> torch.Tensor:
    return torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0)).int()


@pytest.mark.parametrize("lengths", [[1], [5, 5, 5], [3, 9, 1, 4, 4, 7, 2, 8], list(range(1, 40))])
def test_a_stream_comes_back_from_its_groups(lengths):
    slots = group_sequences(*2 * [bounds(lengths)]).queries
    stream = torch.randn(sum(lengths), 2, 3, dtype=torch.double, requires_grad=True)
    parts = list(slots.split(stream))
    assert len(parts) <= MOST_GROUPS
    assert sum(len(part) for part in parts) == len(lengths)
    assert torch.equal(slots.join(parts), stream)

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return slots.join([part * 2 for part in slots.split(x)])

    assert torch.autograd.gradcheck(doubled, stream, fast_mode=True)


@pytest.mark.parametrize(
    "lengths", [[7], [9, 9, 9], [59, 40, 21, 20, 20, 11, 7, 7, 6, 3], [90, *range(30, 18, -1)]]
)
@pytest.mark.parametrize("group_cost", [0, 500, 4096])
def test_no_other_cuts_of_equal_lengths_together_cost_less(lengths, group_cost, monkeypatch):
    monkeypatch.setattr(packing, "GROUP_COST", group_cost)

    def cost(cuts) -> int:
        squares = (
            max(lengths[first], packing.LEAST_LENGTH) ** 2 * (last - first) for first, last in pairwise(cuts)
        )
        return group_cost * (len(cuts) - 1) + sum(squares)

    places = [place for place in range(1, len(lengths)) if lengths[place] < lengths[place - 1]]
    inner = chain.from_iterable(combinations(places, number) for number in range(MOST_GROUPS))
    assert cost(group_cuts(np.array(lengths))) == min(cost((0, *cuts, len(lengths))) for cuts in inner)


def test_pads_stand_behind_and_are_known():
    slots = group_sequences(*2 * [bounds([3, 19, 1, 4])]).queries
    for group, (part, lengths) in enumerate(zip(slots.split(torch.arange(27.0)), slots.lengths, strict=True)):
        mask = slots.key_mask(group)
        has_pads = bool(lengths.min() < lengths.max())
        assert part.shape[1] == (rounded_length(int(lengths.max())) if has_pads else lengths.max())
        if mask is not None:
            assert torch.equal(mask.sum(-1).flatten(), lengths)


@pytest.mark.parametrize("lengths", [[1], [40, 3, 33, 0, 5, 60, 20, 20, 7, 7], [*range(40)], [128] * 3])
def test_sequences_that_share_rows_are_whole_and_apart(lengths, monkeypatch):
    share_rows_up_to(128, monkeypatch)
    rows = share_rows(PackedSequences.of(bounds(lengths)))
    assert rows is not None
    assert rows.numbers.shape[1] % 16 == 0
    stream = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    assert torch.equal(rows.numbers.flatten(), rows.arrange(stream).masked_fill(rows.is_pad, -1))
    # A sequence stands in one row, without a gap.
    runs = chain.from_iterable(groupby(row) for row in rows.numbers.tolist())
    found = [(number, len([*run])) for number, run in runs if number >= 0]
    assert sorted(found) == [pair for pair in enumerate(lengths) if pair[1]]
    x = torch.randn(sum(lengths), 2, dtype=torch.double, requires_grad=True)
    assert torch.equal(rows.restore(rows.arrange(x)), x)
    assert torch.autograd.gradcheck(lambda x: rows.restore(rows.arrange(x) * 2), x, fast_mode=True)


@pytest.mark.parametrize(
    ("lengths", "shares"),
    [
        ([128] * 16, True),
        ([64, 40, 24, 33, 31, 20, 20, 24], True),
        ([3, 129, 4], False),
        ([1], False),
        ([*range(100, 129)], False),
        ([128, *range(5, 20)], False),
    ],
)
def test_sequences_share_rows_if_few_slots_are_pads(lengths, shares):
    assert (share_rows(PackedSequences.of(bounds(lengths))) is not None) == shares


def test_many_sequences_find_their_rows_soon():
    """Their number, not its square, is what the search costs."""
    started = time.process_time()
    rows = fill_rows(np.full(20_000, 70), 80)
    assert time.process_time() - started < 2
    assert len(rows) == 20_000


def test_sources_follow_their_targets():
    """In cross-attention the groups are made by the targets' lengths, and every source stays with its own."""
    targets, sources = [2, 7, 4], [9, 1, 5]
    groups = group_sequences(bounds(targets), bounds(sources))
    of_targets = torch.repeat_interleave(torch.arange(3.0), torch.tensor(targets))
    of_sources = torch.repeat_interleave(torch.arange(3.0), torch.tensor(sources))
    for q, k in zip(groups.queries.split(of_targets), groups.keys.split(of_sources), strict=True):
        assert_close(q[:, 0], k[:, 0])
