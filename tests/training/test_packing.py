"""Packing, and the cutting of packed batches."""

import numpy as np
import pytest
import torch

from tercet.data.steps.packing import pack, ragged, select_sequences, sequence_lengths, slice_sequences


def two_streams(lengths: list[tuple[int, int]]) -> dict:
    """A sequence-to-sequence batch of (encoder, decoder) lengths, whose tokens are all different."""
    encoder = pack([np.arange(n) + 100 * i for i, (n, _) in enumerate(lengths)])
    decoder = pack([np.arange(n) + 100 * i + 50 for i, (_, n) in enumerate(lengths)])
    return {
        "input_ids": encoder.input_ids, "position_ids": encoder.position_ids,
        "cu_seq_lens_k": encoder.cu_seq_lens, "max_length_k": encoder.max_length,
        "decoder_input_ids": decoder.input_ids, "decoder_position_ids": decoder.position_ids,
        "cu_seq_lens_q": decoder.cu_seq_lens, "max_length_q": decoder.max_length,
        "labels": decoder.input_ids + 1, "kind": torch.arange(len(lengths)),
    }  # fmt: skip


def assert_equal(left: dict, right: dict) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, right[name]), name
        else:
            assert value == right[name], name


def test_sequences_lie_end_to_end():
    packed = pack([np.array([7, 8, 9]), np.array([5]), np.array([1, 2], dtype=np.uint16)])
    assert packed.input_ids.tolist() == [[7, 8, 9, 5, 1, 2]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 0, 0, 1]]
    assert packed.cu_seq_lens.tolist() == [0, 3, 4, 6]
    assert packed.max_length == 3
    assert packed.input_ids.dtype == packed.position_ids.dtype == torch.int64
    assert packed.cu_seq_lens.dtype == torch.int32


def test_ragged_arrays_are_views_of_one():
    arrays = ragged([np.array([7, 8, 9]), np.array([], dtype=np.int64), np.array([1, 2])])
    assert [array.tolist() for array in arrays] == [[7, 8, 9], [], [1, 2]]
    assert [array.tolist() for array in arrays[1:]] == [[], [1, 2]]
    assert arrays[-1].tolist() == [1, 2]
    assert arrays[0].base is arrays.values
    assert ragged(arrays) is arrays
    assert ragged([3, 4]).values.tolist() == [3, 4]
    assert ragged([3, 4]).lengths.tolist() == [1, 1]
    with pytest.raises(IndexError):
        arrays[3]


def test_selecting_equals_packing_the_selected():
    lengths = [(3, 2), (1, 5), (4, 1), (2, 2)]
    whole = two_streams(lengths)
    selected = select_sequences(whole, np.array([2, 0]))
    assert selected["input_ids"].tolist() == [[200, 201, 202, 203, 0, 1, 2]]
    assert selected["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    assert selected["labels"].tolist() == [[251, 51, 52]]
    assert selected["cu_seq_lens_k"].tolist() == [0, 4, 7]
    assert selected["cu_seq_lens_q"].tolist() == [0, 1, 3]
    assert (selected["max_length_k"], selected["max_length_q"]) == (4, 2)
    assert selected["kind"].tolist() == [2, 0]


def test_all_in_their_order_are_the_batch_itself():
    whole = two_streams([(3, 2), (1, 5)])
    assert select_sequences(whole, np.array([0, 1])) is whole
    assert slice_sequences(whole, 0, 2) is whole
    assert select_sequences(whole, np.array([1, 0]))["labels"].tolist() == [[151, 152, 153, 154, 155, 51, 52]]


@pytest.mark.parametrize(("first", "last"), [(0, 4), (1, 3), (3, 4)])
def test_slicing_equals_selecting_neighbours(first, last):
    whole = two_streams([(3, 2), (1, 5), (4, 1), (2, 2)])
    assert_equal(slice_sequences(whole, first, last), select_sequences(whole, np.arange(first, last)))


def test_slices_do_not_copy_tokens():
    whole = two_streams([(3, 2), (1, 5), (4, 1)])
    part = slice_sequences(whole, 1, 3)
    assert part["input_ids"].untyped_storage().data_ptr() == whole["input_ids"].untyped_storage().data_ptr()


@pytest.mark.parametrize("shape", [(4,), (4, 1, 5), (4, 2, 3, 2)])
def test_what_lies_along_no_tokens_has_one_entry_per_sequence(shape):
    """Numbers of sequences have one dimension, rows of numbers three: two dimensions are a stream's."""
    whole = two_streams([(3, 2), (1, 5), (4, 1), (2, 2)]) | {"extra": torch.randn(shape)}
    assert torch.equal(slice_sequences(whole, 1, 3)["extra"], whole["extra"][1:3])
    assert torch.equal(select_sequences(whole, np.array([3, 0]))["extra"], whole["extra"][[3, 0]])
    assert_equal(slice_sequences(whole, 2, 4), select_sequences(whole, np.array([2, 3])))


def test_a_sequence_costs_the_tokens_of_both_its_streams():
    whole = two_streams([(3, 2), (1, 5)])
    assert sequence_lengths(whole).tolist() == [5, 6]
    del whole["decoder_input_ids"]
    assert sequence_lengths(whole).tolist() == [3, 1]
