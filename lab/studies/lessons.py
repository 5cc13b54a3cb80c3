"""Small models for studies, what they learn from, and how long: a few hundred steps on a CPU."""

from collections.abc import Callable
from functools import cache
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.training.optimizers.schedules import build_schedule
from tercet.training.recipe import ScheduleRecipe

from .study import Curve

SIZES: dict[str, Any] = {
    "vocab_size": 16,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "position_embedding_type": "learned",
    "type_vocab_size": 0,
    "initializer_range": 0.1,
}
"""Of small models, unless a study says otherwise."""

Draw = Callable[[torch.Generator], dict[str, Any]]
"""Draws a batch, with its labels."""

TEXT_SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "position_embedding_type": "rotary",
}
"""Of those that read characters."""

TEXT_RATE = 0.01
"""Their learning rate at its peak: of 0.003 and 0.01 the better one after 200 steps."""

NUM_JUDGED = 2
"""Batches on which a model is judged."""

LINE = ScheduleRecipe(kind="linear", warmup_ratio=0.1)
"""A learning rate that warms up and falls in straight lines."""


def encoder(**fields: Any) -> TercetEncoderForMaskedLM:
    """Build a small encoder that names a label for each token."""
    return TercetEncoderForMaskedLM(TercetEncoderConfig(**SIZES | fields))


def decoder(**fields: Any) -> TercetDecoderForCausalLM:
    """Build a small decoder."""
    return TercetDecoderForCausalLM(TercetDecoderConfig(**SIZES | fields))


def seq2seq(**fields: Any) -> TercetSeq2SeqForConditionalGeneration:
    """Build a small sequence-to-sequence model."""
    return TercetSeq2SeqForConditionalGeneration(TercetSeq2SeqConfig(**SIZES | fields))


def learn(
    model: nn.Module,
    draw: Draw,
    score: Callable[[nn.Module, Draw, int], float],
    *,
    steps: int,
    seed: int,
    rate: float = 3e-3,
    points: int = 5,
    schedule: ScheduleRecipe = LINE,
) -> Curve:
    """Train with AdamW on new batches, and score the model at the beginning and `points` times after.

    A model is scored on batches of another seed.
    """
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    falling = build_schedule(optimizer, schedule, steps=steps, width=1)
    generator = torch.Generator().manual_seed(seed)
    curve, every = [(0, score(model.eval(), draw, seed))], max(1, steps // points)
    for step in range(1, steps + 1):
        loss = model.train()(**draw(generator)).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        falling.step()
        if step % every == 0:
            curve.append((step, score(model.eval(), draw, seed)))
    return curve


@torch.no_grad()
def accuracy(model: nn.Module, draw: Draw, seed: int) -> float:
    """Return the share of new labels that are the most probable answer."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    shares = []
    for _ in range(NUM_JUDGED):
        batch = draw(generator)
        logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
        shares.append((logits.argmax(-1) == batch["labels"])[batch["labels"] >= 0].float().mean())
    return torch.stack(shares).mean().item()


def strings(length: tuple[int, int], size: int = 32) -> Draw:
    """Make what draws strings of a length between two bounds, with an end, to be copied."""

    def draw(generator: torch.Generator) -> dict[str, Tensor]:
        number = int(torch.randint(length[0], length[1] + 1, (), generator=generator))
        ids = torch.randint(3, 16, (size, number), generator=generator)
        ended = F.pad(ids, (0, 1), value=1)
        return {"input_ids": ended, "labels": ended}

    return draw


@cache
def documentation() -> tuple[Tensor, Tensor]:
    """Return the characters of Python's language reference, which each installation has, in two parts.

    Every tenth paragraph is held out; one that stands in several places is read once.
    """
    read = dict.fromkeys("\n\n".join(topics[name] for name in sorted(topics)).split("\n\n"))
    parts = [[], []]
    for number, paragraph in enumerate(read):
        parts[number % 10 == 0].append(paragraph)
    learned, held_out = (torch.tensor(list("\n\n".join(part).encode("ascii", "replace"))) for part in parts)
    return learned, held_out


def passages(characters: Tensor, length: int = 32, size: int = 16) -> Draw:
    """Make what draws passages of a text, whose labels are themselves."""

    def draw(generator: torch.Generator) -> dict[str, Tensor]:
        starts = torch.randint(len(characters) - length, (size, 1), generator=generator)
        ids = characters[starts + torch.arange(length)]
        return {"input_ids": ids, "labels": ids}

    return draw


@torch.no_grad()
def loss_on_text(model: nn.Module, *_: Any) -> float:
    """Return the loss of the text that is held out, in nats for each character: of the same 64 passages."""
    draw = passages(documentation()[1], size=64)
    return model(**draw(torch.Generator().manual_seed(0))).loss.item()


def slope(points: Curve) -> float:
    """Return the slope of the straight line through points, by least squares.

    >>> round(slope([(0, 1), (1, 3), (2, 5)]), 6)
    2.0
    """
    x, y = (torch.tensor(each, dtype=torch.float64) for each in zip(*points, strict=True))
    x, y = x - x.mean(), y - y.mean()
    return ((x @ y) / (x @ x)).item()
