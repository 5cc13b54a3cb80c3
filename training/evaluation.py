"""Measuring a model on held-out examples: sums over all batches and processes, divided once.

Perplexity is the exponential of a term's mean loss. Bits per byte divides the term's whole loss by the bytes
of text that its targets cover, and so compares models whatever their vocabularies.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn

from ..data.steps.batches import Step, StepDataset, one_pass
from ..data.steps.examples import ExampleSource, LeftOut
from ..data.steps.objective import Batch, Objective

SUMS = ("targets", "loss", "accuracy")
"""What is added up for every term."""

TARGETS = "/targets"
"""How the name of a score ends that counts a term's targets."""

LARGEST_LOSS = 700.0
"""A larger mean loss has a perplexity that no float holds; it is given as infinite."""


@dataclass(frozen=True)
class HeldOut:
    """What a run is measured on."""

    source: ExampleSource | None = None
    """Its epoch 0 is scored by the objective, the same way every time."""
    num_bytes: Mapping[str, int] = field(default_factory=dict)
    """UTF-8 bytes that a term's targets cover, by the term's name, for bits per byte."""
    measure: Callable[[nn.Module], dict[str, float]] = lambda model: {}
    """Further scores of the bare model, such as BLEU; called on every process, the main one's are kept."""
    tell: Callable[[], None] = lambda: None
    """Says on the screen how good the scores of `measure` can get on this text at most."""
    criterion: Callable[[Mapping[str, float]], float] = lambda scores: scores.get("loss", math.inf)
    """What the best checkpoint is lowest in."""
    left_out: Sequence[LeftOut] = ()
    """What of the text is not in `source`, so that no score is of it."""
    about: Mapping[str, float] = field(default_factory=dict)
    """What is known of the text, whatever the model: the share of its tokens that are unknown, ..."""
    parts: Mapping[str, "HeldOut"] = field(default_factory=dict)
    """Texts that it consists of, which are scored by themselves, too; their names stand before the scores."""


def evaluate_held_out(
    model: nn.Module,
    objective: Objective,
    held_out: HeldOut,
    steps: StepDataset | None,
    accelerator: Accelerator,
    *,
    parts_steps: Mapping[str, StepDataset] | None = None,
) -> dict[str, float]:
    """Score a model on held-out examples, cut into `steps` if there are any, and by `held_out.measure`.

    Where some of the text is in no example, `left_out/pieces` and `left_out/tokens` say how much. The parts
    of the examples, cut into `parts_steps`, are scored by themselves: `forum/clm/loss`.

    Every process calls this, and all receive the main one's scores: two that judge by other ones would not
    end in the same step.
    """
    scores = {}
    if steps is not None:
        batches = micro_batches(one_pass(steps), accelerator.device)
        scores = evaluate(model, objective, batches, accelerator, num_bytes=held_out.num_bytes)
    if held_out.left_out:
        for name in ("pieces", "tokens"):
            scores[f"left_out/{name}"] = sum(getattr(part, name) for part in held_out.left_out)
    bare = accelerator.unwrap_model(model)
    with undisturbed_randomness(accelerator.device), evaluation_mode(bare):
        scores |= held_out.measure(bare)
    for name, part in held_out.parts.items():
        own = evaluate_held_out(model, objective, part, (parts_steps or {}).get(name), accelerator)
        scores |= {f"{name}/{key}": value for key, value in own.items()}
    return broadcast_object_list([scores])[0]


def evaluate(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Batch],
    accelerator: Accelerator,
    *,
    num_bytes: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """Score a model; its mode and the randomness of training are left as they were.

    Args:
        batches: This process's share, on the accelerator's device; it may be empty.
        num_bytes: For terms that model language, the UTF-8 bytes of text that all their targets cover.

    Returns:
        `loss`, the scored terms' weighted sum, and for each of them `term/loss` in nats per target,
        `term/perplexity`, `term/accuracy`, `term/targets`, and `term/bits_per_byte` where bytes are known.
        A term without targets is undefined, and so is the sum: not a number.
    """
    # Processes exchange nothing before the end, since they may hold different numbers of batches.
    bare = accelerator.unwrap_model(model)
    sums = {
        name: torch.zeros(len(SUMS), dtype=torch.float64, device=accelerator.device)
        for name in objective.scored
    }
    with undisturbed_randomness(accelerator.device), evaluation_mode(bare), torch.no_grad():
        for batch in batches:
            targets = objective.targets(batch)
            for name, scores in objective.scores(bare, batch).items():
                sums[name] += torch.stack(
                    [targets[name].double(), *(scores[key].double() for key in SUMS[1:])]
                )
    totals = cast(Tensor, accelerator.reduce(torch.stack(list(sums.values())))).tolist()
    return _divide(dict(zip(sums, totals, strict=True)), objective.weights, num_bytes or {})


def micro_batches(steps: Iterable[Step], device: torch.device) -> Iterator[Batch]:
    """List the micro-batches of this process's shares, for `evaluate`."""
    for step in steps:
        yield from step.micro_batches(device)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout and the like off; every module returns to the mode that it had."""
    modes, model_was_training = [(module, module.training) for module in model.modules()], model.training
    model.eval()
    try:
        yield
    finally:
        model.train(model_was_training)  # for what a model does then, besides
        for module, mode in modes:
            module.training = mode


def undisturbed_randomness(device: torch.device):
    """Restore the state of torch's generators in the end, whatever is drawn inside."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _divide(
    sums: Mapping[str, list[float]], weights: Mapping[str, float], num_bytes: Mapping[str, int]
) -> dict[str, float]:
    results = {"loss": 0.0}
    for name, (targets, loss, hits) in sums.items():
        mean = ratio(loss, targets)
        if weights.get(name):
            results["loss"] += weights[name] * mean
        results[f"{name}/loss"] = mean
        results[f"{name}/perplexity"] = math.inf if mean >= LARGEST_LOSS else math.exp(mean)
        results[f"{name}/accuracy"] = ratio(hits, targets)
        results[f"{name}/targets"] = targets
        if name in num_bytes:
            results[f"{name}/bits_per_byte"] = ratio(
                loss if targets else math.nan, num_bytes[name] * math.log(2)
            )
    return results


def ratio(part: float, whole: float) -> float:
    """Divide; what has no targets has no score: not a number, which is better than no other score."""
    return part / whole if whole else math.nan


def without_targets(scores: Mapping[str, float]) -> list[str]:
    """Name the terms that an evaluation found no target of, so that their scores are undefined."""
    return [
        name.removesuffix(TARGETS) for name, value in scores.items() if name.endswith(TARGETS) and not value
    ]
