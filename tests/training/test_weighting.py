"""Sources with shares of the tokens: what steps hold, that nothing is read twice or left out, processes."""

from collections import Counter
from itertools import chain, islice

import numpy as np
import pytest

from tercet.data.steps.batches import StepDataset, endless_steps
from tercet.data.steps.examples import LeftOut, PackableExamples, PackedExamples, gather
from tercet.data.steps.packing import ragged
from tercet.data.steps.weighting import WeightedSource
from tercet.data.steps.workers import DataCursor
from tercet.training.mixture import MixedObjective, MixedSource

from .test_mixture import Numbers, Sum


class PackedNumbers(Numbers, PackableExamples):
    """The same, field by field."""

    def pack(self, indices: np.ndarray) -> PackedExamples:
        return PackedExamples(
            self, indices, {"input_ids": lambda: ragged([self.rows[index] for index in indices])}
        )


@pytest.fixture
def sources():
    return {"wiki": PackedNumbers(300, 0), "forum": PackedNumbers(40, 1), "code": PackedNumbers(200, 2)}


SHARES = {"wiki": 1.0, "forum": 2.0, "code": 5.0}


def data_of(source, objective=None, **changes) -> StepDataset:
    options = {"tokens_per_step": 160, "tokens_per_micro_batch": 60, "seed": 3} | changes
    return StepDataset(source, objective or Sum("a"), **options)


def test_every_step_has_the_shares_but_for_an_example(sources):
    steps = data_of(WeightedSource(sources, SHARES, seed=7))
    for step in islice(endless_steps(steps, DataCursor(0, 0)), 60):
        assert step.tokens == sum(step.tokens_of.values())
        for name, share in SHARES.items():
            assert abs(step.tokens_of[name] - share / 8 * step.tokens) <= 9, "one example at most"


def test_a_pass_has_every_example_once_before_the_next_begins(sources):
    source = WeightedSource(sources, SHARES, seed=7)
    read: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for number in range(12):
        epoch = source.epoch(number)
        for origin, index in zip(epoch.origins, epoch.indices, strict=True):
            read[int(origin)].append(int(index))
    for origin, (name, numbers) in enumerate(sources.items()):
        counts = Counter(read[origin])
        expected = 12 * source.passes[name]
        assert set(counts.values()) <= {int(expected), int(expected) + 1}
        assert len(counts) == len(numbers) or expected < 1


def test_steps_read_the_passes_of_a_source_one_after_another(sources):
    """Within an epoch, too: else a short text's documents are learned up to four times before others once."""
    data = data_of(WeightedSource(sources, SHARES, seed=7))
    read = {origin: np.zeros(len(numbers), int) for origin, numbers in enumerate(sources.values())}
    for epoch in range(3):
        examples, steps = data.plan(epoch)
        for step in steps:
            for index in step:
                read[int(examples.origins[index])][examples.indices[index]] += 1
            assert all(np.ptp(counts) <= 1 for counts in read.values())


def test_equal_shares_per_token_read_everything_once_an_epoch(sources):
    sizes = {name: float(numbers.lengths.sum()) for name, numbers in sources.items()}
    epoch = WeightedSource(sources, sizes, seed=7).epoch(0)
    assert Counter(epoch.origins.tolist()) == {0: 300, 1: 40, 2: 200}


def test_epochs_follow_from_their_numbers_alone(sources):
    first, second = (WeightedSource(sources, SHARES, seed=7) for _ in range(2))
    expected = [first.epoch(number) for number in range(4)][3]
    assert np.array_equal(second.epoch(3).indices, expected.indices)
    assert not np.array_equal(WeightedSource(sources, SHARES, seed=8).epoch(3).indices, expected.indices)


def test_examples_at_once_are_those_one_by_one(sources):
    epoch = WeightedSource(sources, SHARES, seed=7).epoch(1)
    chosen = np.random.default_rng(0).permutation(len(epoch))[:50]
    at_once = epoch.pack(chosen)
    assert isinstance(at_once, PackedExamples)
    for name in ("input_ids", "index"):
        one_by_one = [epoch[int(index)][name] for index in chosen]
        assert gather(at_once, name).values.tolist() == list(
            chain.from_iterable(map(np.atleast_1d, one_by_one))
        )
    mixed = WeightedSource(sources | {"code": Numbers(200, 2)}, SHARES, seed=7).epoch(1)
    slow = mixed.pack(chosen)
    assert not isinstance(slow, PackedExamples)
    assert np.array_equal(gather(slow, "input_ids").values, gather(at_once, "input_ids").values)


def test_what_a_text_leaves_out_is_told_once_however_often_an_epoch_reads_it(sources):
    sources["forum"].left_out = (LeftOut("documents", 1, 41, 3, 900, "are too short"),)
    weighted = WeightedSource(
        {name: MixedSource([each], (1.0,), seed=1) for name, each in sources.items()}, SHARES, 7
    )
    assert weighted.passes["forum"] > 1
    assert [*weighted.epoch(0).left_out] == [*sources["forum"].left_out]


def test_objectives_of_a_mixture_have_their_shares_of_each_text(sources):
    mixed = {name: MixedSource([numbers, numbers], (0.25, 0.75), seed=1) for name, numbers in sources.items()}
    objective = MixedObjective([Sum("a"), Sum("b")], (0.25, 0.75))
    steps = data_of(WeightedSource(mixed, SHARES, seed=7), objective, tokens_per_step=400)
    examples, planned = steps.plan(0)
    for chosen in planned:
        tokens = examples.lengths[chosen]
        for origin, share in enumerate(SHARES.values()):
            for component, part in enumerate((0.25, 0.75)):
                here = (examples.origins[chosen] == origin) & (examples.components[chosen] == component)
                assert abs(tokens[here].sum() - share / 8 * part * tokens.sum()) <= 14
    step = steps[DataCursor(0, 0)]
    assert {part.component for part in step.parts} == {0, 1}
    assert sum(step.tokens_of.values()) == step.tokens


def test_processes_share_what_one_would_read(sources):
    whole, *parts = (
        data_of(WeightedSource(sources, SHARES, seed=7), num_processes=number, process_index=index)
        for number, index in ((1, 0), (2, 0), (2, 1))
    )
    cursor = DataCursor(1, 2)
    together = [part[cursor] for part in parts]
    assert sum(step.fingerprint for step in together) == whole[cursor].fingerprint
    read = sorted(
        number for step in together for number in step.parts[0].batch["input_ids"].flatten().tolist()
    )
    assert read == sorted(whole[cursor].parts[0].batch["input_ids"].flatten().tolist())


def test_shares_that_cannot_be(sources):
    with pytest.raises(ValueError, match="shares name books, but the texts are wiki, forum, code"):
        WeightedSource(sources, {"books": 1.0}, seed=0)
    with pytest.raises(ValueError, match="are all 0"):
        WeightedSource(sources, {"wiki": 0.0}, seed=0)
    assert set(WeightedSource(sources, {"wiki": 1.0}, seed=0).epoch(0).origins.tolist()) == {0}
