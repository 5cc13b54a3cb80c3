"""A classic of ours beside the stock model, with the same random weights, and what then must be equal.

A table says where the stock model keeps each of our parameters: `#` stands for the number of a layer and `*`
for "weight" and "bias"; a pair `(name, part)` is one of the equal parts of a fused projection, and
`(name, part, heads)` that part of each of its heads. A pair of a name and a broken number is a multiple: the
stock model applies that factor elsewhere.

Shapes: B batch, T positions.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tercet.configs.recipe import load_preset

Table = Mapping[str, str | tuple[str, int | float] | tuple[str, int, int]]

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
}
NO_DROPOUT = {
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "classifier_dropout": 0.0,
}
TOLERANCE = 1e-5
"""Largest difference, as a part of the largest number that is compared."""

CANCELLING = 5 * TOLERANCE
"""The same of a sum of large numbers that nearly cancel out."""


@dataclass(frozen=True)
class Place:
    """Where the stock model keeps one of our parameters, which has so many rows."""

    parameter: nn.Parameter
    rows: int
    factor: float
    is_transposed: bool
    part: int | None = None
    num_fused: int = 1
    """Fused projections, one behind the other: heads, if each has its own query, key and value."""

    @property
    def value(self) -> Tensor:
        """Return our parameter's value."""
        return self.view(self.parameter) * self.factor

    @property
    def gradient(self) -> Tensor:
        """Return our parameter's gradient."""
        assert self.parameter.grad is not None
        return self.view(self.parameter.grad) / self.factor

    def view(self, tensor: Tensor) -> Tensor:
        """See the stock parameter, or its gradient, in the shape of ours."""
        tensor = tensor.mT if self.is_transposed else tensor
        if self.part is None:
            return tensor
        fused = tensor.unflatten(0, (self.num_fused, -1))
        return fused.split(self.rows // self.num_fused, dim=1)[self.part].flatten(0, 1)


class Pair:
    """Our model and the stock one, of equal weights, without dropout; the stock one in evaluation mode."""

    def __init__(self, ours: PreTrainedModel, stock: nn.Module, table: Table):
        self.ours, self.stock = ours, stock.eval()
        self.is_rotary = ours.config.position_embedding_type == "rotary"
        self.places = {name: find(name, len(p), stock, table) for name, p in ours.named_parameters()}
        require_all_taken(self.places, stock)
        scatter(stock)
        with torch.no_grad():
            for name, parameter in ours.named_parameters():
                parameter.copy_(self.places[name].value)

    def assert_same(
        self, ours: Tensor, stock: Tensor, what: str = "result", tolerance: float = TOLERANCE
    ) -> None:
        """Compare two tensors, relative to the largest number in them."""
        assert ours.shape == stock.shape
        difference = (ours - stock).abs().max() / stock.abs().max()
        assert difference <= tolerance, f"{what} differs by {difference:.1e}"

    def assert_same_gradients(
        self, our_loss: Tensor, stock_loss: Tensor, *, without_effect: tuple[str, ...] = ()
    ) -> None:
        """Compare the gradients of every parameter; a bias of keys and others are without effect."""
        our_loss.backward()
        stock_loss.backward()
        for name, parameter in self.ours.named_parameters():
            assert parameter.grad is not None, name
            assert self.places[name].parameter.grad is not None, name
            ours, stock = parameter.grad, self.places[name].gradient
            # It moves all scores of a query alike, which a softmax does not feel: rounding errors.
            if name.endswith(without_effect if self.is_rotary else ("k_proj.bias", *without_effect)):
                assert max(ours.abs().max(), stock.abs().max()) < 1e-6
            else:
                # Where keys rotate in part, all but the rotated part of it cancels out.
                tolerance = CANCELLING if name.endswith("k_proj.bias") else TOLERANCE
                self.assert_same(ours, stock, f"gradient of {name}", tolerance)

    @staticmethod
    def positions(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Count real tokens, which our decoders do by themselves and stock ones in `generate` only."""
        return {"position_ids": (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)}

    def assert_same_next_tokens(self, batch: dict[str, Tensor]) -> None:
        """Compare what decoders predict at real tokens."""
        is_real = batch["attention_mask"] == 1
        ours = self.ours(**batch, use_cache=False).logits
        self.assert_same(ours[is_real], self.stock(**batch, **self.positions(batch)).logits[is_real])

    def assert_same_causal_lesson(self, batch: dict[str, Tensor]) -> None:
        """Compare loss and gradients of decoders."""
        ours = self.ours(**batch, labels=batch["input_ids"]).loss
        # Ours knows that pads and first tokens are no targets; the stock model has to be told.
        is_target = (batch["attention_mask"] == 1) & (self.positions(batch)["position_ids"] > 0)
        labels = batch["input_ids"].masked_fill(~is_target, -100)
        stock = self.stock(**batch, **self.positions(batch), labels=labels).loss
        self.assert_same(ours, stock)
        self.assert_same_gradients(ours, stock)

    def assert_same_target_tokens(self, batch: dict[str, Tensor], target: dict[str, Tensor]) -> None:
        """Compare what sequence-to-sequence models predict at real tokens of the target."""
        is_real = target["attention_mask"] == 1
        inputs = batch | {f"decoder_{name}": value for name, value in target.items()}
        ours, stock = (model(**inputs, use_cache=False).logits for model in (self.ours, self.stock))
        self.assert_same(ours[is_real], stock[is_real])

    def assert_same_target_lesson(
        self, batch: dict[str, Tensor], target: dict[str, Tensor], *, has_decoder_mask: bool
    ) -> None:
        """Compare loss and gradients of sequence-to-sequence models, which shift the labels by themselves."""
        labels = target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)
        mask = {"decoder_attention_mask": target["attention_mask"]} if has_decoder_mask else {}
        ours, stock = (model(**batch, **mask, labels=labels).loss for model in (self.ours, self.stock))
        self.assert_same(ours, stock)
        self.assert_same_gradients(ours, stock)

    def assert_same_texts(self, batch: dict[str, Tensor], **options: Any) -> None:
        """Compare what both write, which has to be of several words."""
        # Without the ban on repetition, random models with tied embeddings say one word again and again.
        options |= {"do_sample": False, "no_repeat_ngram_size": 1}
        ours, stock = (model.eval().generate(**batch, **options) for model in (self.ours, self.stock))
        assert torch.equal(ours, stock)
        prompt = 0 if self.ours.config.is_encoder_decoder else batch["input_ids"].shape[1]
        assert len(ours[:, prompt:].unique()) > 8


def find(name: str, rows: int, stock: nn.Module, table: Table) -> Place:
    """Look our parameter up in the table."""
    number = re.search(r"\.(\d+)\.", name)
    general = re.sub(r"\.\d+\.", ".#.", name)
    leaf = name.rpartition(".")[2]
    entry = table[general] if general in table else table[general.removesuffix(leaf) + "*"]
    pattern, *which = (entry,) if isinstance(entry, str) else entry
    factor = which.pop() if which and isinstance(which[0], float) else 1.0
    found = pattern.replace("#", number[1] if number else "#").replace("*", leaf)
    module, parameter = stock.get_submodule(found.rpartition(".")[0]), stock.get_parameter(found)
    return Place(parameter, rows, factor, isinstance(module, Conv1D) and parameter.dim() == 2, *which)


def require_all_taken(places: dict[str, Place], stock: nn.Module) -> None:
    """Make sure that every stock parameter is one of ours, or several of them."""
    taken = [(id(place.parameter), place.part) for place in places.values()]
    wanted = {id(parameter) for parameter in stock.parameters() if parameter.requires_grad}
    assert len(taken) == len(set(taken))
    assert {which for which, _ in taken} == wanted


def scatter(model: nn.Module) -> None:
    """Draw all weights: no bias is 0, no norm is 1, and attention is neither uniform nor saturated."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                kept = parameter if parameter.dim() == 1 else 0
                parameter.copy_(kept + 0.15 * torch.randn_like(parameter))


def build(
    preset: str, kernel: str, model_class: type[PreTrainedModel], stock: nn.Module, table: Table, **overrides
):
    """Build a small model of a preset, and put it beside the stock one."""
    fields: dict[str, Any] = load_preset(preset) | SIZES | NO_DROPOUT | overrides
    return Pair(model_class(AutoConfig.for_model(**fields, attn_implementation=kernel)), stock, table)


@pytest.fixture(params=["eager", "sdpa"])
def beside(request):
    """Give the function that puts a small preset of ours, with either kernel, beside a stock model."""
    return lambda preset, *args, **overrides: build(preset, request.param, *args, **overrides)


@pytest.fixture(params=[False, True], ids=["padded", "packed"])
def is_packed(request) -> bool:
    """Run our model in evaluation mode, where the batch stays padded, and in training, where it is packed."""
    return request.param


@pytest.fixture
def sizes() -> dict[str, Any]:
    """Return the sizes of our small models, in transformers' common names."""
    return dict(SIZES)


@pytest.fixture
def seq2seq_sizes() -> dict[str, Any]:
    """Return the same sizes in the names of BART and Marian, without dropout."""
    return {
        "vocab_size": SIZES["vocab_size"],
        "d_model": SIZES["hidden_size"],
        "max_position_embeddings": SIZES["max_position_embeddings"],
        **NO_DROPOUT,
        **{
            f"{stack}_{name}": SIZES[ours]
            for stack in ("encoder", "decoder")
            for name, ours in (
                ("layers", "num_hidden_layers"),
                ("attention_heads", "num_attention_heads"),
                ("ffn_dim", "intermediate_size"),
            )
        },
    }


@pytest.fixture
def ragged():
    """Give a function that draws ids and their mask, (B, T), of ragged sequences with pads on one side."""
    generator = torch.Generator().manual_seed(0)
    return partial(draw, generator)


def draw(generator: torch.Generator, *lengths: int, side: str = "right", pad: int = 0) -> dict[str, Tensor]:
    """Draw ordinary ids (3 and more) of the given lengths."""
    rows = [torch.randint(3, SIZES["vocab_size"], (length,), generator=generator) for length in lengths]
    pad_rows = partial(nn.utils.rnn.pad_sequence, batch_first=True, padding_side=side)
    return {
        "input_ids": pad_rows(rows, padding_value=pad),
        "attention_mask": pad_rows([torch.ones_like(row) for row in rows]),
    }
