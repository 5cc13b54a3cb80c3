"""Windows of a text of any size: every block once in a pass, found anywhere, with work that does not grow."""

from itertools import chain

import numpy as np
import pytest

from tercet.data.steps.batches import StepDataset
from tercet.data.steps.step_planning import share
from tercet.data.steps.windows import WindowedSource, permuted, splitmix

from .conftest import ToyObjective, ToySource

BLOCK = 128
TERABYTES_10 = int(1e13 / 4.3 / 288 / BLOCK)
"""Blocks of a text of 10 TB, by 4.3 bytes a token and 288 tokens an example."""


class Formula:
    """Examples that are made when they are asked for, and counted: `made` and `counted`."""

    def __init__(self, block: int, log: dict[str, int]):
        numbers = np.arange(BLOCK, dtype=np.uint64) + np.uint64(block * BLOCK)
        self.lengths = (64 + splitmix(numbers) % np.uint64(449)).astype(np.int64)
        self.block, self.log = block, log
        log["blocks"] += 1

    def __len__(self) -> int:
        return BLOCK

    def __getitem__(self, index: int) -> dict:
        self.log["examples"] += 1
        tokens = self.lengths[index] % 23 + np.zeros(self.lengths[index], dtype=np.int64)
        return {"input_ids": tokens, "number": self.block * BLOCK + index}


def steps_of(
    processes: int, index: int = 0, blocks: int = TERABYTES_10
) -> tuple[StepDataset, dict[str, int]]:
    log = {"blocks": 0, "examples": 0}
    source = WindowedSource(lambda block, lap: Formula(block, log), blocks, 64, seed=5)
    options = {"tokens_per_step": 2**20, "tokens_per_micro_batch": 1024, "seed": 5}
    steps = StepDataset(source, ToyObjective(), **options, num_processes=processes, process_index=index)
    return steps, log


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 1000])
def test_a_permutation_has_every_number_once(size):
    orders = [permuted(np.arange(size), size, [4, seed]) for seed in range(3)]
    assert all(sorted(order) == list(range(size)) for order in orders)
    assert size < 17 or len({order.tobytes() for order in orders}) == 3
    some = np.arange(size)[::3]
    assert permuted(some, size, [4, 1]).tolist() == orders[1][::3].tolist(), "each is found by itself"


def test_orders_of_few_numbers_are_alike_likely():
    draws = 6_000
    orders = [tuple(permuted(np.arange(3), 3, [seed]).tolist()) for seed in range(draws)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts - draws / 6).max() <= 3 * np.sqrt(draws / 6 * 5 / 6)


def test_a_pass_has_every_block_once_and_each_pass_another_order():
    source = WindowedSource(lambda block, lap: ToySource(3, seed=block), 10, 3, seed=0)
    asked: list[int] = []
    source.make_block = lambda block, lap: asked.append(block) or ToySource(3, seed=block)  # type: ignore[func-returns-value]
    sizes = [len(source.epoch(number)) for number in range(2 * source.windows)]
    assert source.windows == 3
    assert sorted(asked[:10]) == sorted(asked[10:]) == list(range(10))
    assert asked[:10] != asked[10:]
    assert sizes == [9, 9, 12] * 2


def test_a_step_of_10_terabytes_is_planned_from_one_window():
    """For the last of 1,024 processes, far in the run: 64 blocks are looked at, and its own examples made."""
    place = (5 * 228_000 + 17, 2, 0)
    steps, log = steps_of(1024, 1023)
    step = steps[place]
    assert TERABYTES_10 * BLOCK > 8e9
    assert log["blocks"] <= 65
    assert 1 <= log["examples"] <= 2 * step.examples + 2
    assert step.tokens <= 2 * 2**20 / 1024
    small, log = steps_of(1024, 1023, blocks=6400)
    small[2, 2, 0]
    assert log["blocks"] <= 65, "as of a text of a thousandth of a thousandth"


def test_shares_of_1024_processes_are_the_step_and_a_run_resumes_with_fewer():
    number, position = 3 * 228_000 + 1, 2
    examples, planned = steps_of(1024)[0].plan(number)
    step = planned[position]
    for processes in (1024, 512, 7):
        again = steps_of(processes)[0].plan(number)[1][position]
        assert again.tolist() == step.tolist()
        shares = [share(examples.lengths[step], 1024, processes, index)[0] for index in range(processes)]
        assert sorted(chain.from_iterable(own.tolist() for own in shares)) == list(range(len(step)))
        assert len({len(own) > 0 for own in shares}) == 1
