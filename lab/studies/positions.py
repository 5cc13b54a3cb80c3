"""Positions and embeddings: how order enters a model that has none, and what token vectors know."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.modeling import TercetEncoderConfig
from tercet.modeling.layers.position_wise import Embeddings
from tercet.modeling.layers.positions import POSITIONS, SinusoidalPositions

from .lessons import decoder, encoder, learn
from .study import Curve, Measured


def order(seed: int, broken: str = "", length: int = 16) -> Measured:
    """Change the order of a text, and compare each token's state with the one it had.

    Encoders of two layers with random weights read the same 16 different tokens in two orders, with each
    kind of positions.
    """
    ids, moved = torch.randperm(length)[None], torch.randperm(length)
    curves: dict[str, Curve] = {}
    for kind in POSITIONS:
        torch.manual_seed(seed)
        build = decoder if broken else encoder
        model = build(position_embedding_type=kind, vocab_size=length, initializer_range=0.3).model.eval()
        with torch.no_grad():
            states, again = model(ids).last_hidden_state[0], model(ids[:, moved]).last_hidden_state[0]
        curves[kind] = list(enumerate((states[moved] - again).abs().amax(-1).tolist(), 1))
    largest = {kind: max(y for _, y in curve) for kind, curve in curves.items()}
    return Measured(
        {
            "largest difference of states after the order changed, none": largest.pop("none"),
            "smallest such difference of six kinds of positions": min(largest.values()),
        },
        {
            ("largest difference of a state", "token"): {
                kind: curves[kind] for kind in ("none", "sinusoidal", "learned", "rotary")
            }
        },
    )


def sinusoids(width: int, length: int, broken: str = "") -> Tensor:
    """Return the vectors of all positions (T, E), or others that are drawn at random."""
    config = TercetEncoderConfig(
        hidden_size=width, num_attention_heads=1, position_embedding_type="sinusoidal"
    )
    table = SinusoidalPositions(config).embed(torch.arange(length)[None])[0]
    return torch.randn_like(table) / math.sqrt(2) if broken == "drawn" else table


def shifted_sinusoids(
    seed: int, broken: str = "", width: int = 32, shifts: Sequence[int] = (1, 5, 20)
) -> Measured:
    """Find the map of a shift by least squares at half of 256 positions, and apply it to the other half.

    The positions are drawn at random, and shifts are of 1, 5 and 20.
    """
    curves: dict[str, Curve] = {}
    errors: dict[str, list[Tensor]] = {broken: [], "drawn": []}
    for kind, of_kind in errors.items():
        for shift in shifts:
            table = sinusoids(width, 256 + shift, kind).double()
            fitted, others = torch.randperm(256).split(128)
            found = torch.linalg.lstsq(table[fitted], table[fitted + shift], driver="gelsd").solution
            of_kind.append((table[others] @ found - table[others + shift]).abs().amax(-1))
        name = "drawn at random" if kind else "sinusoids"
        curves[name] = list(enumerate(of_kind[-1].sort().values[::8].log10().tolist(), 1))
    return Measured(
        {
            "largest error of a map that was found at other positions": torch.stack(errors[broken])
            .max()
            .item(),
        },
        {
            (
                "largest error of a position, as a power of ten",
                "positions that were not fitted, in order",
            ): curves
        },
    )


def sinusoid_products(seed: int, broken: str = "", width: int = 128, length: int = 256) -> Measured:
    """Multiply the vectors of all pairs of 256 positions.

    The spread at a distance is the largest difference of two products of pairs that far apart. Projected
    vectors have passed two matrices with entries of variance 1 / d.
    """
    table = sinusoids(width, length, broken)
    matrices = torch.randn(2, width, width) / math.sqrt(width)
    curves, spread = {}, 0.0
    for name, is_projected in (("as they are", broken == "projected"), ("projected", True)):
        queries, keys = (table @ matrices if is_projected else torch.stack([table, table])).unbind()
        products = queries @ keys.mT / (width / 2)
        at_distance = [products.diagonal(distance) for distance in range(129)]
        if name == "as they are":
            spread = max((each.max() - each.min()).item() for each in at_distance)
        curves[name] = [(distance, each.mean().item()) for distance, each in enumerate(at_distance)][::4]
    far = [y for x, y in curves["as they are"] if x > 64]
    return Measured(
        {
            "largest spread at one distance, as a share of d / 2": spread,
            "mean product at distances 65 to 128, as a share of d / 2": sum(far) / len(far),
        },
        {("mean product, as a share of d / 2", "distance"): curves},
    )


def scaled_embeddings(seed: int, broken: str = "", widths: Sequence[int] = (32, 128, 512)) -> Measured:
    """Compare the mean squares of token vectors and sinusoids in the embeddings of a new model.

    Token vectors are drawn with a deviation of 0.02, the default of transformers' models.
    """
    curves: dict[str, list[tuple[float, float]]] = {"with the factor": [], "without": []}
    for width in widths:
        for name, scales in (("with the factor", not broken), ("without", False)):
            config = TercetEncoderConfig(
                vocab_size=200,
                hidden_size=width,
                num_attention_heads=1,
                type_vocab_size=0,
                scale_embedding=scales,
                embedding_norm=False,
            )
            layer = Embeddings(config, POSITIONS["none"](config)).eval()
            nn.init.normal_(layer.embed_tokens.weight, std=config.initializer_range)
            positions = torch.arange(200)[None]
            tokens = layer(layer.embed_tokens(positions), None, positions).square().mean()
            quotient = tokens / sinusoids(width, 200).square().mean()
            curves[name].append((math.log2(width), quotient.log10().item()))
    return Measured(
        {"mean square of tokens over that of positions, at d = 512": 10 ** curves["with the factor"][-1][1]},
        {("tokens over positions, as a power of ten", "width, as a power of two"): curves},
    )


def one_hot(seed: int, broken: str = "", steps: int = 200) -> Measured:
    """Teach an encoder what each of 12 tokens means, which are two names for each of 6 meanings.

    Each token's label is its meaning, so that a token is all that has to be read. The cosine is that of the
    learned vectors of two names, less the mean of all other pairs.
    """
    model = encoder(num_hidden_layers=1, vocab_size=18, tie_word_embeddings=False)
    table = model.get_input_embeddings()
    assert isinstance(table, nn.Embedding)
    names = torch.arange(12)
    looked_up, one_hots = table(names), F.one_hot(names, 18).float()
    values = {
        "difference of look-up and product": (looked_up - one_hots @ table.weight).abs().max().item(),
        "cosine of one-hot vectors": (one_hots @ one_hots.T).triu(1).max().item(),
    }

    def meanings(generator: torch.Generator) -> dict[str, Tensor]:
        ids = torch.randint(12, (32, 12), generator=generator)
        labels = torch.randint(6, ids.shape, generator=generator) if broken else ids % 6
        return {"input_ids": ids, "labels": labels + 12}

    same, others = [], []

    def similarity(*_: object) -> float:
        vectors = F.normalize(table.weight[:12].detach(), dim=-1)
        cosines, is_same = vectors @ vectors.T, names[:, None] % 6 == names % 6
        same.append(cosines[is_same & ~torch.eye(12, dtype=torch.bool)].mean().item())
        others.append(cosines[~is_same].mean().item())
        return same[-1] - others[-1]

    curve = learn(model, meanings, similarity, steps=steps, seed=seed)
    places = [x for x, _ in curve]
    return Measured(
        values | {"cosine of tokens of one meaning less that of others, learned": curve[-1][1]},
        {
            ("cosine of token vectors", "steps"): {
                "of one meaning": [*zip(places, same, strict=True)],
                "of two": [*zip(places, others, strict=True)],
            }
        },
    )
