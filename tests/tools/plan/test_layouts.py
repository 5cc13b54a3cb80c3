"""Layouts: the figures of the papers that they come from, and what sharing must not change."""

import pytest

from tercet.tools.plan.layouts import Layout, Load, layouts
from tercet.tools.plan.model_costs import Kept

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


@pytest.mark.parametrize(("layout", "published"), [(Layout("DDP", 64), 120), (Layout("FSDP2", 64, 64), 1.9)])
def test_states_are_those_of_the_paper(layout: Layout, published: float):
    """Rajbhandari et al., 2020, figure 1: GB for 7.5 billion parameters on 64 devices."""
    memory = layout.memory(load_of(BILLIONS), 1)
    assert (memory.weights + memory.gradients + memory.optimizer) / 1e9 == pytest.approx(published, abs=0.05)


def test_traffic_is_that_of_the_paper():
    """Rajbhandari et al., 2020, section 7: twice the parameters, thrice where they are divided too."""
    load, number = load_of(BILLIONS, product_bytes=4), 10**6
    data_parallel, sharded = Layout("DDP", number), Layout("FSDP2", number, number)
    assert data_parallel.traffic_between(load) == pytest.approx(2 * 4 * BILLIONS, rel=1e-4)
    assert sharded.traffic_within(load, 1) == pytest.approx(3 * 4 * BILLIONS, rel=1e-4)
    assert data_parallel.traffic_within(load, 5) == sharded.traffic_between(load) == 0
    assert sharded.traffic_within(load, 3) == 3 * sharded.traffic_within(load, 1)


def test_replicas_hold_what_a_machine_holds_and_sum_gradients_of_parts_once_a_step():
    machine, replicas, load = Layout("FSDP2", 8, 8), Layout("HSDP", 32, 8), load_of(8000)
    assert replicas.memory(load, 1) == machine.memory(load, 1)
    assert replicas.traffic_within(load, 3) == machine.traffic_within(load, 3)
    assert replicas.traffic_between(load) == 2 * 3 / 4 * 4 * 8000 / 8


@pytest.mark.parametrize("layout", layouts(64, 8)[-2:])
def test_what_rests_on_the_cpu_takes_no_memory_of_a_device(layout: Layout):
    memory, rests = (layout.memory(load_of(8000, offloads=way), 1) for way in (False, True))
    assert memory.weights > 0
    assert (rests.weights, rests.gradients, rests.optimizer) == (0, 0, 0)
    assert rests.buffers == memory.buffers


@pytest.mark.parametrize(("devices", "last"), [(1, "one device"), (8, "FSDP2"), (12, "FSDP2"), (16, "HSDP")])
def test_replicas_need_several_machines_of_one_size(devices, last):
    assert layouts(devices, 8)[-1].name == last
