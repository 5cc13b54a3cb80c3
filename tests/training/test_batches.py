"""The plan of an epoch and the sharing of its steps: what they promise for any lengths."""

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tercet.data.steps.batches import Step, StepDataset, checksum, endless_steps, one_pass
from tercet.data.steps.packing import select_sequences
from tercet.data.steps.step_planning import cut_evenly, plan_steps, share, spread
from tercet.training.stages import Stage, warn_of_unfilled_steps

CPU = torch.device("cpu")


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


class Lengths:
    """Examples of which nothing but their lengths is known."""

    def __init__(self, lengths: list[int]):
        self.lengths = np.array(lengths)

    def epoch(self, number: int) -> "Lengths":
        return self


@pytest.fixture
def make(objective, source):
    def make(**changes) -> StepDataset:
        fixed: dict[str, Any] = {"tokens_per_step": 200, "tokens_per_micro_batch": 80, "seed": 3}
        return StepDataset(source, objective, **(fixed | changes))

    return make


def added_up(shares: list[Step]) -> tuple[dict[str, int], int, int, int]:
    """Add up what processes tell each other of their shares of a step, as `Step.whole` does."""
    targets = {name: sum(share.targets[name] for share in shares) for name in shares[0].targets}
    return (
        targets,
        sum(share.examples for share in shares),
        sum(share.tokens for share in shares),
        sum(share.fingerprint for share in shares),
    )


def sequences(step) -> list[list[int]]:
    """The sequences of a process's share, and their labels, in the order of its micro-batches."""
    found = []
    for batch in step.micro_batches(CPU):
        for first, last in pairwise(batch["cu_seq_lens_k"].tolist()):
            found.append(
                [*batch["input_ids"][0, first:last].tolist(), *batch["labels"][0, first:last].tolist()]
            )
    return found


@pytest.mark.parametrize("tokens_per_step", [100, 333, 2000])
def test_an_epoch_holds_every_example_exactly_once_in_steps_of_nearly_equal_tokens(tokens_per_step):
    lengths = rng(0).integers(1, 30, 500)
    steps = plan_steps(lengths, tokens_per_step, rng(1))
    assert sorted(np.concatenate(steps)) == list(range(500))
    tokens = np.array([lengths[step].sum() for step in steps])
    assert tokens.max() <= tokens_per_step
    assert tokens.max() - tokens.min() < 2 * 30
    assert tokens.mean() > tokens_per_step * (1 - 1 / len(steps)) - 30


def test_steps_far_below_their_size_are_warned_of(make):
    """Two examples of 100 tokens do not fit a step of 150, which then holds one of them."""
    steps = make(tokens_per_step=150, tokens_per_micro_batch=150)
    steps.source = Lengths([100] * 6)
    assert steps.fill() == pytest.approx(100 / 150)
    with pytest.warns(UserWarning, match="steps hold 100 tokens on average, not tokens_per_step = 150"):
        warn_of_unfilled_steps([Stage(0, steps)])


@pytest.mark.filterwarnings("error")
def test_steps_near_their_size_are_not_warned_of(make):
    steps = make(tokens_per_step=210, tokens_per_micro_batch=150)
    steps.source = Lengths([100] * 6)
    assert steps.fill() == pytest.approx(200 / 210)
    warn_of_unfilled_steps([Stage(0, steps)])


def test_a_plan_depends_on_its_seed_alone():
    lengths = rng(0).integers(1, 30, 100)
    first, again, other = (plan_steps(lengths, 200, rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(np.concatenate(first), np.concatenate(other))


def test_without_a_generator_the_order_is_kept():
    assert np.concatenate(plan_steps(np.full(9, 5), 10, None)).tolist() == list(range(9))


def test_cuts_are_where_the_sums_are_most_alike():
    assert cut_evenly(np.array([1, 1, 1, 1, 1, 1]), 3) == [0, 2, 4, 6]
    assert cut_evenly(np.array([4, 1, 1, 1, 1]), 2) == [0, 1, 5]
    assert cut_evenly(np.array([1, 1, 50]), 3) == [0, 1, 2, 3]
    assert cut_evenly(np.array([50, 1, 1]), 3) == [0, 1, 2, 3]


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("limit", [20, 64, 10_000])
def test_shares_hold_every_sequence_once_within_the_limit(processes, limit):
    lengths = rng(4).integers(1, 21, 60)
    shares = [share(lengths, limit, processes, index) for index in range(processes)]
    assert sorted(np.concatenate([chosen for chosen, _ in shares])) == list(range(60))
    assert len({len(edges) for _, edges in shares}) == 1, "as many micro-batches for each"
    for chosen, edges in shares:
        for first, last in pairwise(edges):
            assert 0 < lengths[chosen[first:last]].sum() <= limit
            assert np.all(np.diff(lengths[chosen[first:last]]) >= 0)


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_sequences_are_spread_over_processes_by_number_and_length(processes):
    lengths = rng(5).integers(1, 500, 300)
    spread_out = [spread(lengths, processes, index) for index in range(processes)]
    assert sorted(np.concatenate(spread_out)) == list(range(300))
    tokens = [lengths[own].sum() for own in spread_out]
    assert max(tokens) - min(tokens) <= lengths.max()
    assert max(map(len, spread_out)) - min(map(len, spread_out)) <= 1


def test_a_sequence_beyond_the_limit_stands_alone():
    chosen, edges = share(np.array([5, 30, 5, 5, 5]), 10, 1, 0)
    assert chosen.tolist() == [0, 2, 3, 4, 1]
    assert edges == [0, 2, 4, 5]


def test_with_fewer_sequences_than_processes_the_last_receive_none():
    sizes = [len(share(np.array([4, 4]), 100, 3, index)[0]) for index in range(3)]
    assert sizes == [1, 1, 0]


def test_a_step_is_the_same_whatever_the_micro_batches_and_processes(make):
    whole = make(tokens_per_micro_batch=10_000)[0, 2]
    small = make(tokens_per_micro_batch=30)[0, 2]
    halves = [make(num_processes=2, process_index=index)[0, 2] for index in (0, 1)]
    expected = sorted(sequences(whole))
    assert sorted(sequences(small)) == expected, "labels included: the same tokens are chosen"
    assert sorted(sequences(halves[0]) + sequences(halves[1])) == expected
    expected = (whole.targets, whole.examples, whole.tokens, whole.fingerprint)
    assert (small.targets, small.examples, small.tokens, small.fingerprint) == expected
    assert added_up(halves) == expected


def test_a_step_arrives_in_another_process_as_it_was(make):
    step = make()[0, 1]
    found = pickle.loads(pickle.dumps(step))
    assert (found.cursor, found.parts[0].edges, found.targets) == (
        step.cursor,
        step.parts[0].edges,
        step.targets,
    )
    assert found.parts[0].batch.keys() == step.parts[0].batch.keys()
    for name, value in step.parts[0].batch.items():
        torch.testing.assert_close(found.parts[0].batch[name], value, rtol=0, atol=0)
    found.parts[0].batch["input_ids"] += 1  # what arrives can be written to


def test_examples_of_a_step_go_from_short_to_long():
    lengths = rng(0).integers(1, 30, 500)
    assert all((np.diff(lengths[step]) >= 0).all() for step in plan_steps(lengths, 333, rng(1)))


def test_targets_are_those_of_the_micro_batches(make, objective):
    step = make()[1, 0]
    batches = step.micro_batches(CPU)
    assert len(batches) > 2
    for name, total in step.targets.items():
        assert total == sum(int(objective.targets(batch)[name]) for batch in batches)
    assert step.tokens == sum(batch["input_ids"].numel() for batch in batches)


def test_a_place_at_the_end_of_an_epoch_is_the_next_one(make):
    steps = make()
    num_steps = len(steps.plan(0)[1])
    assert next(endless_steps(steps, (0, num_steps, 7))).cursor == (1, 0, 7)


def test_epochs_differ_in_order_and_in_what_is_hidden(make):
    steps = make()
    first, second = (
        [s for i in range(len(steps.plan(e)[1])) for s in sequences(steps[e, i])] for e in (0, 1)
    )
    assert sorted(first) != sorted(second)
    tokens = [sorted(s[: len(s) // 2] for s in epoch) for epoch in (first, second)]
    assert tokens[0] == tokens[1]


def test_examples_of_a_step_are_named_while_the_next_epoch_is_planned(make):
    steps = make()
    _, planned = steps.plan(0)
    named = "step 1 of epoch 0 (examples " + ", ".join(map(str, planned[1][:5]))
    steps.plan(1)
    assert steps.describe((0, 1)).startswith(named)
    steps.plan(2)
    assert steps.describe((0, 1)) == "step 1 of epoch 0"


def test_drawing_batches_leaves_torchs_generator_alone(make):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    next(endless_steps(make(), (0, 0)))
    assert torch.equal(torch.get_rng_state(), before)


def test_one_pass_sees_every_example_once(make, source):
    found = [s for step in one_pass(make(shuffle=False)) for s in sequences(step)]
    assert sorted(s[: len(s) // 2] for s in found) == sorted(row.tolist() for row in source.rows)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tokens_per_step": 9000}, r"tokens in 120 examples, fewer than tokens_per_step = 9,000: lower"),
        ({"tokens_per_micro_batch": 12}, "example of 20 tokens does not fit tokens_per_micro_batch = 12"),
        ({"num_processes": 64}, "examples for 64 processes: raise tokens_per_step"),
    ],
)
def test_steps_that_cannot_be_filled_or_shared_are_refused(make, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        make(**changes).plan(0)


@pytest.mark.parametrize("options", [{}, {"are_parts_equal": True}])
@pytest.mark.parametrize("processes", [1, 2, 5])
def test_steps_of_examples_hold_each_once_whatever_the_processes(make, source, processes, options):
    """The last one has a single example: other processes compute it, too, and nothing of theirs counts."""
    source.rows, source.lengths = source.rows[:21], source.lengths[:21]
    sizes = {"examples_per_step": 5, "tokens_per_step": 100, "tokens_per_micro_batch": 100}
    parts = [
        make(**sizes, **options, num_processes=processes, process_index=index) for index in range(processes)
    ]
    alone = make(**sizes)
    found, shares = [], []
    for number in range(5):
        shares = [part[0, number] for part in parts]
        assert added_up(shares) == added_up([alone[0, number]])
        assert all(share.micro_batches(CPU) for share in shares), "each has gradients to exchange"
        found += [s for share in shares if not share.is_idle for s in sequences(share)]
    assert [share.is_idle for share in shares] == [False] + [True] * (processes - 1)
    assert sorted(s[: len(s) // 2] for s in found) == sorted(row.tolist() for row in source.rows)


def test_the_checksum_is_of_all_that_is_read():
    ids = torch.arange(6)[None]
    edges = {f"cu_seq_lens_{side}": torch.tensor([0, 2, 6]) for side in "qk"}
    batch = {"input_ids": ids, "decoder_input_ids": ids + 1} | edges
    assert checksum(batch) == checksum(batch | {"labels": ids})
    others = [{"input_ids": ids + 1}, {"decoder_input_ids": ids}, {"cu_seq_lens_k": torch.tensor([0, 3, 6])}]
    assert all(checksum(batch | other) != checksum(batch) for other in others)
    assert checksum({"input_ids": ids} | edges) != checksum(batch)


def test_the_checksum_is_the_sum_of_those_of_parts_in_any_order():
    ids = torch.arange(6)[None]
    edges = {f"cu_seq_lens_{side}": torch.tensor([0, 2, 6]) for side in "qk"}
    batch = {"input_ids": ids} | edges
    parts = [select_sequences(batch, np.array([number])) for number in (1, 0)]
    assert sum(map(checksum, parts)) == checksum(batch)
    assert checksum(select_sequences(batch, np.array([1, 0]))) == checksum(batch)


def test_processes_that_compute_together_take_as_many_micro_batches_or_none(objective):
    """Of ragged sizes, sequences that stand alone need not be a multiple of the processes."""
    sizes = {"tokens_per_step": 60, "tokens_per_micro_batch": 20, "seed": 0}
    for index in range(2):
        steps = StepDataset(
            Lengths([18] * 9), objective, **sizes, num_processes=2, process_index=index, are_parts_equal=True
        )
        with pytest.raises(ValueError, match="cannot take as many micro-batches each"):
            steps[0, 0]
