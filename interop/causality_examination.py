"""Whether a model is truly causal, or truly bidirectional, in every way in which it can be called.

A later token is replaced, and the results of earlier ones are compared. A mask may be right in one way and
wrong in another: kernels that get no mask follow a flag of the layer (a batch of one text has none), training
takes another path than evaluation, and a cache needs masks of its own.

Shapes: B batch, T positions, N real tokens, C classes or channels.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .examined_model import ExaminedModel
from .finding import TOLERANCE, Finding, difference
from .reader import Document, Inputs, Reader, results_of

PREFIX = 5
"""Tokens that are read before others change."""

CACHED = 2
"""Tokens that lie in a cache when the others are read."""

LEAST_CHANGE = 1e-5
"""By how much later tokens change an encoder's earlier results at least, as a part of the largest number."""

KERNELS = ("eager", "sdpa")
"""Implementations of attention that are examined; flex and flash attention are a GPU's."""

Pair = tuple[Tensor, Tensor]
"""Results of the first tokens (PREFIX, C), before and after later tokens were replaced."""

Read = Callable[[], Pair]
LayOut = Callable[[Document], Inputs]


def causality(reader: Reader) -> Finding:
    """Later tokens change nothing earlier in a decoder, and something where an encoder has read them."""
    if reader.judges_texts:
        return Finding("not applicable", "the model has one output for a whole text")
    changes, failures = {}, {}
    for way, read in ways(reader):
        try:
            before, after = read()
        except Exception as error:  # whatever a foreign model raises; another examination reports it
            failures[way] = error
        else:
            changes[way] = difference(after, before)
    if not changes:
        raise next(iter(failures.values()))
    finding = bidirectional(changes) if reader.sees_all else causal(changes)
    return replace(finding, measured=finding.measured + not_examined(failures))


def causal(changes: dict[str, float]) -> Finding:
    """Find whether no later token changes an earlier result."""
    leaking = [way for way, change in changes.items() if change > TOLERANCE]
    worst = f"{max(changes.values()):.1e}, tolerance {TOLERANCE:.0e}"
    if not leaking:
        return Finding("ok", f"causal in {len(changes)} ways: later tokens change at most {worst}")
    return Finding(
        "failed",
        f"later tokens change {worst}; not causal {where(leaking, changes)}",
        "self-attention must be causal in all of these: check is_decoder or is_causal in the configuration, "
        "and the mask that attention is given there",
    )


def bidirectional(changes: dict[str, float]) -> Finding:
    """Find whether later tokens change earlier results."""
    blind = [way for way, change in changes.items() if change < LEAST_CHANGE]
    least = f"{min(changes.values()):.1e}, expected {LEAST_CHANGE:.0e}"
    if not blind:
        return Finding("ok", f"bidirectional in {len(changes)} ways: later tokens change {least}")
    return Finding(
        "failed",
        f"later tokens change {least}; not bidirectional {where(blind, changes)}",
        "self-attention must be bidirectional in all of these: remove the causal mask, and set "
        "is_causal=False in every attention layer, which kernels follow that get no mask",
    )


def where(wrong: list[str], changes: dict[str, float]) -> str:
    """List the ways in which a model is wrong, or say that it always is."""
    return "in any way" if len(wrong) == len(changes) else ", ".join(wrong)


def not_examined(failures: dict[str, Exception]) -> str:
    """Say in which ways the model could not be called."""
    named = ", ".join(f"{way} ({type(error).__name__})" for way, error in failures.items())
    return f"; not examined {named}" if named else ""


def ways(reader: Reader) -> Iterator[tuple[str, Read]]:
    """Give the ways to read a text and the same with other later tokens; each is to be used at once."""
    document, stream = reader.documents[0], reader.target
    texts = document, document | {stream: reader.changed(document[stream], since=PREFIX)}
    yield from evaluated(reader, texts)
    for kernel in KERNELS:
        with attention_by(reader.examined, kernel) as is_supported:
            if is_supported:
                yield f"with {kernel} attention", partial(read_both, reader, texts, reader.alone)
    with training(reader.examined):
        yield "in training", partial(read_both, reader, texts, reader.alone)
        yield "in training with padding", partial(read_both, reader, texts, reader.padded)


def evaluated(reader: Reader, texts: tuple[Document, Document]) -> Iterator[tuple[str, Read]]:
    """Give the ways of evaluation: with and without a mask, padded, in a batch, packed, behind a cache."""
    others = reader.documents[1:]
    layouts: dict[str, LayOut] = {
        "alone": reader.alone,
        "with a mask of ones": lambda text: with_ones(reader.alone(text)),
        "padded on the right": reader.padded,
        "padded on the left": lambda text: reader.padded(text, "left"),
        "in a batch": lambda text: batched(reader, [text, *others]),
    }
    if reader.takes("position_ids"):
        layouts["packed"] = lambda text: reader.packed([text, *others])
    for way, lay_out in layouts.items():
        yield way, partial(read_both, reader, texts, lay_out)
    if reader.examined.member != "encoder" and reader.returns_cache:
        yield "behind a cache", partial(read_behind_cache, reader, texts)


def read_both(reader: Reader, texts: tuple[Document, Document], lay_out: LayOut) -> Pair:
    """Read both texts in a layout; what is random is the same for both."""
    results = []
    with torch.random.fork_rng(devices=[]):
        for text in texts:
            torch.manual_seed(0)
            results.append(reader.read(lay_out(text))[:PREFIX])
    return results[0], results[1]


def with_ones(inputs: Inputs) -> Inputs:
    """Add a mask that hides nothing."""
    masks = {
        name.replace("input_ids", "attention_mask"): torch.ones_like(ids) for name, ids in inputs.items()
    }
    return inputs | masks


def batched(reader: Reader, texts: list[Document]) -> Inputs:
    """Put texts into one batch, padded on the right."""
    rows = [reader.padded(text) for text in texts]
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def read_behind_cache(reader: Reader, texts: tuple[Document, Document]) -> Pair:
    """Read both texts in two pieces with a cache: the results of the second up to the tokens that change."""
    results = []
    for text in texts:
        past, ids = None, text[reader.target]
        outputs: Any = None
        for piece in (ids[:, :CACHED], ids[:, CACHED:]):
            inputs = reader.alone(text | {reader.target: piece})
            with torch.no_grad():
                outputs = reader.examined.model(**inputs, past_key_values=past, use_cache=True)
            past = outputs.past_key_values
        results.append(results_of(outputs).flatten(0, -2)[: PREFIX - CACHED])
    return results[0], results[1]


@contextmanager
def attention_by(examined: ExaminedModel, kernel: str) -> Iterator[bool]:
    """Let another implementation of attention compute for a while; tell whether the model supports it."""
    model = examined.model
    own: Any = model.config._attn_implementation
    try:
        try:
            model.set_attn_implementation(kernel)
        except (ValueError, ImportError):
            yield False
        else:
            yield model.config._attn_implementation == kernel
    finally:
        model.set_attn_implementation(own)


@contextmanager
def training(examined: ExaminedModel) -> Iterator[None]:
    """Put a model into training mode for a while."""
    examined.model.train()
    try:
        yield
    finally:
        examined.model.eval()
