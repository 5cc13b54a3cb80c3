"""Recurrent layers equal their equations, whichever order a batch's tokens are read in."""

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling.recurrent.decoder import RecurrentCache
from tercet.modeling.recurrent.encoder import TimeSteps
from tercet.modeling.recurrent.layers import CELLS, build_layers

WIDTH = 12
MASK = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 1, 0]])


@pytest.fixture(params=CELLS)
def cell_type(request) -> str:
    return request.param


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
    x, steps = torch.randn(*MASK.shape, WIDTH), TimeSteps.of_mask(MASK)
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
    bounds = torch.nn.functional.pad(MASK.sum(1).cumsum(0), (1, 0)).int()
    padded, packed = TimeSteps.of_mask(MASK), TimeSteps.of_bounds(bounds, int(MASK.sum()))
    stream = x[MASK.bool()][None]
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
        TimeSteps.of_mask(torch.tensor([[1, 1], [0, 0]]))


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
    with pytest.raises(ValueError, match="pass past_key_values=None to start anew"):
        cache.reset()
