"""Training: smoothed labels, what they do to a model, and how the learning rate falls."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from tercet.modeling.heads.losses import cross_entropy_sum
from tercet.training.metrics.calibration import calibration_error
from tercet.training.optimizers.schedules import CURVES
from tercet.training.recipe import ScheduleRecipe

from .lessons import TEXT_RATE, TEXT_SIZES, decoder, documentation, learn, loss_on_text, passages, slope
from .study import Curve, Measured


def label_smoothing(seed: int, broken: str = "", words: int = 6, smoothing: float = 0.1) -> Measured:
    """Read the target off the gradient of the house's loss of random logits.

    The gradient with respect to logits is the predicted distribution less the target, for any target that
    is a distribution. The true word is the second of six.
    """
    logits, label = torch.randn(1, words, dtype=torch.float64, requires_grad=True), torch.tensor([1])
    noted = torch.full((1, words), 0.2, dtype=torch.float64)
    noted[0, 1] = 0.9

    def loss(logits: Any, smoothing: float = smoothing) -> Any:
        if broken and smoothing:
            return -(noted * logits.log_softmax(-1)).sum()
        return cross_entropy_sum(logits, label, smoothing)

    (gradient,) = torch.autograd.grad(loss(logits), logits)
    # A target of sum s has the gradient s p - target: what is read is right for s = 1 alone.
    target = noted[0] if broken else (logits.softmax(-1) - gradient).detach()[0]
    certain = torch.zeros(1, words, dtype=torch.float64)
    certain[0, 1] = 10.0
    shares = [share / 20 for share in range(6, 20)] + [0.9167, 0.99, 0.9999]

    def curve(smoothing: float) -> list[tuple[float, float]]:
        rows = [
            [share if word == 1 else (1 - share) / (words - 1) for word in range(words)]
            for share in sorted(shares)
        ]
        return [
            (row[1], loss(torch.tensor([row], dtype=torch.float64).log(), smoothing).item()) for row in rows
        ]

    plain = (cross_entropy_sum(logits, label) - F.cross_entropy(logits, label)).abs().item()
    return Measured(
        {
            "sum of the target": target.sum().item(),
            "target of the true word": target[1].item(),
            "target of each other word": target[[0, *range(2, words)]].mean().item(),
            "difference from cross-entropy without smoothing": plain,
            "smoothed loss of a model that is certain and right, in nats": loss(certain).item(),
        },
        {
            ("loss in nats", "probability of the true word"): {
                "smoothed": curve(smoothing),
                "not smoothed": curve(0.0),
            }
        },
    )


def noam(seed: int, broken: str = "", warmup: int = 400, width: int = 512) -> Measured:
    """Read the rate off the house's schedule, with a warm-up of 400 steps, for 40 times as many.

    The slope is that of a straight line through the logarithms of step and rate from the peak on.
    """
    recipe = ScheduleRecipe(kind="noam", warmup_steps=warmup)
    paper = CURVES["noam"](recipe, warmup, 40 * warmup, width)
    peak = (width * warmup) ** -0.5

    def exponential(n: int) -> float:
        return peak * min(n / warmup, 0.5 ** ((n - warmup) / (3 * warmup)))

    rate: Callable[[int], float] = exponential if broken else paper
    steps = range(warmup, 40 * warmup, warmup)
    half, quarter = (
        next(n for n in range(warmup, 40 * warmup) if rate(n) <= share * peak) for share in (0.5, 0.25)
    )
    shown = [1, *range(warmup // 4, 20 * warmup + 1, warmup // 4)]
    return Measured(
        {
            "slope of log rate over log step, after the peak": slope(
                [(math.log(n), math.log(rate(n))) for n in steps]
            ),
            "rate at 4 w over that at w": rate(4 * warmup) / rate(warmup),
            "peak over (d w)^-0.5": max(map(rate, range(1, 4 * warmup))) / peak,
            "second halving over the first, in steps": (quarter - half) / (half - warmup),
        },
        {
            ("learning rate over its peak", "steps, in warm-ups"): {
                name: [(n / warmup, each(n) / peak) for n in shown]
                for name, each in (("as published", paper), ("exponential", exponential))
            }
        },
    )


def noam_and_cosine(seed: int, broken: str = "", steps: int = 200, warmup: int = 20) -> Measured:
    """Teach decoders of 90,000 parameters the characters of Python's reference by three schedules.

    All have the same 200 steps of 16 passages of 32 characters, the same warm-up of 20 steps and the same
    peak of 0.01. The loss is that of paragraphs that are held out. A trial with a peak of 0.003, another
    seed and longer passages had the opposite order, the constant rate first. The switch was chosen after
    the run: a first one, schedules planned for four times the steps, had left every verdict as it was.
    """
    kinds = {"noam": "inverse_square_root", "cosine": "cosine", "constant": "constant"}
    curves: dict[str, Curve] = {}
    for name, kind in kinds.items():
        torch.manual_seed(seed)
        curves[name] = learn(
            decoder(**TEXT_SIZES),
            passages(documentation()[0]),
            loss_on_text,
            steps=steps,
            seed=seed,
            rate=TEXT_RATE,
            points=4,
            schedule=ScheduleRecipe(kind=kind, warmup_steps=steps // 2 if broken else warmup),  # pyright: ignore[reportArgumentType]
        )[1:]
    ends = {name: curve[-1][1] for name, curve in curves.items()}
    halves = {name: curve[len(curve) // 2 - 1][1] for name, curve in curves.items()}
    return Measured(
        {
            "loss by noam less that by cosine, at the end": ends["noam"] - ends["cosine"],
            "loss by constant rate less that by noam, at the end": ends["constant"] - ends["noam"],
            "loss by noam less that by cosine, halfway": halves["noam"] - halves["cosine"],
        },
        {("loss of held-out text, in nats for a character", "steps"): curves},
    )


def smoothed_calibration(
    seed: int, broken: str = "", steps: int = 160, amounts: Sequence[int] = (3_000, 300_000)
) -> Measured:
    """Teach decoders of 90,000 parameters the characters of a text, with smoothing of 0.1 and without.

    The text is Python's reference: a little, 3,000 characters that are read 27 times, or much, 300,000.
    Models are judged on paragraphs that are held out, without smoothing: calibration is the expected error
    of Guo et al., 2017, in 15 bins.
    """
    smoothing = 0.001 if broken else 0.1
    values, curves = {}, {}
    judged = passages(documentation()[1], size=64)(torch.Generator().manual_seed(0))["input_ids"]
    for name, amount in zip(("little", "much"), amounts, strict=True):
        found: dict[float, dict[str, float]] = {}
        for mass in (0.0, smoothing):
            draw = passages(documentation()[0][:amount])
            torch.manual_seed(seed)
            model = decoder(**TEXT_SIZES)
            curve = learn(
                model,
                lambda generator, draw=draw, mass=mass: draw(generator) | {"label_smoothing": mass},
                loss_on_text,
                steps=steps,
                seed=seed,
                rate=TEXT_RATE,
            )
            with torch.no_grad():
                p = model(input_ids=judged).logits[:, :-1].flatten(0, 1).softmax(-1)
            labels = judged[:, 1:].flatten()
            found[mass] = {
                "perplexity": math.exp(curve[-1][1]),
                "accuracy": (p.argmax(-1) == labels).double().mean().item(),
                "calibration error": calibration_error(p.double().numpy(), labels.numpy()),
            }
            of = "smoothed" if mass else "not smoothed"
            curves[f"{name} text, {of}"] = curve[1:]
        plain, smooth = found[0.0], found[smoothing]
        values |= {
            f"perplexity with smoothing over that without, {name} text": smooth["perplexity"]
            / plain["perplexity"],
            f"accuracy gained by smoothing, {name} text": smooth["accuracy"] - plain["accuracy"],
            f"calibration error gained by smoothing, {name} text": smooth["calibration error"]
            - plain["calibration error"],
        }
    return Measured(values, {("loss of held-out text, in nats for a character", "steps"): curves})
