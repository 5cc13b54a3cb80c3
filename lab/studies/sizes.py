"""Sizes and speeds: what is said about smaller and larger models, in parameters, loss and time."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from transformers import AutoConfig

from tercet.configs.recipe import load_preset
from tercet.modeling import TercetEncoderForMaskedLM, TercetEncoderModel

from .lessons import TEXT_RATE, TEXT_SIZES, decoder, documentation, learn, loss_on_text, passages, slope
from .study import Curve, Measured

PUBLISHED_SECONDS = (668, 410)
"""Of BERT and of DistilBERT (Sanh et al., 2019, table 3)."""


def parameters(preset: str) -> int:
    """Count the parameters of an encoder without a head, and without making them."""
    with torch.device("meta"):
        return sum(each.numel() for each in TercetEncoderModel(configuration(preset)).parameters())


def configuration(preset: str, **fields: Any) -> Any:
    """Read a preset's configuration, with some fields changed."""
    return AutoConfig.for_model(**load_preset(preset) | fields)


def seconds(layers: int, rounds: int = 3) -> float:
    """Measure the processor time of a narrower BERT on 4 texts of 64 tokens: the fastest of some rounds."""
    sizes = {"vocab_size": 8000, "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4}
    model = TercetEncoderForMaskedLM(configuration("bert-base", **sizes, num_hidden_layers=layers)).eval()
    ids, times = torch.randint(8000, (4, 64)), []
    for _ in range(rounds):
        start = time.process_time()
        with torch.no_grad():
            model(ids)
        times.append(time.process_time() - start)
    return min(times)


def distilled_speed(seed: int, broken: str = "", depths: Sequence[int] = (4, 8, 12)) -> Measured:
    """Count the parameters of BERT and DistilBERT without heads, and measure narrower ones with theirs.

    The measured models have 256 channels and 8,000 tokens in their vocabulary, and predict all tokens of
    four texts of 64.
    """
    before, after = PUBLISHED_SECONDS
    saved = 0.6 if broken else 1 - after / before
    shares = [(depth, seconds(depth // 2) / seconds(depth)) for depth in depths]
    return Measured(
        {
            "parameters less, as a share": 1 - parameters("distilbert-base") / parameters("bert-base"),
            "time less, by the published seconds": saved,
            "throughput more, by the published seconds": 1 / (1 - saved) - 1,
            "time less, measured on blocks and head": 1 - shares[-1][1],
        },
        {("time with half of the layers, as a share", "layers of the whole"): {"measured": shares}},
    )


def scaling(
    seed: int,
    broken: str = "",
    widths: Sequence[int] = (8, 16, 32, 64),
    budgets: Sequence[int] = (25, 50, 100, 200),
) -> Measured:
    """Teach decoders of four sizes the characters of Python's reference, for four budgets of text.

    Decoders have two layers of 8 to 64 channels. Each of the 16 runs has its own schedule; a step has 16
    passages of 32 characters. Parameters are counted without embeddings and head, and losses are those of
    held-out text. An exponent is the slope of log loss over log parameters (or text), where the other is
    the largest; above a floor it is that of E + A N^-a + B D^-b, fitted to all runs.
    """
    learned = documentation()[0]
    if broken:
        learned = learned[torch.randperm(len(learned), generator=torch.Generator().manual_seed(seed))]
    losses: dict[tuple[int, int], float] = {}
    for width in widths:
        for steps in budgets:
            torch.manual_seed(seed)
            model = decoder(**TEXT_SIZES | {"hidden_size": width, "intermediate_size": 2 * width})
            size = sum(each.numel() for each in model.get_submodule("model.layers").parameters())
            curve = learn(
                model, passages(learned), loss_on_text, steps=steps, seed=seed, rate=TEXT_RATE, points=1
            )
            losses[size, 512 * steps] = curve[-1][1]
    by_size, by_tokens = (
        [
            (math.log10(pair[axis]), math.log10(loss))
            for pair, loss in losses.items()
            if pair[1 - axis] == max(each[1 - axis] for each in losses)
        ]
        for axis in (0, 1)
    )
    (size_slope, size_fit), (token_slope, token_fit) = map(line_through, (by_size, by_tokens))
    of_size, of_tokens, floor = fitted_exponents(losses)
    return Measured(
        {
            "exponent of parameters (Kaplan et al.: 0.076)": -size_slope,
            "exponent of text (Kaplan et al.: 0.095)": -token_slope,
            "variance that a straight line explains, parameters": size_fit,
            "variance that a straight line explains, text": token_fit,
            "exponent of parameters above a floor (Hoffmann et al.: 0.34)": of_size,
            "exponent of text above a floor (Hoffmann et al.: 0.28)": of_tokens,
            "fitted floor of the loss, in nats for a character": floor,
        },
        {
            ("loss in nats for a character, as a power of ten", "parameters, as a power of ten"): {
                "measured": by_size
            },
            ("loss in nats for a character, as a power of ten", "characters read, as a power of ten"): {
                "measured": by_tokens
            },
        },
    )


def line_through(points: Curve) -> tuple[float, float]:
    """Fit a straight line, and return its slope and the share of the variance of y that it explains.

    >>> [round(each, 6) for each in line_through([(0, 1), (1, 3), (2, 5)])]
    [2.0, 1.0]
    """
    x, y = np.array(points, dtype=float).T
    return slope(points), float(np.corrcoef(x, y)[0, 1] ** 2)


def fitted_exponents(losses: Mapping[tuple[int, int], float]) -> tuple[float, float, float]:
    """Fit E + A N^-a + B D^-b to losses by N and D (Hoffmann et al., 2022, section 3.3): a, b and E.

    Of each pair of exponents between 0.05 and 2, the other three numbers are those of the least squares of
    relative errors, and none of them is negative.

    >>> known = {(n, d): 1 + 3 * n**-0.4 + 5 * d**-0.3 for n in (10, 100, 1000) for d in (20, 400, 3000)}
    >>> [round(each, 2) for each in fitted_exponents(known)]
    [0.4, 0.3, 1.0]
    """
    sizes, tokens = np.array([*losses], dtype=float).T
    wanted = np.array([*losses.values()])

    def fit(a: float, b: float) -> tuple[float, float, float, float]:
        terms = np.stack([np.ones_like(sizes), sizes**-a, tokens**-b], axis=1) / wanted[:, None]
        numbers, error = nnls(terms, np.ones_like(wanted))
        return float(error), a, b, float(numbers[0])

    tried = [step / 20 for step in range(1, 41)]
    return min(fit(a, b) for a in tried for b in tried)[1:]
