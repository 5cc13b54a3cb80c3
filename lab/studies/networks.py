"""Recurrent networks, convolutions and attention: their costs, their paths, and what they learn."""

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tercet.modeling import (
    TercetEncoderConfig,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
)
from tercet.modeling.attention.multi_head import SelfAttention
from tercet.modeling.recurrent.layers import build_layers

from .lessons import (
    SIZES,
    TEXT_RATE,
    TEXT_SIZES,
    decoder,
    documentation,
    encoder,
    learn,
    loss_on_text,
    passages,
    seq2seq,
    slope,
    strings,
)
from .study import Curve, Measured

KERNEL = 3
"""Width of a convolution."""


def products(compute: Callable[[], Any]) -> float:
    """Count the multiplications of what is computed."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        compute()
    return counter.get_total_flops() / 2


def attention_cost(length: int, width: int, window: int | None = None) -> tuple[float, float]:
    """Count the products of a layer of attention: all, and those of scores and weighted sums alone.

    Of a window, those of pairs outside are left out.
    """
    config = TercetEncoderConfig(hidden_size=width, num_attention_heads=4, sliding_window=window)
    config._attn_implementation = "eager"
    layer, x = SelfAttention(config, 0, is_causal=False).eval(), torch.randn(1, length, width)
    whole = products(lambda: layer(x, None, None))
    core = whole - 4 * length * width**2
    if window is None:
        return whole, core
    inside = layer.pattern.map_of(length).float().mean().item()
    return whole - core + inside * core, inside * core


def recurrent_cost(kind: str, length: int, width: int) -> float:
    """Count the products of a recurrent layer, by its equations."""
    (layer,) = build_layers(kind, width, 1, is_bidirectional=False)
    state = torch.zeros(1, layer.num_parts, width)
    return products(lambda: layer.define(torch.randn(1, length, width), state))


def convolution_cost(length: int, width: int, kernel: int = KERNEL) -> float:
    """Count the products of a convolution over tokens."""
    layer = nn.Conv1d(width, width, kernel, padding="same")
    return products(lambda: layer(torch.randn(1, width, length)))


def layer_cost(seed: int, broken: str = "", sizes: Sequence[int] = (32, 64, 128, 256)) -> Measured:
    """Count multiplications as torch's counter sees them, for lengths and widths of 32 to 256.

    Recurrent layers are counted by their equations, since the counter does not see into torch's kernels.
    Layers cost the same where the line between two counts crosses.
    """
    window = 8 if broken else None
    lines: dict[str, list[tuple[float, float]]] = {
        "attention": [(n, attention_cost(n, 64, window)[0]) for n in sizes],
        "LSTM": [(n, recurrent_cost("lstm", n, 64)) for n in sizes],
        "GRU": [(n, recurrent_cost("gru", n, 64)) for n in sizes],
        "convolution": [(n, convolution_cost(n, 64)) for n in sizes],
    }
    cores = [
        [(math.log2(n), math.log2(max(1, attention_cost(n, 64, window)[1]))) for n in sizes],
        [(math.log2(d), math.log2(max(1, attention_cost(64, d, window)[1]))) for d in sizes],
    ]
    logarithms = {name: [(math.log2(n), math.log2(cost)) for n, cost in line] for name, line in lines.items()}
    by_width = [(math.log2(d), math.log2(recurrent_cost("lstm", 16, d))) for d in sizes]
    by_kernel = [(math.log2(k), math.log2(convolution_cost(64, 64, k))) for k in (1, 3, 5, 9)]
    return Measured(
        {
            "slope of attention's scores and sums over n": slope(cores[0]),
            "slope of attention's scores and sums over d": slope(cores[1]),
            "slope of an LSTM over n": slope(logarithms["LSTM"]),
            "slope of an LSTM over d": slope(by_width),
            "slope of a convolution over its kernel": slope(by_kernel),
            "length at which a layer costs as much as an LSTM, over d": crossing(
                lines["attention"], lines["LSTM"]
            )
            / 64,
            "length at which a layer costs as much as a GRU, over d": crossing(
                lines["attention"], lines["GRU"]
            )
            / 64,
        },
        {("multiplications of a layer, as a power of two", "tokens, as a power of two"): logarithms},
    )


def crossing(quadratic: Curve, linear: Curve) -> float:
    """Find the length at which a n n + b n, through the ends of a curve, is c n; infinite if it never is."""
    (x, y), (z, w) = quadratic[0], quadratic[-1]
    square = (w / z - y / x) / (z - x)
    rest = y / x - square * x
    return (linear[-1][1] / linear[-1][0] - rest) / square if square > 1e-6 else math.inf


def reach(states: Sequence[Tensor], vectors: Tensor, place: int) -> int:
    """Return the first layer whose last state depends on the vector of a place, by its gradient."""
    for number, state in enumerate(states, 1):
        (gradient,) = torch.autograd.grad(state[0, -1].square().sum(), vectors, retain_graph=True)
        if gradient[0, place].abs().max() > 0:
            return number
    return len(states) + 1


def encoder_reach(length: int, layers: int, **fields: Any) -> int:
    """Count the layers after which the last of `length` + 9 tokens depends on the ninth."""
    model = encoder(
        num_hidden_layers=layers,
        position_embedding_type="none",
        initializer_range=0.3,
        max_position_embeddings=512,
        **fields,
    )
    vectors = torch.randn(1, length + 9, model.config.hidden_size, requires_grad=True)
    states = model.model.eval()(inputs_embeds=vectors, output_hidden_states=True).hidden_states
    return reach(states[1:], vectors, 8)


def path_length(seed: int, broken: str = "", distances: Sequence[int] = (8, 16, 32, 64)) -> Measured:
    """Find the first layer at which a token's state has a gradient with respect to another token's vector.

    The tokens are 8 to 64 places apart, and the first of them is not global. A window has 4 tokens on
    either side, Big Bird blocks of 4 tokens with 4 global tokens; a convolution is 3 tokens wide. The steps
    of an LSTM are those between the two tokens.
    """
    sparse = (
        {"attention_global_tokens": 0, "attention_random_blocks": 0}
        if broken
        else {"attention_global_tokens": 4}
    )
    bird = {"attention_block_size": 4, "attention_random_seed": seed} | sparse
    curves: dict[str, list[tuple[float, float]]] = {}
    for distance in distances:
        layers = distance // 2 + 2
        found = {
            "full attention": encoder_reach(distance, 2),
            "windows": encoder_reach(distance, layers, sliding_window=4),
            "Big Bird": encoder_reach(distance, layers, layer_types=["big_bird_attention"] * layers, **bird),
            "convolutions": convolution_reach(distance),
            "LSTM": recurrent_steps(distance),
        }
        for name, number in found.items():
            curves.setdefault(name, []).append((distance, number))
    ends = {name: curve[-1][1] for name, curve in curves.items()}
    n = distances[-1]
    return Measured(
        {
            "layers of full attention at the largest n": ends["full attention"],
            "layers of windows at the largest n, over n / w": ends["windows"] / (n / 4),
            "layers of Big Bird at the largest n": ends["Big Bird"],
            "layers of convolutions at the largest n, over 2 n / (k - 1)": ends["convolutions"]
            / (2 * n / (KERNEL - 1)),
            "steps of an LSTM at the largest n, over n": ends["LSTM"] / n,
        },
        {("layers or steps until a signal arrives", "tokens between"): curves},
    )


def convolution_reach(distance: int) -> int:
    """Count the convolutions after which a token depends on another."""
    vectors = torch.randn(1, distance + 1, 4, requires_grad=True)
    states, x = [], vectors
    for _ in range(distance + 1):
        x = nn.Conv1d(4, 4, KERNEL, padding="same")(x.mT).mT
        states.append(x)
    return reach(states, vectors, 0)


def recurrent_steps(distance: int) -> int:
    """Count the steps of an LSTM from a token to another, by the layer's equations."""
    (layer,) = build_layers("lstm", 4, 1, is_bidirectional=False)
    steps, step = [], layer.step
    layer.step = lambda *given: steps.append(1) or step(*given)
    layer.define(torch.randn(1, distance + 1, 4), torch.zeros(1, 2, 4))
    return len(steps) - 1


def gradient_by_distance(
    seed: int, broken: str = "", distances: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
) -> Measured:
    """Take the gradient of the last state of 80 random vectors with respect to earlier ones.

    Layers are new and 32 wide: an LSTM, a GRU, and an encoder of one layer without positions. The gradient
    is that of the state's product with a random vector.
    """
    vectors, direction = torch.randn(1, 80, 32, requires_grad=True), torch.randn(32)
    outputs = {
        "attention": encoder(num_hidden_layers=1, position_embedding_type="none").model.eval()(
            inputs_embeds=vectors
        )[0]
    }
    for kind in ("lstm", "gru"):
        (layer,) = build_layers(kind, 32, 1, is_bidirectional=False)
        if broken:
            # The gate that keeps the state: the second of an LSTM, the second of a GRU.
            layer.get_parameter("bias_hh_l0").data[32:64] += 5.0
        outputs[kind.upper()] = layer.read(vectors, None)[0]
    curves = {}
    for name, states in outputs.items():
        (gradient,) = torch.autograd.grad((states[0, -1] * direction).sum(), vectors, retain_graph=True)
        norms = gradient[0].double().norm(dim=-1)
        curves[name] = [
            (distance, math.log10(max(norms[-1 - distance].item(), 1e-30))) for distance in distances
        ]
    lost = {name: 10 ** (curve[-1][1] - curve[0][1]) for name, curve in curves.items()}
    return Measured(
        {
            "gradient of an LSTM at distance 64 over that at 1": lost["LSTM"],
            "gradient of a GRU at distance 64 over that at 1": lost["GRU"],
            "gradient of attention at distance 64 over that at 1": lost["attention"],
        },
        {("norm of the gradient, as a power of ten", "distance"): curves},
    )


def translator(kind: str) -> nn.Module:
    """Build a small model that writes what it is to make of a source."""
    sizes = SIZES | {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2}
    if kind.startswith("LSTM"):
        score = "bilinear" if "attention" in kind else "none"
        config = TercetRecurrentSeq2SeqConfig(
            vocab_size=sizes["vocab_size"],
            hidden_size=sizes["hidden_size"],
            num_hidden_layers=sizes["num_hidden_layers"],
            attention_score=score,
        )
        return TercetRecurrentSeq2SeqForConditionalGeneration(config)
    return seq2seq(**sizes | {"position_embedding_type": kind})


MODELS = ("LSTM", "LSTM with attention", "rotary", "alibi", "sinusoidal")


@torch.no_grad()
def written(model: Any, draw: Callable[..., dict[str, Tensor]], seed: int) -> float:
    """Return the share of a string's tokens that a model writes by itself, at their places."""
    batch = draw(torch.Generator().manual_seed(20_000 + seed))
    wanted = batch["labels"]
    made = model.eval().generate(batch["input_ids"], max_new_tokens=wanted.shape[1], do_sample=False)[:, 1:]
    made = F.pad(made, (0, wanted.shape[1] - made.shape[1]), value=-1)
    return (made == wanted)[:, :-1].float().mean().item()


def copying(
    seed: int, broken: str = "", steps: int = 1000, trained: int = 8, models: Sequence[str] = MODELS
) -> Measured:
    """Teach models to copy strings of up to 8 tokens, and let them write longer ones.

    Models have two layers of 48 channels on either side: LSTMs without and with attention, and Transformers
    by their kind of positions. They write greedily, and a token counts if it is right at its place; strings
    have 4, 8, 12, 16 and 32 tokens.
    """
    lengths = [trained // 2, trained, 3 * trained // 2, 2 * trained, 4 * trained]
    curves: dict[str, Curve] = {}
    for kind in models:
        torch.manual_seed(seed)
        model = translator(kind)
        learn(model, strings((1, trained)), lambda *_: 0.0, steps=steps, seed=seed, points=1)
        tested = [min(length, trained) for length in lengths] if broken else lengths
        curves[kind] = [
            (length, written(model, strings((own, own)), seed))
            for length, own in zip(lengths, tested, strict=True)
        ]
    twice = {name: dict(curve)[2 * trained] for name, curve in curves.items()}
    transformers = [name for name in models if not name.startswith("LSTM")]
    return Measured(
        {f"copied tokens at twice the length, {name}": share for name, share in twice.items()}
        | {
            "copied tokens at twice the length, best of the Transformers": max(
                twice[name] for name in transformers
            ),
            "copied tokens at the length of training, worst of the Transformers": min(
                dict(curves[name])[trained] for name in transformers
            ),
        },
        {("share of tokens that are copied", "tokens of a string"): curves},
    )


RATES = {"Transformer": TEXT_RATE, "LSTM": 0.03}


class RecurrentReader(nn.Module):
    """LSTM layers that predict the next character."""

    def __init__(self, width: int, layers: int = 1, has_memory: bool = True):
        super().__init__()
        self.has_memory = has_memory
        self.embed = nn.Embedding(TEXT_SIZES["vocab_size"], width)
        self.layers = build_layers("lstm", width, layers, is_bidirectional=False)
        self.head = nn.Linear(width, TEXT_SIZES["vocab_size"])

    def forward(self, input_ids: Tensor, labels: Tensor) -> SimpleNamespace:
        """Read texts (B, T), and return logits and the mean loss of labels, predicted one token before."""
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer.read(x if self.has_memory else x.view(-1, 1, x.shape[-1]), None)[0].view_as(x)
        logits = self.head(x)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(loss=loss, logits=logits)


def count(model: nn.Module) -> int:
    """Count a model's parameters."""
    return sum(each.numel() for each in model.parameters())


def data_hunger(
    seed: int,
    broken: str = "",
    steps: int = 200,
    amounts: Sequence[int] = (4_000, 40_000, 300_000),
) -> Measured:
    """Teach a decoder and an LSTM of equal parameters the characters of Python's reference, by amounts of it.

    The decoder has two layers of 64 channels; the LSTM has one layer of the width that comes nearest to its
    parameters. Both read 200 times 16 passages of 32 characters, from the first 4,000, 40,000 or 300,000
    characters. Of five measurements on paragraphs that are held out the best one counts, so that neither is
    punished for learning by heart. Rates are the best of three for each (0.01 and 0.03), and one layer the
    better of one and two, by trials with another seed and passages of 64.
    """
    target = count(decoder(**TEXT_SIZES))
    width = min(range(8, 128), key=lambda width: abs(count(RecurrentReader(width)) - target))
    builders: dict[str, Callable[[], nn.Module]] = {
        "Transformer": lambda: decoder(**TEXT_SIZES),
        "LSTM": lambda: RecurrentReader(width, has_memory=not broken),
    }
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in builders}
    for amount in amounts:
        for name, build in builders.items():
            torch.manual_seed(seed)
            model = build()
            draw = passages(documentation()[0][:amount])
            curve = learn(model, draw, loss_on_text, steps=steps, seed=seed, rate=RATES[name], points=5)
            curves[name].append((math.log10(amount), min(loss for _, loss in curve)))
    gaps = [one[1] - other[1] for one, other in zip(*curves.values(), strict=True)]
    return Measured(
        {
            "loss of the Transformer less that of the LSTM, least text": gaps[0],
            "loss of the Transformer less that of the LSTM, most text": gaps[-1],
            "the same with the least text, less that with the most": gaps[0] - gaps[-1],
            "parameters of the LSTM over those of the Transformer": count(builders["LSTM"]()) / target,
        },
        {("best loss of held-out text, in nats for a character", "characters, as a power of ten"): curves},
    )
