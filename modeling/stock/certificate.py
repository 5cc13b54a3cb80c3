"""A certificate: two models are one, as far as numbers can tell; or where they begin to differ.

What they predict, what they learn and what they write is compared. Ours computes in each of its ways: padded,
packed, with a cache, and in training, where it packs by itself and sees targets only. The stock model always
computes in the plain way.

Shapes: B batch, T positions, N tokens of a packed stream, C width of what is compared.
"""

import copy
import hashlib
import json
import math
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.func import functional_call
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...configs.markdown import escaped
from ..compatibility import CACHE
from ..configuration_tercet import TercetConfig
from ..pretrained import TercetPreTrainedModel
from ..saved.model_folder import CERTIFICATE
from .models import links_between
from .probes import Probe, pad_id, probes_for
from .weights import Links, tied_names

NEW_TOKENS = 12
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Difference:
    """How far apart two models are in one respect.

    Args:
        what: What was compared.
        probe: On which inputs.
        precision: In which type of numbers.
        largest: The largest difference; of texts, how many differ.
        scale: The largest of the numbers themselves.
    """

    what: str
    probe: str
    precision: str
    largest: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference, by the scale of the numbers where that is above 1."""
        return self.largest if math.isinf(self.largest) else self.largest / max(self.scale, 1.0)


def compare(
    stock: PreTrainedModel, ours: TercetPreTrainedModel, probes: list[Probe], precision: str
) -> Iterator[Difference]:
    """Compare two models, which stay as they are, on all probes in one precision."""
    dtype = PRECISIONS[precision]
    our_copy = in_type(copy.deepcopy(ours), dtype)
    for probe in probes:
        # A short text changes BigBird's attention for good.
        stock_copy = in_type(copy.deepcopy(stock), dtype)
        for what, theirs, own in pairs(stock_copy, our_copy, probe):
            largest = largest_of(a - b for a, b in zip(theirs, own, strict=True))
            yield Difference(what, probe.name, precision, largest, largest_of(theirs))


def largest_of(tensors: Iterable[Tensor]) -> float:
    """Return the largest magnitude in tensors; infinite if one holds what is no number."""
    return max((x.abs().nan_to_num(torch.inf, torch.inf).max().item() for x in tensors), default=0.0)


def pairs(
    stock: PreTrainedModel, ours: TercetPreTrainedModel, probe: Probe
) -> Iterator[tuple[str, list[Tensor], list[Tensor]]]:
    """Yield what both models compute, one comparison after the other."""
    with torch.no_grad():
        expected = answers(stock, probe)
        yield "predictions, padded", expected, answers(ours, probe)
        if packs(ours):
            yield "predictions, packed", expected, packed_answers(ours, probe)
        if ours.can_generate() and not probe.is_long:
            yield "predictions, cached", expected, cached_answers(ours, probe)
    if probe.is_long:
        return
    if labels := probe.labels(stock):
        # The stock losses of answers count pads among the candidates, ours do not.
        lesson = probe.unpadded() if "start_positions" in labels else probe
        inputs = lesson.inputs() | labels
        loss, gradients = stock_lesson(stock, inputs)
        own_loss, own_gradients = our_lesson(stock, ours, inputs)
        yield "loss", [loss], [own_loss]
        yield "gradients", gradients, own_gradients
    if ours.can_generate() and ours.dtype == torch.float32:
        # T5's cache has as many layers as its encoder: with a deeper decoder it can only write without.
        texts, own_texts = written(stock, probe, use_cache=False), written(ours, probe, use_cache=True)
        num_different = sum(text != own for text, own in zip(texts, own_texts, strict=True))
        yield "different texts", [torch.zeros(1)], [torch.tensor([float(num_different)])]


def first_difference(
    stock: PreTrainedModel, ours: TercetPreTrainedModel, probe: Probe, tolerance: float
) -> str | None:
    """Name the first place in the models where their states differ."""
    states = []
    for model in (copy.deepcopy(stock), ours):
        with torch.no_grad():
            outputs = model(**probe.inputs(), output_hidden_states=True)
        names = [name for name in outputs if name.endswith("hidden_states") and outputs[name] is not None]
        names.sort(key=lambda name: not name.startswith("encoder"))
        states.append([(name, layer, x) for name in names for layer, x in enumerate(outputs[name])])
    for (name, layer, theirs), (_, _, own) in zip(*states, strict=False):
        real = probe.attention_mask.bool()
        theirs = theirs[:, : own.shape[1]]  # BigBird appends pads of its own
        if not (theirs - own)[real].abs().max() <= tolerance * max(1.0, theirs[real].abs().max().item()):
            side = name.removesuffix("hidden_states").rstrip("_")
            place = f"layer {layer - 1}" if layer else "the embeddings"
            return f"{place} of the {side}" if side else place
    return None


def answers(model: PreTrainedModel, probe: Probe) -> list[Tensor]:
    """Predictions at the real positions (N, C), and for whole sequences (B, C)."""
    outputs = model(**probe.inputs())
    return [flat(x, probe) for x in predictions(outputs)]


def flat(x: Tensor, probe: Probe) -> Tensor:
    """Keep the real positions of (B, T, ...); what is about whole sequences has no positions."""
    return x[probe.attention_mask.bool()] if x.shape[:2] == probe.input_ids.shape else x


def predictions(outputs: Any) -> list[Tensor]:
    """Find what a model predicts among its outputs: logits of any kind, or else its last states."""
    logits = [outputs[name] for name in outputs if name.endswith("logits")]
    return logits or [outputs["last_hidden_state"]]


def packs(ours: TercetPreTrainedModel) -> bool:
    """Return whether a model reads packed sequences: models of whole sequences are compared otherwise."""
    return not type(ours).__name__.endswith("MultipleChoice")


def packed_answers(ours: TercetPreTrainedModel, probe: Probe) -> list[Tensor]:
    """Compute the predictions of all rows, read as one stream."""
    bounds = torch.tensor([0, *probe.lengths]).cumsum(0).int()
    stream = probe.input_ids[probe.attention_mask.bool()][None]
    inputs: dict[str, Tensor] = {"input_ids": stream, "cu_seq_lens_q": bounds}
    if probe.has_target:
        inputs |= {"decoder_input_ids": stream, "cu_seq_lens_k": bounds}
    return [x[0] if x.shape[:2] == stream.shape else x for x in predictions(ours(**inputs))]


def cached_answers(ours: TercetPreTrainedModel, probe: Probe) -> list[Tensor]:
    """Compute predictions with a cache: half of each row at once, and the rest token by token."""
    rows = []
    for ids, length in zip(probe.input_ids, probe.lengths, strict=True):
        half, cache, parts = max(1, length // 2), None, []
        for part in (ids[None, :half], *ids[None, half:length].split(1, dim=-1)):
            inputs = {"input_ids": part}
            if probe.has_target:
                inputs = {"input_ids": ids[None, :length], "decoder_input_ids": part}
            outputs = ours(**inputs, cache=cache, use_cache=True)
            cache = outputs[CACHE]
            parts.append(outputs.logits[0])
        rows.append(torch.cat(parts))
    return [torch.cat(rows)]


def loss_in(outputs: Any) -> Tensor:
    return outputs.loss


def stock_lesson(
    stock: Any, inputs: dict[str, Tensor], loss_of: Callable[[Any], Tensor] = loss_in
) -> tuple[Tensor, list[Tensor]]:
    """Compute a loss of the stock model's outputs, and its gradient by each parameter."""
    loss = loss_of(stock(**inputs))
    return loss, gradients_by(loss, [each for each in stock.parameters() if each.requires_grad])


def our_lesson(
    stock: PreTrainedModel, ours: TercetPreTrainedModel, inputs: dict[str, Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Compute the loss of ours in training, and its gradient by the stock model's parameters."""
    student = in_type(type(ours)(without_dropout(ours.config)), ours.dtype).train()
    return student_lesson(student, stock, links_between(stock, student), inputs)


def student_lesson(
    student: TercetPreTrainedModel,
    stock: Any,
    links: Links,
    inputs: dict[str, Tensor],
    loss_of: Callable[[Any], Tensor] = loss_in,
) -> tuple[Tensor, list[Tensor]]:
    """Compute a loss of a model of ours with a stock model's weights, and its gradient by these.

    What is ours is made of them by differentiable steps, so that the gradient finds its way back.
    """
    leaves = {
        names[0]: (names, stock.get_parameter(names[0]).detach().clone().requires_grad_())
        for names in tied_names(stock)
        if names[0] in dict(stock.named_parameters())
    }
    tensors = stock.state_dict() | {name: leaf for names, leaf in leaves.values() for name in names}
    loss = loss_of(functional_call(student, links.to_ours(tensors), kwargs=inputs))
    trained = [name for name, each in stock.named_parameters() if each.requires_grad]
    return loss, gradients_by(loss, [leaves[name][1] for name in trained])


def gradients_by(loss: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """Differentiate a loss; what it does not depend on has a gradient of zero."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [
        torch.zeros_like(parameter) if gradient is None else gradient
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]


def without_dropout(config: TercetConfig) -> TercetConfig:
    """Return the same configuration with nothing dropped in training."""
    config = copy.deepcopy(config)
    for name in vars(config):
        if name.endswith("dropout"):
            setattr(config, name, 0.0)
    return config


def in_type(model: Any, dtype: torch.dtype) -> Any:
    """Put a model into evaluation mode, and its numbers into a type."""
    return model.eval().to(dtype)


def written(model: Any, probe: Probe, *, use_cache: bool) -> list[list[int]]:
    """Generate greedily from the first half of each row."""
    texts = []
    for ids, length in zip(probe.input_ids, probe.lengths, strict=True):
        prompt = ids[None, : max(1, length // 2)]
        text = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            num_beams=1,
            use_cache=use_cache,
            pad_token_id=pad_id(model.config),
        )
        texts.append(text[0].tolist())
    return texts


TOLERANCE = 1e-5
"""Largest difference that counts as none, by the scale of the numbers where that is above 1. In float64 too:
some stock models compute norms in float32 whatever they are given."""


@dataclass(frozen=True)
class Certificate:
    """What was compared, and what came of it.

    Args:
        stock: The stock model's class, and ours.
        ours: Our class.
        sha256: Hash of all weights of each.
        versions: Versions of what computed.
        differences: All measurements.
        dropped: Stock tensors that ours does without, and why.
        first_difference: Where the models begin to differ, if they do.
    """

    stock: str
    ours: str
    sha256: dict[str, str]
    versions: dict[str, str]
    differences: tuple[Difference, ...]
    dropped: dict[str, str]
    first_difference: str | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing differs by more than rounding."""
        return all(difference.relative <= TOLERANCE for difference in self.differences)

    def save(self, folder: Path) -> None:
        """Write `certificate.json`."""
        facts = {"holds": self.holds, "tolerance": TOLERANCE, **asdict(self)}
        (folder / CERTIFICATE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Self:
        """Read what `save` has written."""
        try:
            measured: dict[str, Any] = {each.name: facts[each.name] for each in fields(cls)}
            measured["differences"] = tuple(Difference(**each) for each in facts["differences"])
            return cls(**measured)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{CERTIFICATE} is not a file of `tercet import` or `tercet export` ({error}): write it "
                f"again, or remove it"
            ) from error

    def escaped(self) -> Self:
        """Return it with texts that mean nothing to Markdown, whoever wrote them."""
        each = (replace(own, what=escaped(own.what), probe=escaped(own.probe)) for own in self.differences)
        return replace(
            self,
            stock=escaped(self.stock),
            ours=escaped(self.ours),
            versions={escaped(name): escaped(number) for name, number in self.versions.items()},
            differences=tuple(each),
            dropped={escaped(name): escaped(reason) for name, reason in self.dropped.items()},
            first_difference=escaped(str(self.first_difference)),
        )

    def verdict(self) -> str:
        """Describe in one line what came of it."""
        if self.holds:
            return f"{self.stock} and {self.ours} are equal"
        worst = max(self.differences, key=lambda each: each.relative)
        return (
            f"{self.stock} and {self.ours} are not equal: {worst.what} on {worst.probe} differ by "
            f"{worst.relative:.1e} in {worst.precision}, first in {self.first_difference}"
        )

    def table(self) -> str:
        """Show the measurements as Markdown."""
        return "\n".join(
            [
                f"{self.verdict()}.",
                "",
                "| compared | on | " + " | ".join(PRECISIONS) + " |",
                "|---|---|" + "--:|" * len(PRECISIONS),
                *self._rows(),
                "",
                f"Largest differences, relative to numbers above 1; up to {TOLERANCE:g} counts as rounding.",
                *(f"Without {name}: {reason}." for name, reason in self.dropped.items()),
            ]
        )

    def _rows(self) -> Iterator[str]:
        found = {(each.what, each.probe, each.precision): each for each in self.differences}
        for what, probe in dict.fromkeys((each.what, each.probe) for each in self.differences):
            cells = [found.get((what, probe, precision)) for precision in PRECISIONS]
            shown = ["" if cell is None else f"{cell.relative:.1e}" for cell in cells]
            yield f"| {what} | {probe} | {' | '.join(shown)} |"


def certify(
    stock: PreTrainedModel, ours: TercetPreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None
) -> Certificate:
    """Compare a stock model with one of ours that is to be the same, in float64 and float32.

    With their tokenizer they are also compared on texts.
    """
    probes = probes_for(stock, ours, tokenizer)
    differences = tuple(
        difference for precision in PRECISIONS for difference in compare(stock, ours, probes, precision)
    )
    where = None
    if any(difference.relative > TOLERANCE for difference in differences):
        found = (first_difference(stock, ours, probe, TOLERANCE) for probe in probes)
        where = next((place for place in found if place), "the head")
    return Certificate(
        stock=type(stock).__name__,
        ours=type(ours).__name__,
        sha256={"stock": digest(stock), "ours": digest(ours)},
        versions={name: version(name) for name in ("tercet", "torch", "transformers")}
        | {"python": platform.python_version()},
        differences=differences,
        dropped=dict(links_between(stock, ours).dropped),
        first_difference=where,
    )


def digest(model: Any) -> str:
    """Hash all tensors of a model, in the order of their names."""
    sha256 = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha256.update(name.encode())
        sha256.update(str(tensor.dtype).encode())
        numbers = tensor.detach().cpu().contiguous().flatten()
        sha256.update(numbers.view(torch.uint8).numpy().tobytes())  # numpy knows no bfloat16
    return sha256.hexdigest()
