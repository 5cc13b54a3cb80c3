"""Examinations of what a model computes: layouts that must not matter, and a cache that must not either.

Each takes two ways to the same numbers, in a manner that no other fault disturbs: a document is padded in a
row of its own, a row of a batch is compared with itself alone, pads included.
"""

from dataclasses import replace
from inspect import signature

import torch

from .causality_examination import causality
from .finding import Finding, agreement
from .reader import Reader

PREFIX = 5
"""Tokens that are read before a cache is used."""


def right_padding(reader: Reader) -> Finding:
    """Pads on the right, hidden by a mask, change nothing at the real tokens."""
    return agreement(
        torch.cat([reader.read(reader.padded(document)) for document in reader.documents]),
        torch.cat([reader.read(reader.alone(document)) for document in reader.documents]),
        "pass attention_mask to every layer that mixes positions; until then, batch texts of equal length",
    )


def left_padding(reader: Reader) -> Finding:
    """Pads on the left change nothing either, by themselves or with `position_ids` that count real tokens."""
    found, takes_positions = padded_left(reader, places=False), "position_ids" in reader.parameters
    if found.verdict == "failed" and takes_positions:
        found = padded_left(reader, places=True)
    tokenizer = reader.examined.tokenizer
    is_used = tokenizer is not None and tokenizer.padding_side == "left"
    if found.verdict == "ok" or is_used or (takes_positions and not reader.judges_texts):
        return found
    return Finding("not applicable", "the model always starts at the first column: pad on the right")


def padded_left(reader: Reader, *, places: bool) -> Finding:
    """Compare documents padded on the left with unpadded ones, telling their places or not."""
    ours, expected = [], []
    for document in reader.documents:
        padded, alone = reader.padded(document, "left"), reader.alone(document)
        if places:
            counted = padded["attention_mask"].cumsum(-1) - 1
            padded |= {"position_ids": counted.clamp(min=0)}
            alone |= {"position_ids": torch.arange(document[""].shape[1])[None]}
        ours.append(reader.read(padded))
        expected.append(reader.read(alone))
    return agreement(
        torch.cat(ours),
        torch.cat(expected),
        "apply attention_mask and count positions from the first real token; or pad on the right",
    )


def batch(reader: Reader) -> Finding:
    """A row of a batch gives what it gives alone."""
    rows = [reader.padded(document) for document in reader.documents]
    together = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    return agreement(
        reader.read(together),
        torch.cat([reader.read(row) for row in rows]),
        "no layer may mix the rows of a batch: look for a statistic over dimension 0, or mask[0] for all "
        "rows",
    )


def packed_documents(reader: Reader) -> Finding:
    """Documents in one row, told apart by positions that restart, do not see each other.

    A model that takes the bounds of packed documents promises so. Most of transformers' decoders keep to it,
    too, without a promise.
    """
    is_promised = "cu_seq_lens_q" in signature(reader.examined.model.base_model.forward).parameters
    is_usual = reader.examined.member == "decoder" and not reader.judges_texts
    if not reader.takes("position_ids") or not (is_promised or is_usual):
        return Finding("not applicable", "the model does not support packed documents")
    finding = agreement(
        reader.read(reader.packed(reader.documents)),
        torch.cat([reader.read(reader.alone(document)) for document in reader.documents]),
        "build masks from position_ids (create_causal_mask accepts them); until then, use one document per "
        "row",
    )
    return finding if is_promised or finding.verdict == "ok" else replace(finding, verdict="warning")


def cache(reader: Reader) -> Finding:
    """Tokens read one after another with a cache give what reading them anew would."""
    if reader.examined.member == "encoder" or not reader.returns_cache:
        return Finding("not applicable", "the model has no cache")
    document, stream = reader.documents[0], reader.target
    ids = document[stream]
    ends = (PREFIX, PREFIX + 1, PREFIX + 2, ids.shape[1])  # two steps of a token, then several at once
    anew = [reader.read(reader.alone(document | {stream: ids[:, :end]}))[-1] for end in ends]
    return agreement(
        reader.read_on(document, ends),
        torch.stack(anew),
        "count positions from past_key_values.get_seq_length(), and append keys to the cache in every layer",
    )


BEHAVIOUR = (right_padding, left_padding, batch, causality, packed_documents, cache)
