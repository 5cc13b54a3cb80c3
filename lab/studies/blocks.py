"""Blocks: what norms, residual connections, attention and feed-forward networks are for in a layer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.modeling import TercetDecoderConfig, TercetDecoderModel, TercetEncoderConfig, TercetEncoderModel
from tercet.modeling.layers.block import PreNormBlock, SubLayer
from tercet.modeling.layers.position_wise import build_norm

from .lessons import SIZES, Draw, accuracy, encoder, learn, seq2seq, strings
from .study import Curve, Measured


class BlockWithoutResiduals(PreNormBlock):
    """f(norm(x)): each sub-layer replaces what it has read."""

    def apply_sublayers(
        self, stream: Tensor, x: Tensor, attend: SubLayer, attend_to_encoder: SubLayer
    ) -> Tensor:
        """Apply one sub-layer after the other."""
        return self.feed_forward(self.feed_forward_norm(attend(self.self_attention_norm(stream))))


def layer_norm(seed: int, broken: str = "", width: int = 32) -> Measured:
    """Normalize a batch of four texts of 12 random vectors, and the same batch with something changed.

    The change is the largest one of a vector whose own token stays as it is. Pads are vectors of zeros behind
    each text. Batch norm computes as in training.
    """
    config = TercetEncoderConfig(
        hidden_size=width, num_attention_heads=1, norm_type="layer_norm", norm_bias=True
    )
    own, batch_norm = build_norm(config), nn.BatchNorm1d(width)
    x = torch.randn(4, 12, width) + torch.randn(4, 12, 1)
    x_other_token, x_other_text = x.clone(), x.clone()
    x_other_token[0, 5], x_other_text[1] = 5.0, 3 * torch.randn(12, width)

    def by_token(x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[1:]) if broken else own(x)

    def by_batch(x: Tensor) -> Tensor:
        return batch_norm.train()(x.flatten(0, 1)).view_as(x)

    def change(norm: Any, other: Tensor) -> float:
        return (norm(x)[0, :5] - norm(other)[0, :5]).abs().max().item()

    shares = (0, 12, 24, 36)
    curves = {
        name: [(pads / (12 + pads), change(norm, F.pad(x, (0, 0, 0, pads)))) for pads in shares]
        for name, norm in (("layer norm", by_token), ("batch norm", by_batch))
    }
    return Measured(
        {
            "layer norm, change when another token of the text changes": change(by_token, x_other_token),
            "layer norm, change when pads are added": curves["layer norm"][-1][1],
            "batch norm, change when another text changes": change(by_batch, x_other_text),
            "batch norm, change when pads are added": curves["batch norm"][-1][1],
            "difference from a norm over all n x d numbers of a text": (
                by_token(x) - F.layer_norm(x, x.shape[1:])
            )
            .abs()
            .max()
            .item(),
        },
        {("largest change of a state", "share of pads in the batch"): curves},
    )


def without_residuals(model: nn.Module) -> None:
    """Take the residual connections out of a model's blocks."""
    for block in model.get_submodule("model.layers").children():
        block.__class__ = BlockWithoutResiduals


def residuals(seed: int, broken: str = "", steps: int = 100, layers: int = 12) -> Measured:
    """Teach encoders of 12 layers to copy their input, with and without residual connections.

    Similarity is the mean cosine of two states of a text, before learning, and over 8 texts.
    """
    similarities: dict[str, Curve] = {}
    curves: dict[str, Curve] = {}
    ids = torch.randint(2, 16, (8, 16))
    for name in ("with residuals", "without"):
        torch.manual_seed(seed)
        model = encoder(num_hidden_layers=layers)
        if broken or name == "without":
            without_residuals(model)
        with torch.no_grad():
            states = model.eval()(ids, output_hidden_states=True).hidden_states
        cosines = [(x @ x.mT).mean().item() for x in (F.normalize(each, dim=-1) for each in states)]
        similarities[name] = list(enumerate(cosines))
        curves[name] = learn(model, copies, accuracy, steps=steps, seed=seed, rate=1e-3)
    alike = f"similarity of a text's states at the end of {layers} layers without, before learning"
    return Measured(
        {
            f"accuracy of {layers} layers with residuals": curves["with residuals"][-1][1],
            f"accuracy of {layers} layers without": curves["without"][-1][1],
            alike: similarities["without"][-1][1],
        },
        {
            ("mean cosine of two states of a text", "layers"): similarities,
            ("accuracy on new texts", "steps"): curves,
        },
    )


def copies(generator: torch.Generator) -> dict[str, Tensor]:
    """Draw texts of 16 tokens, whose labels are the tokens."""
    ids = torch.randint(2, 16, (16, 16), generator=generator)
    return {"input_ids": ids, "labels": ids}


PARTS = ("attention", "feed-forward", "residuals", "norms")


def ablation(seed: int, broken: str = "", steps: int = 400, parts: Sequence[str] = PARTS) -> Measured:
    """Teach encoders of two layers the sum of each number and its left neighbour, modulo 7.

    A part is taken out of all layers. Attention or feed-forward networks then add nothing, as their last
    matrix is 0 and stays so; without residual connections sub-layers replace what they have read; without
    norms, the last one included, they read it as it is. Positions are rotary: learned ones find the
    neighbour later than the study ends.
    """

    def sums(generator: torch.Generator) -> dict[str, Tensor]:
        numbers = torch.randint(7, (32, 16), generator=generator)
        labels = (numbers + numbers.roll(1, dims=1)) % 7 + 2
        labels[:, 0] = -100  # whose neighbour is at the other end
        return {"input_ids": numbers + 2, "labels": labels}

    curves: dict[str, Curve] = {}
    for name in ("with all parts", *(f"without {part}" for part in parts)):
        torch.manual_seed(seed)
        model = encoder(position_embedding_type="rotary")
        take_out(model, name.removeprefix("without "))
        curves[name] = learn(model, sums, accuracy, steps=min(steps, 250) if broken else steps, seed=seed)
    return Measured(
        {f"accuracy {name}": curve[-1][1] for name, curve in curves.items()},
        {("accuracy on new texts", "steps"): curves},
    )


def take_out(model: nn.Module, part: str) -> None:
    """Take a part out of all layers."""
    if part == "residuals":
        without_residuals(model)
    stack: Any = model.get_submodule("model")
    for block in stack.layers:
        if part == "attention":
            nn.init.zeros_(block.self_attention.o_proj.requires_grad_(False).weight)
        if part == "feed-forward":
            nn.init.zeros_(block.feed_forward.down_proj.requires_grad_(False).weight)
        if part == "norms":
            block.self_attention_norm = block.feed_forward_norm = nn.Identity()
    if part == "norms":
        stack.norm = nn.Identity()


def encoder_and_decoder(seed: int, broken: str = "") -> Measured:
    """Give an encoder the weights of a decoder, and let both read 16 random tokens.

    The encoder is read with `is_causal=True`. The weights are compared by name and shape.
    """
    config = encoder(position_embedding_type="rotary", initializer_range=0.3, num_hidden_layers=3).config
    one = TercetEncoderModel(config).eval()
    other = TercetDecoderModel(TercetDecoderConfig(**{name: getattr(config, name) for name in SIZES})).eval()
    shapes = [{(name, *each.shape) for name, each in model.state_dict().items()} for model in (one, other)]
    one.load_state_dict(other.state_dict())
    ids = torch.randint(2, 16, (4, 16))
    with torch.no_grad():
        wanted = other(ids).last_hidden_state
        differences = {
            name: (one(ids, is_causal=direction).last_hidden_state - wanted).abs().amax((0, 2))
            for name, direction in (("causal mask", not broken), ("no mask", False))
        }
    return Measured(
        {
            "parameters that one has and the other has not": len(shapes[0] ^ shapes[1]),
            "largest difference of states, the encoder read with a causal mask": differences["causal mask"]
            .max()
            .item(),
        },
        {
            ("largest difference of a state", "token"): {
                name: list(enumerate(each.tolist(), 1)) for name, each in differences.items()
            }
        },
    )


def encoder_wiring(seed: int, broken: str = "", steps: int = 600) -> Measured:
    """Teach sequence-to-sequence models of two and two layers to copy strings of up to 4 tokens.

    In one wiring, as published, both layers of the decoder read the encoder's last layer; in the other,
    layer i reads layer i, normed as the last one is. Accuracy is that of the tokens of new strings of 4, each
    behind the right ones. A first run, with strings of 5 and 400 steps, had learned too little by either
    wiring (0.86 to 0.97) and decided nothing; the bounds are those it had.
    """
    curves: dict[str, Curve] = {}
    draw = strings((1, 4))

    def behind_the_right_ones(model: nn.Module, _: Draw, seed: int) -> float:
        batch = strings((4, 4), 64)(torch.Generator().manual_seed(10_000 + seed))
        with torch.no_grad():
            return (model(**batch).logits.argmax(-1) == batch["labels"]).float().mean().item()

    for name in ("last layer", "layer by layer"):
        torch.manual_seed(seed)
        model = seq2seq(position_embedding_type="rotary")
        if name == "layer by layer":
            norm = torch.zeros_like if broken else model.get_submodule("model.encoder.norm")
            with_source(model, lambda states, norm=norm: [norm(each) for each in states])
        curves[name] = learn(model, draw, behind_the_right_ones, steps=steps, seed=seed)
    one, other = (curve[-1][1] for curve in curves.values())
    return Measured(
        {
            "accuracy, last layer": one,
            "accuracy, layer by layer": other,
            "accuracy layer by layer less that of the last layer": other - one,
        },
        {("accuracy on new strings", "steps"): curves},
    )


def with_source(model: nn.Module, choose: Callable[[list[Tensor]], list[Tensor]]) -> None:
    """Let each layer of a decoder read what is chosen of the states that the encoder's layers wrote."""
    encoding, decoding = (model.get_submodule(f"model.{part}.layers") for part in ("encoder", "decoder"))
    written: dict[int, Tensor] = {}
    for number, block in enumerate(encoding.children()):
        block.register_forward_hook(lambda _, read, states, number=number: written.update({number: states}))
    for number, block in enumerate(decoding.children()):

        def give(_: nn.Module, read: tuple[Any, ...], number: int = number) -> tuple[Any, ...]:
            source = choose([written[place] for place in sorted(written)])[number]
            assert source.shape == read[3].shape
            return (*read[:3], source, *read[4:])

        block.register_forward_pre_hook(give)
