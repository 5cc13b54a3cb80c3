"""Layouts: the figures of the papers that they come from, and what sharing must not change."""

import pytest

from tercet.planning.device_layouts import (
    DataParallel,
    FullySharded,
    HybridSharded,
    Layout,
    Load,
    Share,
    Zero,
    layouts,
)
from tercet.planning.model_costs import Kept

NOTHING = Kept(fixed=0, per_sequence=0)
BILLIONS = 7_500_000_000


def load_of(parameters: int, **changes) -> Load:
    """Describe a model in layers alone, in half precision, with Adam, that keeps nothing."""
    fixed = {
        "parameters": parameters, "block_parameters": parameters, "largest_block": parameters // 100,
        "optimizer_bytes": 8 * parameters, "product_bytes": 2, "kept": NOTHING, "kept_of_cast": NOTHING,
        "loss_bytes": lambda sequences: 0.0,
    }  # fmt: skip
    return Load(**(fixed | changes))


@pytest.mark.parametrize(
    ("layout", "published"),
    [
        (DataParallel("DDP", 64), 120),
        (Zero("ZeRO-1", 64, shards_gradients=False), 31.4),
        (Zero("ZeRO-2", 64, shards_gradients=True), 16.6),
        (FullySharded("FSDP2", 64), 1.9),
    ],
)
def test_states_are_those_of_the_paper(layout: Layout, published: float):
    """Rajbhandari et al., 2020, figure 1: GB for 7.5 billion parameters on 64 devices."""
    memory = layout.memory(load_of(BILLIONS), Share(1, 1))
    states = memory.weights + memory.gradients + memory.optimizer
    assert states / 1e9 == pytest.approx(published, abs=0.05)


@pytest.mark.parametrize(
    ("layout", "volume"),
    [
        (Zero("ZeRO-1", 10**6, shards_gradients=False), 2),
        (Zero("ZeRO-2", 10**6, shards_gradients=True), 2),
        (FullySharded("FSDP2", 10**6), 3),
    ],
)
def test_traffic_is_that_of_the_paper(layout: Layout, volume: int):
    """Rajbhandari et al., 2020, section 7: twice the parameters, thrice where they are divided too."""
    load = load_of(BILLIONS, product_bytes=4)  # where gradients are not summed in another format
    assert layout.traffic(load, Share(1, 1)) == pytest.approx(volume * 4 * BILLIONS, rel=1e-4)


def test_data_parallel_sends_float32_gradients_once_a_step():
    layout = DataParallel("DDP", 2)
    assert {layout.traffic(load_of(100), Share(number, 1)) for number in (1, 8)} == {400}


@pytest.mark.parametrize("layout", layouts(4, 8)[1:])
def test_one_device_sends_nothing(layout: Layout):
    alone = type(layout)(**(vars(layout) | {"devices": 1}))
    assert alone.traffic(load_of(1000), Share(3, 1)) == 0


@pytest.mark.parametrize("layout", layouts(64, 64)[2:])
def test_more_devices_hold_less(layout: Layout):
    many = type(layout)(**(vars(layout) | {"devices": 128}))
    load, share = load_of(BILLIONS), Share(1, 1)
    assert many.memory(load, share).total < layout.memory(load, share).total


def test_micro_batches_cost_fsdp2_traffic_and_no_memory():
    layout, load = FullySharded("FSDP2", 4), load_of(1000)
    assert layout.traffic(load, Share(3, 1)) == 3 * layout.traffic(load, Share(1, 1))
    assert layout.memory(load, Share(3, 1)) == layout.memory(load, Share(1, 1))


def test_replicas_hold_what_a_machine_holds_and_sum_gradients_of_parts_once_a_step():
    machine, replicas, load = FullySharded("FSDP2", 8), HybridSharded("HSDP", 32, 8), load_of(8000)
    assert replicas.memory(load, Share(3, 1)) == machine.memory(load, Share(3, 1))
    for number in (1, 3):
        share = Share(number, 1)
        assert replicas.traffic_within(load, share) == machine.traffic(load, share)
        assert replicas.traffic(load, share) - machine.traffic(load, share) == 2 * 3 / 4 * 4 * 8000 / 8


@pytest.mark.parametrize("layout", layouts(64, 8)[-2:])
def test_what_rests_on_the_cpu_takes_no_memory_of_a_device(layout: Layout):
    memory, rests = (layout.memory(load_of(8000, offloads=way), Share(1, 1)) for way in (False, True))
    assert memory.weights > 0
    assert (rests.weights, rests.gradients, rests.optimizer) == (0, 0, 0)
    assert rests.buffers == memory.buffers


@pytest.mark.parametrize(("devices", "last"), [(1, "one device"), (8, "FSDP2"), (12, "FSDP2"), (16, "HSDP")])
def test_replicas_need_several_machines_of_one_size(devices, last):
    assert layouts(devices, 8)[-1].name == last


def test_one_device_has_one_layout():
    assert [layout.name for layout in layouts(1, 8)] == ["one device"]
