"""How fast the character language model learns: characters a second, forward and backward direction together.

One thread trains on random characters in batches of 32 rows of 250, without context. Seconds are those of the
processor, which other programs disturb least, and the models take turns. The peer is the loop
that anyone would write: two embeddings, two `nn.LSTM`, two linear layers, the same loss and optimizer, all
logits in memory. With `--flair`, flair's own language models, if the package is installed.

    python benchmarks/characters.py
    python benchmarks/characters.py --hidden 2048 --steps 3
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.modeling import TercetCharacterConfig, TercetCharacterLanguageModel
from tercet.training.optimizers import build_optimizer
from tercet.training.recipe import OptimizerRecipe

VOCABULARY, EMBEDDING = 100, 64
ROWS, LENGTH = 32, 250


class PlainDirection(nn.Module):
    """A language model of one direction, written down."""

    def __init__(self, hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, hidden, batch_first=True)
        self.head = nn.Linear(hidden, VOCABULARY)

    def forward(self, rows: Tensor) -> Tensor:
        """Mean cross-entropy of the next characters of rows (S, T)."""
        logits = self.head(self.lstm(self.embedding(rows[:, :-1]))[0])
        return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


class PlainModel(nn.Module):
    """Two of them."""

    def __init__(self, hidden: int):
        super().__init__()
        self.directions = nn.ModuleList(PlainDirection(hidden) for _ in range(2))

    def forward(self, rows: Tensor) -> Tensor:
        """Sum of the losses of both directions."""
        forward, backward = self.directions
        return forward(rows) + backward(rows.flip(1))


class FlairModel(nn.Module):
    """Flair's language models of both directions."""

    def __init__(self, hidden: int):
        super().__init__()
        from flair.data import Dictionary  # pyright: ignore[reportMissingImports]
        from flair.models import LanguageModel  # pyright: ignore[reportMissingImports]

        characters: Any = Dictionary()
        for number in range(VOCABULARY - 1):
            characters.add_item(chr(number + 33))
        self.directions = nn.ModuleList(
            LanguageModel(characters, is_forward, hidden, 1, embedding_size=EMBEDDING, dropout=0.0)
            for is_forward in (True, False)
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Sum of the losses of both directions, each from an empty state."""
        return sum(
            (self.loss(model, row) for model, row in zip(self.directions, (rows, rows.flip(1)), strict=True)),
            start=torch.zeros(()),
        )

    def loss(self, model: Any, rows: Tensor) -> Tensor:
        """Mean cross-entropy of the next characters of rows (S, T)."""
        columns = rows.T
        output, _, _ = model(columns[:-1], model.init_hidden(len(rows)))
        return F.cross_entropy(output.flatten(0, 1), columns[1:].flatten())


class OurModel(nn.Module):
    """The member of the family."""

    def __init__(self, hidden: int):
        super().__init__()
        config = TercetCharacterConfig(
            vocab_size=VOCABULARY, hidden_size=hidden, embedding_size=EMBEDDING, dropout=0.0
        )
        self.model = TercetCharacterLanguageModel(config).train()

    def forward(self, rows: Tensor) -> Tensor:
        """Sum of the losses of both directions."""
        return self.model(rows, labels=rows).loss


MODELS: dict[str, Callable[[int], nn.Module]] = {"tercet": OurModel, "plain torch": PlainModel}


def seconds_per_step(models: list[nn.Module], steps: int) -> list[float]:
    """Time training steps of each model in turn, after one that is not counted; the medians."""
    recipe = OptimizerRecipe(kind="adamw", learning_rate=1e-3)
    optimizers = [build_optimizer(model, recipe) for model in models]
    times: list[list[float]] = [[] for _ in models]
    for _ in range(steps + 1):
        rows = torch.randint(1, VOCABULARY, (ROWS, LENGTH))
        for model, optimizer, own in zip(models, optimizers, times, strict=True):
            start = time.process_time()
            model(rows).backward()
            optimizer.step()
            optimizer.zero_grad()
            own.append(time.process_time() - start)
    return [statistics.median(own[1:]) for own in times]


def main() -> None:
    """Print the speed of each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hidden", type=int, default=512, help="states of one direction")
    parser.add_argument("--steps", type=int, default=7, help="measured steps of each model")
    parser.add_argument("--flair", action="store_true", help="measure flair's models, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    models = MODELS | ({"flair": FlairModel} if arguments.flair else {})
    torch.manual_seed(0)
    seconds = seconds_per_step([build(arguments.hidden) for build in models.values()], arguments.steps)
    for name, own in zip(models, seconds, strict=True):
        print(f"{name:12} {ROWS * LENGTH / own:8,.0f} characters/s")


if __name__ == "__main__":
    main()
