"""Bring a small model of every stock architecture in and out again, and write down what the certificates say.

    python -m lab.compatibility.certificates    two minutes on two cores

`make docs` shows the table in docs/interop.md. The models are random: what differs between two computations
does not depend on what was learned.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import torch
import transformers

from tercet.modeling import TercetEncoderConfig
from tercet.modeling.stock import certify, from_stock, to_stock
from tercet.modeling.stock.architecture import Architecture, Counterpart
from tercet.modeling.stock.architectures import ARCHITECTURES
from tercet.modeling.stock.certificate import PRECISIONS, Certificate

from ..publishing import RESULTS, Result, describe_run, keep, lines_of, read

SIZES = {
    "vocab_size": 211,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
"""Of every model, where its architecture leaves a choice."""

WINDOWS = {"layer_types": ["sliding_attention"] * 3, "sliding_window": 8}
"""Of every model whose layers may slide."""

SPARSE = {
    "layer_types": ["stock_big_bird_attention"] * 3,
    "attention_block_size": 4,
    "attention_random_blocks": 2,
}
"""Of BigBird, whose probes are then longer than the texts that have full attention."""

SPREAD = 0.2
"""Standard deviation of all weights: of the usual one models say next to nothing."""

RESPECTS = ("predictions", "loss", "gradients", "different texts")

HEAD = (
    "architecture",
    "model",
    "Tercet",
    "direction",
    "predictions, float64",
    "float32",
    *RESPECTS[1:3],
    "texts",
)


def main() -> None:
    """Certify every counterpart, print the table and write it down."""
    rows = [row for architecture in ARCHITECTURES.values() for row in rows_of(architecture)]
    versions = {name: version(name) for name in ("tercet", "torch", "transformers")}
    keep(RESULTS / "certificates.json", result := {"machine": {"versions": versions}, "rows": rows})
    print(render(result))


def read_results() -> Result:
    return read(RESULTS / "certificates.json")


def render(result: Result) -> str:
    return "\n".join([*describe_run(result), "", *lines_of(HEAD, result["rows"], "llllr")])


def rows_of(architecture: Architecture) -> Iterator[list[str]]:
    """Certify each model of an architecture, on its way in and on its way out."""
    for counterpart in architecture.counterparts:
        print(f"certifying {counterpart.stock} ...", file=sys.stderr, flush=True)
        stock = build(architecture, counterpart)
        ours = from_stock(stock)
        yield row(architecture, counterpart, "in", certify(stock, ours))
        yield row(architecture, counterpart, "out", certify(to_stock(ours, architecture.model_type), ours))


def build(architecture: Architecture, counterpart: Counterpart) -> transformers.PreTrainedModel:
    """Build a small stock model with weights that matter."""
    sizes: dict[str, Any] = {name: size for name, size in SIZES.items() if name not in architecture.fixed}
    if architecture.config.is_encoder_decoder:
        sizes["decoder_start_token_id"] = SIZES["eos_token_id"]  # BART never trains the vector of its pad
    if "position_offset" in architecture.fields:  # RoBERTa's positions begin behind the pad's id
        sizes["position_offset"] = SIZES["pad_token_id"] + 1
    is_biased = architecture.fixed.get("position_embedding_type") == "relative_bias"  # T5 gates otherwise
    if architecture.config is TercetEncoderConfig and not is_biased:
        sizes["hidden_act"] = "gelu"  # which the heads of encoders have, whatever their layers do
    if "sliding_window" in architecture.fields:
        sizes |= WINDOWS
    if "attention_random_blocks" in architecture.fields:
        sizes |= SPARSE
    base = architecture.stock_config(architecture.config(**sizes, **architecture.fixed))
    config = architecture.stock_config(architecture.our_config(base, counterpart), counterpart)
    torch.manual_seed(0)
    model = getattr(transformers, counterpart.stock)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=SPREAD)
    return model.eval()


def row(
    architecture: Architecture, counterpart: Counterpart, way: str, certificate: Certificate
) -> list[str]:
    """Show the largest difference in each respect."""
    wide, narrow = PRECISIONS
    names = (architecture.model_type, f"`{counterpart.stock}`", f"`{counterpart.ours}`", way)
    found = [("predictions", wide), *((respect, narrow) for respect in RESPECTS)]
    return [*names, *(largest(certificate, *each) for each in found)]


def largest(certificate: Certificate, respect: str, precision: str) -> str:
    """Return the largest difference in one respect; nothing if it was not compared."""
    found = [
        each.relative
        for each in certificate.differences
        if each.what.startswith(respect) and each.precision == precision
    ]
    if not found:
        return ""
    return f"{max(found):.0f} differ" if respect == "different texts" else f"{max(found):.1e}"


if __name__ == "__main__":
    main()
