"""A table is updated by the rows that gradients have reached as if it were updated whole."""

import copy
from contextlib import nullcontext

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F

from tercet.training.checkpoints.checkpoint import load_checkpoint, save_checkpoint, take_snapshot
from tercet.training.loop import Training
from tercet.training.optimizers.optimizers import build_optimizer, clip_gradients
from tercet.training.optimizers.row_updates import FEWEST_ROWS, gradients_by_rows
from tercet.training.optimizers.schedules import build_schedule
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe

NUM_ROWS, WIDTH, NUM_READ = FEWEST_ROWS + 3, 32, 40


class Reader(nn.Module):
    """Classifies bags of words."""

    def __init__(self, is_tied: bool = False):
        super().__init__()
        self.words = nn.Embedding(NUM_ROWS, WIDTH)
        self.places = nn.Embedding(8, WIDTH)
        self.answer = nn.Linear(WIDTH, NUM_ROWS if is_tied else 2, bias=False)
        if is_tied:
            self.answer.weight = self.words.weight

    def forward(self, words):
        return self.answer((self.words(words) + self.places(torch.arange(words.shape[1]))).mean(1))


@pytest.fixture
def run_of(objective):
    """Begin to train a model by an optimizer whose constants are given."""

    def begin(model: nn.Module, **recipe) -> Training:
        accelerator = Accelerator(cpu=True)
        optimizer = build_optimizer(model, OptimizerRecipe(learning_rate=0.01, **recipe))
        schedule = build_schedule(optimizer, ScheduleRecipe(), steps=100, width=WIDTH)
        return Training(model, objective, accelerator.prepare(optimizer), schedule, accelerator, 100)

    return begin


def learn(run: Training, steps: range, *, by_rows: bool, max_norm: float = 1.0, num_read: int = NUM_READ):
    """Take steps of two micro-batches each, and return the norms of their gradients."""
    norms, parts = [], (run.model, run.optimizer, run.accelerator)
    with gradients_by_rows(*parts) if by_rows else nullcontext():
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            for _ in range(2):
                words = torch.randint(num_read, (4, 8), generator=generator)
                answers = torch.randint(2, (4,), generator=generator)
                F.cross_entropy(run.model(words), answers).backward()
            norms.append(clip_gradients(*parts, max_norm))
            run.optimizer.step()
            run.schedule.step()
            run.optimizer.zero_grad()
    return torch.stack(norms)


def moments_of(run: Training) -> list[torch.Tensor]:
    states = run.optimizer.state_dict()["state"]
    return [states[number][name].to_dense() for number in sorted(states) for name in sorted(states[number])]


@pytest.mark.parametrize("max_norm", [100.0, 0.01], ids=["whole gradients", "clipped gradients"])
@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_rows_learn_as_in_a_whole_table(kind, max_norm, run_of):
    model = Reader()
    runs = [run_of(each, kind=kind) for each in (model, copy.deepcopy(model))]
    norms = [
        learn(run, range(8), by_rows=by_rows, max_norm=max_norm)
        for run, by_rows in zip(runs, (True, False), strict=True)
    ]
    assert (norms[0] > max_norm).all() == (max_norm < 1)
    torch.testing.assert_close(*norms)
    torch.testing.assert_close(*(list(run.model.parameters()) for run in runs), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(*map(moments_of, runs), rtol=1e-4, atol=1e-8)


def test_only_rows_that_were_read_have_gradients_and_moments(run_of):
    run = run_of(Reader())
    learn(run, range(3), by_rows=True)
    inner = run.optimizer.optimizer
    assert len(inner.reached[run.model.words.weight].rows) <= NUM_READ
    assert run.model.words.weight not in inner.state
    assert run.model.places.weight in inner.state


def test_a_checkpoint_holds_the_moments_of_reached_rows_alone(tmp_path, run_of):
    run = run_of(Reader())
    learn(run, range(3), by_rows=True)
    snapshot = take_snapshot(tmp_path, run, recipe={})
    saved = torch.load(snapshot.write() / "optimizer.pt", weights_only=True)["optimizer"]["state"]
    tables = [each for values in saved.values() for each in values.values() if each.is_sparse]
    assert len(tables) == 2
    assert all(0 < len(each.values()) <= NUM_READ for each in tables)
    weights = sum(each.numel() for each in run.model.parameters()) * 4
    assert weights < snapshot.num_bytes < 2 * weights


def test_clipped_gradients_are_those_of_torch(run_of):
    model = Reader()
    clipped, scaled = (run_of(each) for each in (model, copy.deepcopy(model)))
    learn(scaled, range(3), by_rows=False, max_norm=0.01)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        for _ in range(2):
            words = torch.randint(NUM_READ, (4, 8), generator=generator)
            F.cross_entropy(model(words), torch.randint(2, (4,), generator=generator)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        clipped.optimizer.step()
        clipped.schedule.step()
        clipped.optimizer.zero_grad()
    torch.testing.assert_close(
        list(scaled.model.parameters()), list(model.parameters()), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("resumes_by_rows", [True, False])
def test_a_resumed_run_goes_on_to_the_last_bit(tmp_path, resumes_by_rows, run_of):
    whole, resumed = run_of(Reader()), run_of(Reader())
    learn(whole, range(4), by_rows=True)
    load_checkpoint(save_checkpoint(tmp_path, whole, recipe={}), resumed)
    for run, by_rows in ((whole, True), (resumed, resumes_by_rows)):
        learn(run, range(4, 9), by_rows=by_rows, num_read=2 * NUM_READ)
    if resumes_by_rows:
        assert all(map(torch.equal, whole.model.parameters(), resumed.model.parameters()))
        assert all(map(torch.equal, moments_of(whole), moments_of(resumed)))
    else:
        torch.testing.assert_close(moments_of(whole), moments_of(resumed), rtol=1e-4, atol=1e-8)


def test_a_table_of_which_most_rows_were_read_is_updated_whole(run_of):
    model = Reader()
    runs = [run_of(each) for each in (model, copy.deepcopy(model))]
    for run, by_rows in zip(runs, (True, False), strict=True):
        for first in range(0, NUM_ROWS, 32):
            words = (torch.arange(32) + first).clamp(max=NUM_ROWS - 1).view(4, 8)
            with gradients_by_rows(run.model, run.optimizer, run.accelerator) if by_rows else nullcontext():
                run.model(words).sum().backward()
                run.optimizer.step()
                run.optimizer.zero_grad()
    table = runs[0].model.words.weight
    assert table in runs[0].optimizer.optimizer.state
    torch.testing.assert_close(table, runs[1].model.words.weight, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(*map(moments_of, runs), rtol=1e-4, atol=1e-8)


def test_a_step_that_is_skipped_moves_nothing(run_of):
    run = run_of(Reader())
    learn(run, range(2), by_rows=True)
    before = [each.clone() for each in (*run.model.parameters(), *moments_of(run))]
    with gradients_by_rows(run.model, run.optimizer, run.accelerator):
        (run.model(torch.zeros(4, 8, dtype=torch.int64)).sum() * torch.nan).backward()
        run.optimizer.optimizer.found_inf = torch.ones(())
        run.optimizer.step()
        run.optimizer.zero_grad()
        del run.optimizer.optimizer.found_inf
    assert all(map(torch.equal, before, (*run.model.parameters(), *moments_of(run))))
    learn(run, range(2, 4), by_rows=True)
    assert all(each.isfinite().all() for each in (*run.model.parameters(), *moments_of(run)))


@pytest.mark.parametrize("reason", ["tied", "frozen", "processes"])
def test_gradients_of_whole_tables_stay_whole(reason, run_of):
    run = run_of(Reader(is_tied=reason == "tied"))
    if reason == "processes":
        run.accelerator = type("Accelerator", (), {"num_processes": 2})()
    if reason == "frozen":
        run.optimizer.param_groups[1]["params"].remove(run.model.words.weight)
    with gradients_by_rows(run.model, run.optimizer, run.accelerator):
        assert not run.model.words.sparse


def test_tables_are_as_before_behind_the_run(run_of):
    run = run_of(Reader())
    with gradients_by_rows(run.model, run.optimizer, run.accelerator):
        assert run.model.words.sparse
        assert not run.model.places.sparse
    assert not run.model.words.sparse
