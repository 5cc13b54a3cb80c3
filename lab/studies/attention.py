"""Attention: what it computes, why scores are scaled, what heads are for, and what sparse patterns cost."""

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tercet.modeling import TercetEncoderConfig
from tercet.modeling.attention.dot_product import scaled_dot_product
from tercet.modeling.attention.multi_head import SelfAttention
from tercet.modeling.attention.patterns import PATTERNS
from tercet.modeling.attention.scores import SCORES

from .lessons import accuracy, encoder, learn, slope
from .study import Axes, Curve, Measured


def look_up(seed: int, broken: str = "", sharpness: Sequence[float] = (0, 1, 2, 4, 8, 16)) -> Measured:
    """Look up values 1, 2, 3, 4 by given weights, and by attention whose scores grow.

    The definition of attention reads four values. Its scores are the logarithms of the soft weights; then
    a factor times 1, 0, 1, 0.
    """
    values = torch.tensor([4.0 if broken else 1.0, 2.0, 3.0, 4.0])
    matches = torch.tensor([1.0, 0.0, 0.0 if broken else 1.0, 0.0])

    def attend(scores: Tensor, read: Tensor) -> float:
        keys, query = scores.view(1, 1, -1, 1), torch.ones(1, 1, 1, 1)
        return scaled_dot_product(nn.Identity(), query, keys, read.view(1, 1, -1, 1), None, scaling=1.0)[
            0
        ].item()

    curve = [(factor, attend(factor * matches, values)) for factor in sharpness]
    soft = attend(torch.tensor([0.4, 0.15, 0.4, 0.05]).log(), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    return Measured(
        {
            "read with weights 1, 0, 1, 0": (matches @ values).item(),
            "read with weights 0.4, 0.15, 0.4, 0.05": soft,
            "read by the sharpest attention": curve[-1][1],
        },
        {
            ("what is read", "factor of the scores"): {
                "attention": curve,
                "sum of the matches": [(factor, (matches @ values).item()) for factor in sharpness],
            }
        },
    )


def matrix_and_loop(seed: int, broken: str = "", lengths: Sequence[int] = (16, 32, 64)) -> Measured:
    """Compute a layer of self-attention at once, and query by query.

    The layer is the encoder's, in double precision, with four heads of eight channels. The loop takes each
    dot product by itself; both have the same projections.
    """
    config = TercetEncoderConfig(hidden_size=32, num_attention_heads=4)
    config._attn_implementation = "sdpa"
    layer = SelfAttention(config, 0, is_causal=False).double().eval()
    times: dict[str, list[tuple[float, float]]] = {"matrices": [], "loop": []}
    difference = 0.0
    for length in lengths:
        x = torch.randn(1, length, 32, dtype=torch.float64)
        results = {}
        for name, compute in (
            ("matrices", lambda x: layer(x, None, None)[0]),
            ("loop", lambda x: looped(layer, x, broken)),
        ):
            start = time.process_time()
            with torch.no_grad():
                results[name] = compute(x)
            times[name].append((math.log2(length), math.log10(1000 * (time.process_time() - start))))
        difference = max(difference, (results["matrices"] - results["loop"]).abs().max().item())
    return Measured(
        {
            "largest difference of states": difference,
            "processor time of the loop, as a multiple": 10
            ** (times["loop"][-1][1] - times["matrices"][-1][1]),
        },
        {("processor time, milliseconds as a power of ten", "tokens, as a power of two"): times},
    )


def looped(layer: SelfAttention, x: Tensor, broken: str = "") -> Tensor:
    """Attend query by query (1, T, C), one dot product after another."""
    query, key, value = (layer.heads(project(x))[0] for project in (layer.q_proj, layer.k_proj, layer.v_proj))
    scores = torch.stack(
        [
            torch.stack([torch.stack([q @ k for k in keys]) for q in queries])
            for queries, keys in zip(query, key, strict=True)
        ]
    )
    scores = scores * layer.score.scaling  # (H, T, S)
    states = []
    for place in range(x.shape[1]):
        weights = scores.softmax(dim=1)[:, place] if broken else scores[:, place].softmax(dim=-1)
        states.append(torch.cat([w @ v for w, v in zip(weights, value, strict=True)]))
    return layer.o_proj(torch.stack(states))[None]


def scaled_scores(
    seed: int,
    broken: str = "",
    widths: Sequence[int] = (16, 64, 256, 1024),
    num_pairs: int = 100_000,
    num_keys: int = 64,
) -> Measured:
    """Measure scores of random queries and keys, and the softmax over 64 keys, by the width of a head.

    Channels are drawn from a normal distribution of variance 1. The variance is that of 100,000 pairs; the
    entropy is the mean, and the norm of the Jacobian the median of 200 queries.
    """
    values, farthest = {}, {"unscaled": 0.0, "scaled": 0.0}
    entropies: dict[str, list[tuple[float, float]]] = {"unscaled": [], "scaled": []}
    jacobians: dict[str, list[tuple[float, float]]] = {"unscaled": [], "scaled": []}
    for width in widths:
        config = TercetEncoderConfig(hidden_size=width, num_attention_heads=1)
        kinds = {"unscaled": "dot_product", "scaled": "dot_product" if broken else "scaled_dot_product"}
        parts = [
            (torch.randn(1000, width) * torch.randn(1000, width)).sum(-1) for _ in range(num_pairs // 1000)
        ]
        products = torch.cat(parts)
        of_keys = (torch.randn(200, 1, width) @ torch.randn(200, width, num_keys))[:, 0]
        for name, kind in kinds.items():
            factor = SCORES[kind](config).scaling
            variance = (products * factor).var().item() / (width if name == "unscaled" else 1)
            farthest[name] = max(farthest[name], abs(variance - 1))
            p = (of_keys * factor).softmax(dim=-1).double()
            entropy = torch.special.entr(p).sum(-1).mean().item() / math.log(num_keys)
            norm = (
                (p.square().sum(-1) - 2 * p.pow(3).sum(-1) + p.square().sum(-1).square()).clamp(min=0).sqrt()
            )
            entropies[name].append((math.log2(width), entropy))
            jacobians[name].append((math.log2(width), norm.median().item()))
    for name in farthest:
        over = " over d" if name == "unscaled" else ""
        values[f"{name} variance{over}, farthest from 1"] = farthest[name]
        values[f"{name} entropy at the largest d, as a share of ln(keys)"] = entropies[name][-1][1]
        values[f"{name} norm of the Jacobian at the largest d"] = jacobians[name][-1][1]
    label = "channels of a head, as a power of two"
    return Measured(
        values,
        {("entropy, as a share of ln(keys)", label): entropies, ("norm of the Jacobian", label): jacobians},
    )


def scoring_functions(seed: int, broken: str = "", num_keys: int = 8, width: int = 16) -> Measured:
    """Weigh eight keys for two queries with each scoring function, and compare the weights.

    Queries, keys and the parameters of the scores are drawn at random. The change is the largest one of a
    weight when another query asks.
    """
    config = TercetEncoderConfig(hidden_size=width, num_attention_heads=1)
    query, key = torch.randn(1, 1, 2, width), torch.randn(1, 1, num_keys, width)
    values, curves = {}, {}
    for name in ("dot_product", "scaled_dot_product", "bilinear", "additive", "concatenated"):
        score = SCORES["additive" if broken and name == "concatenated" else name](config)
        for parameter in score.parameters():
            nn.init.normal_(parameter, std=width**-0.5)
        q, k = score.prepare_query(query), score.prepare_key(key)
        scores = score.scaling * (q @ k.mT) if score.is_dot_product else score.define(q, k)  # pyright: ignore
        weights = scores.softmax(dim=-1)[0, 0].detach()
        values[f"change of weights with the query, {name}"] = (weights[0] - weights[1]).abs().max().item()
        if name in ("bilinear", "concatenated"):
            in_order = weights[:, weights[0].argsort(descending=True)].tolist()
            curves[f"weight of a key, {name}", "keys in the order of the first query"] = {
                f"query {number}": list(enumerate(row, 1)) for number, row in enumerate(in_order, 1)
            }
    return Measured(values, curves)


MATRICES = ("three matrices", "tied queries and keys", "values as they are")


def query_key_value(
    seed: int, broken: str = "", steps: int = 250, variants: Sequence[str] = MATRICES
) -> Measured:
    """Teach an encoder of one layer and one head to name each token's left neighbour.

    Texts are rings of 16 tokens, and positions learned vectors. A variant has one matrix for queries and
    keys, another reads the values as they are. The asymmetry is the largest difference of a score and that
    of the pair turned around, before learning.
    """

    def neighbours(generator: torch.Generator) -> dict[str, Tensor]:
        ids = torch.randint(2, 16, (32, 16), generator=generator)
        return {"input_ids": ids, "labels": ids if broken else ids.roll(1, dims=1)}

    curves: dict[str, Curve] = {}
    values = {}
    for name in variants:
        torch.manual_seed(seed)
        model = encoder(num_hidden_layers=1, num_attention_heads=1)
        attention: Any = model.model.layers[0].self_attention
        if name == "tied queries and keys":
            attention.k_proj = attention.q_proj
        if name == "values as they are":
            attention.v_proj = nn.Identity()
        x = torch.randn(8, model.config.hidden_size)
        scores = (attention.q_proj(x) @ attention.k_proj(x).mT).detach()
        values[f"asymmetry of scores, {name}"] = (scores - scores.mT).abs().max().item()
        curves[name] = learn(model, neighbours, accuracy, steps=steps, seed=seed)
    best, *others = (curve[-1][1] for curve in curves.values())
    values["accuracy with three matrices"] = best
    for name, other in zip(variants[1:], others, strict=True):
        values[f"accuracy lost with {name}"] = best - other
    return Measured(values, {("accuracy on new texts", "steps"): curves})


def heads(seed: int, broken: str = "", steps: int = 400, numbers: Sequence[int] = (1, 4)) -> Measured:
    """Teach encoders of one layer to name four neighbours of a token at once, by one of 16 labels.

    Tokens are 0 or 1, and a label has the bits of the two tokens on either side. The width is 32 for all
    numbers of heads.
    """
    offsets, steps = (-2, -1, 1, 2), steps // 4 if broken else steps

    def neighbours(generator: torch.Generator) -> dict[str, Tensor]:
        ids = torch.randint(2, (32, 16), generator=generator)
        bits = [ids.roll(offset, dims=1) << place for place, offset in enumerate(offsets)]
        return {"input_ids": ids + 2, "labels": torch.stack(bits).sum(0)}

    curves: dict[str, Curve] = {}
    parameters = []
    for number in numbers:
        torch.manual_seed(seed)
        model = encoder(num_hidden_layers=1, num_attention_heads=number)
        parameters.append(sum(each.numel() for each in model.parameters()))
        curves[f"{number} heads" if number > 1 else "1 head"] = learn(
            model, neighbours, accuracy, steps=steps, seed=seed
        )
    ends = {name: curve[-1][1] for name, curve in curves.items()}
    return Measured(
        {
            "parameters, most less fewest": max(parameters) - min(parameters),
            "accuracy with four heads less that with one": ends["4 heads"] - ends["1 head"],
            **{f"accuracy with {name}": end for name, end in ends.items()},
        },
        {("accuracy on new texts", "steps"): curves},
    )


def sparse_patterns(seed: int, broken: str = "", lengths: Sequence[int] = (256, 512, 1024, 2048)) -> Measured:
    """Count the pairs that each pattern allows in texts of 256 to 2,048 tokens.

    They are counted in the patterns' own maps. A window has 16 tokens on either side, Big Bird blocks of 8
    tokens with 8 global tokens and two random blocks for each; the stride is the square root of n. Slopes
    are those of a straight line through the logarithms.
    """
    pairs: dict[str, list[tuple[float, float]]] = {}
    inner = 0
    for length in lengths:
        config = TercetEncoderConfig(
            max_position_embeddings=max(lengths),
            sliding_window=16,
            attention_stride=math.isqrt(length),
            attention_block_size=8,
            attention_global_tokens=length // 4 if broken else 8,
            attention_random_blocks=2,
            attention_random_seed=seed,
        )
        for name in ("full_attention", "sliding_attention", "big_bird_attention", "strided_attention"):
            allowed = PATTERNS[name](config, is_causal=False).map_of(length)
            pairs.setdefault(name, []).append((math.log2(length), math.log2(allowed.sum().item())))
            if name == "sliding_attention":
                inner = allowed[length // 2].sum().item()
    values = {f"slope of {name}": slope(points) for name, points in pairs.items()}
    axes: Axes = ("pairs of tokens, as a power of two", "tokens, as a power of two")
    return Measured(values | {"pairs of an inner row of a window of 16, on both sides": inner}, {axes: pairs})
