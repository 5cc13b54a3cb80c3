"""Measure how much a generator suffers from its own mistakes, and draw it.

    python examples/exposure_bias.py runs/translation-multi30k/model --pairs validation.jsonl.gz
    python examples/exposure_bias.py runs/decoder-english/model --text data/pretrain_en/validation

For each token of a target: is the most probable one the reference's behind the true beginning, and is the one
that the model writes there by itself, greedily? Of several models (with and without scheduled sampling, say)
the curves are drawn in one picture. Prints the gap over all tokens with its 95 % interval.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from tercet.pretraining.exposure_bias import ExposureCurves, Ids, generator_of, measure_exposure_bias
from tercet.reporting.line_charts import LinePanel, draw_lines
from tercet.storage.checkpoint import Checkpoint
from tercet.text.documents import open_documents
from tercet.text.row_files import read_file
from tercet.text.special_tokens import required_token_id
from tercet.text.tokenization import text_backend

FEWEST = 20
"""Targets that a position needs to be drawn."""


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, ends: bool) -> list[np.ndarray]:
    """Cut texts as in training: without a template, each with the token that ends it if it has one."""
    encoded = text_backend(tokenizer).encode_batch(list(texts), add_special_tokens=False)
    end = [required_token_id(tokenizer, "eos", "translation")] if ends else []
    return [np.array([*each.ids, *end]) for each in encoded]


def pairs_of(options: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> tuple[Ids, Ids]:
    """Read the sources and targets of a translation."""
    columns = (options.source, options.target)
    rows = read_file(options.pairs, columns)
    sources, targets = (list(rows[column])[: options.examples] for column in columns)
    return encode(tokenizer, sources, ends=True), encode(tokenizer, targets, ends=True)


def texts_of(options: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> tuple[Ids, Ids]:
    """Cut texts into beginnings of one length, behind the token that begins a text, and what follows."""
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    size, cut = options.context + options.length, []
    for text in open_documents(options.text):
        (ids,) = encode(tokenizer, [text], ends=False)
        cut += [ids[first : first + size] for first in range(0, len(ids) - size + 1, size)]
        if len(cut) >= options.examples:
            break
    cut = cut[: options.examples]
    return [np.array([*begin, *ids[: options.context]]) for ids in cut], [
        ids[options.context :] for ids in cut
    ]


def measure(name: str, options: argparse.Namespace) -> ExposureCurves:
    """Load a model and measure it; print its gaps."""
    checkpoint = Checkpoint.open(name)
    tokenizer = checkpoint.required_tokenizer()
    read = texts_of if options.pairs is None else pairs_of
    pad_id = required_token_id(tokenizer, "pad", "exposure_bias.py")
    generator = generator_of(checkpoint.ours(), pad_id)
    curves = measure_exposure_bias(generator, *read(options, tokenizer))
    print(shown(name, curves))
    return curves


def shown(name: str, curves: ExposureCurves) -> str:
    """Write the gaps of a model."""
    low, high = curves.interval
    other_low, other_high = curves.reference_interval
    return (
        f"{name}: gap {curves.gap:.3f} [{low:.3f}, {high:.3f}] at the same place, "
        f"{curves.reference_gap:.3f} [{other_low:.3f}, {other_high:.3f}] anywhere in the reference"
    )


def panels(measured: dict[str, ExposureCurves]) -> list[LinePanel]:
    """Lay out both measures, two curves for each model."""
    titles = {
        "right token, by position": ("behind_truth", "behind_own"),
        "token anywhere in the reference": ("in_reference_truth", "in_reference_own"),
    }
    return [
        LinePanel(
            title,
            "position in the target",
            {
                f"{name}, {beginning} beginning": points(getattr(curves, field), curves.counts)
                for name, curves in measured.items()
                for beginning, field in zip(("true", "own"), fields, strict=True)
            },
            has_pairs=True,
        )
        for title, fields in titles.items()
    ]


def points(shares: np.ndarray, counts: np.ndarray) -> list[tuple[float, float]]:
    """Return the positions that enough targets have."""
    kept = [place for place, count in enumerate(counts) if count >= FEWEST or place == 0]
    return [(place + 1, float(shares[place])) for place in kept]


def main() -> None:
    """Measure the models, and draw them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="folders of trained models")
    parser.add_argument("--pairs", help="JSON lines with a column for either language")
    parser.add_argument("--source", default="en", help="column to read")
    parser.add_argument("--target", default="de", help="column to compare with")
    parser.add_argument("--text", help="texts to be continued by decoders")
    parser.add_argument("--context", type=int, default=32, help="tokens of a beginning")
    parser.add_argument("--length", type=int, default=32, help="tokens of a continuation")
    parser.add_argument("--examples", type=int, default=1000, help="most examples")
    parser.add_argument("--picture", type=Path, default=Path("exposure-bias.png"))
    options = parser.parse_args()
    if (options.pairs is None) == (options.text is None):
        parser.error("give --pairs for models that translate, or --text for decoders")
    try:
        measured = {name: measure(name, options) for name in options.models}
    except (OSError, ValueError) as error:
        parser.error(str(error))
    draw_lines(panels(measured), options.picture)
    print(options.picture)


if __name__ == "__main__":
    main()
