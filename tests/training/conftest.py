"""A toy of everything that the engine joins: guessing tokens from themselves.

Legend: N packed tokens, S sequences.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.configs.recipe import recipe_data
from tercet.data.steps.objective import IGNORE, Batch, Objective
from tercet.data.steps.packing import pack
from tercet.pretraining.objectives.randomness import SequenceDraws
from tercet.training.learning import Interrupted, Parts, Session, learn
from tercet.training.loop import Training
from tercet.training.optimizers.optimizers import build_optimizer
from tercet.training.optimizers.schedules import build_schedule
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe, TrainingRecipe
from tercet.training.stages import prepare_data

from ..fork_server import ForkedRun, ForkServer
from ..launches import replicated

VOCABULARY = 23
WIDTH = 16
TRAIN = "from tests.training.toy_program import main; main()"


class ToyObjective(Objective):
    """Two terms with different numbers of targets: some of the tokens, and each sequence's length."""

    def __init__(self):
        self.weights = {"token": 1.0, "length": 0.5}

    def collate(self, examples, seed) -> Batch:
        packed = pack([example["input_ids"] for example in examples])
        draws, lengths = SequenceDraws.of(examples, seed), packed.cu_seq_lens.diff().numpy()
        chosen = (draws.random(lengths) < draws.random(lengths))[None]
        return {
            "input_ids": packed.input_ids,
            "position_ids": packed.position_ids,
            "labels": packed.input_ids.masked_fill(torch.from_numpy(~chosen), IGNORE),
            "is_long": (packed.cu_seq_lens.diff() > 8).long(),
            "cu_seq_lens_q": packed.cu_seq_lens,
            "cu_seq_lens_k": packed.cu_seq_lens,
            "max_length_q": packed.max_length,
            "max_length_k": packed.max_length,
        }

    def targets(self, batch) -> dict[str, Tensor]:
        return {
            "token": (batch["labels"] != IGNORE).sum(),
            "length": torch.tensor(len(batch["is_long"]), device=batch["labels"].device),
        }

    def losses(self, model, batch) -> dict[str, Tensor]:
        tokens, lengths = model(batch["input_ids"], batch["cu_seq_lens_q"])
        return {
            "token": F.cross_entropy(tokens, batch["labels"][0], reduction="sum"),
            "length": F.cross_entropy(lengths, batch["is_long"], reduction="sum"),
        }

    def scores(self, model, batch) -> dict[str, dict[str, Tensor]]:
        tokens, lengths = model(batch["input_ids"], batch["cu_seq_lens_q"])
        losses = self.losses(model, batch)
        hits = {
            "token": (tokens.argmax(-1) == batch["labels"][0]).sum(),
            "length": (lengths.argmax(-1) == batch["is_long"]).sum(),
        }
        return {name: {"loss": losses[name], "accuracy": hits[name]} for name in losses}


class ToySource:
    """Random sequences of 2 to 20 tokens, the same in every epoch."""

    def __init__(self, num_examples: int = 120, seed: int = 0):
        rng = np.random.default_rng(seed)
        self.rows = [rng.integers(0, VOCABULARY, rng.integers(2, 21)) for _ in range(num_examples)]
        self.lengths = np.array([len(row) for row in self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.rows[index], "index": index}

    def epoch(self, number: int) -> "ToySource":
        return self


class ToyModel(nn.Module):
    """Tokens and, from each sequence's sum, its length."""

    _no_split_modules = {"LayerNorm"}

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.tokens = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lengths = nn.Linear(WIDTH, 2)
        self.tokens.weight = self.embedding.weight

    def forward(self, input_ids: Tensor, cu_seq_lens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.dropout(self.norm(self.hidden(self.embedding(input_ids[0])).relu()))  # (N, C)
        bags = [rows.sum(dim=0) for rows in x.split(cu_seq_lens.diff().tolist())]
        return self.tokens(x), self.lengths(torch.stack(bags))


def toy_recipe(**changes) -> TrainingRecipe:
    fixed = {
        "steps": 6, "tokens_per_step": 200, "tokens_per_micro_batch": 80, "precision": "fp32", "log_every": 2,
        "measure_utilization": False, "retain_heap": False,
    }  # fmt: skip
    return TrainingRecipe(**(fixed | changes))


def toy_state(step: int = 0, model: nn.Module | None = None) -> Training:
    """Prepare a run that has taken `step` steps along random gradients."""
    accelerator = Accelerator(cpu=True)
    model = model or ToyModel()
    optimizer = build_optimizer(model, OptimizerRecipe())
    schedule = build_schedule(optimizer, ScheduleRecipe(), steps=100, width=WIDTH)
    run = Training(model, ToyObjective(), accelerator.prepare(optimizer), schedule, accelerator, 100)
    for _ in range(step):
        move(run)
    return run


def move(run: Training) -> None:
    """Take one step along random gradients."""
    for parameter in run.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    run.optimizer.step()
    run.schedule.step()
    run.progress.step += 1


def fit_source(model, objective, source, recipe, folder, accelerator, *, resume=False, **data):
    """Cut a source into steps, and train on them, to the end or a signal."""
    steps = prepare_data(source, objective, recipe, accelerator, **data)
    parts = Parts(model=model, objective=objective, data=steps, width=WIDTH)
    try:
        return learn(Session(folder, accelerator, recipe, resume), parts)
    except Interrupted as stopped:
        return stopped.outcome


class Toys:
    """What the tests use of this file, by way of the fixture `toys`."""

    def __init__(self, server: ForkServer):
        self.server = server

    Objective, Source, Model, recipe = ToyObjective, ToySource, ToyModel, staticmethod(toy_recipe)
    state, move = staticmethod(toy_state), staticmethod(move)
    fit, width = staticmethod(fit_source), WIDTH

    @staticmethod
    def train(folder, recipe, *, model=None, objective=None, source=None, **options):
        """Train from a fixed seed in this process, with dropout unless a model is given."""
        torch.manual_seed(0)
        parts = model or ToyModel(0.1), objective or ToyObjective(), source or ToySource()
        return fit_source(*parts, recipe, folder, Accelerator(cpu=True), **options)

    @staticmethod
    def prepare(folder: Path, recipe: TrainingRecipe) -> Path:
        """Make a folder with the recipe of a run in processes of its own."""
        folder.mkdir(exist_ok=True)
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe_data(recipe)))
        return folder

    @staticmethod
    def with_blocks(dropout: float = 0.0) -> ToyModel:
        """Make a toy whose hidden layer is a block."""
        model = ToyModel(dropout)
        model.blocks = nn.ModuleList([model.hidden])
        return model

    def run(
        self,
        folder: Path,
        *overrides: str,
        processes: int = 1,
        in_pieces: bool = False,
        replicas: int = 1,
        dropout: float = 0.1,
        resume: bool = False,
        disagree: bool = False,
    ) -> ForkedRun:
        """Start `toy_program.py` in new processes; it is not waited for."""
        variables = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"} if in_pieces else {}
        if replicas > 1:
            variables |= replicated(replicas, processes // replicas)
        if disagree:
            variables["TOYS_DISAGREE"] = "1"
        arguments = [str(folder), str(dropout), str(int(resume)), *overrides]
        return self.server.start(TRAIN, *arguments, processes=processes, variables=variables)

    def finish(self, run: ForkedRun) -> str:
        """Wait for a run; give what its processes said."""
        status, said = self.server.wait(run), run.output.read_text()
        assert status == 0, said
        return said


@pytest.fixture
def toys(fork_server) -> Toys:
    return Toys(fork_server)


@pytest.fixture
def objective() -> ToyObjective:
    return ToyObjective()


@pytest.fixture
def source() -> ToySource:
    return ToySource()
