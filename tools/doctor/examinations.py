"""Examinations of a model: a table of what is asked, which function answers, and how bad it is otherwise.

What a model computes is examined at its last states, below any head: two ways to the same numbers are
compared, so that no reference is needed, and any model in the form of transformers can be examined.

Shapes: T positions, N real tokens, C channels.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from ...configs.messages import shortened
from ...modeling.saved.length import UNLIMITED, most_positions
from .reader import Reader, ids_of

Verdict = Literal["ok", "warning", "failed", "not applicable"]

TOLERANCE = 1e-4
"""Largest difference of numbers that count as equal, as a part of the largest of them; float32 has 1e-7."""


@dataclass(frozen=True)
class Finding:
    """What one examination has found.

    Args:
        verdict: `failed` where results are wrong or random, `warning` where they may become so in training or
            in use, `not applicable` where the model has nothing to be examined.
        measured: The numbers or names that the verdict rests on.
        remedy: What to do, unless all is well.
    """

    verdict: Verdict
    measured: str
    remedy: str = ""


@dataclass(frozen=True)
class Examination:
    """A row of the table.

    Args:
        answer: Finds whether something holds, which its docstring says.
        severity: How bad it is if not: the verdict in the place of `failed`.
        needs: What there must be to examine: a tokenizer, or finite weights, which give numbers.
    """

    answer: Callable[[Reader], Finding]
    severity: Verdict = "failed"
    needs: Literal["nothing", "tokenizer", "numbers"] = "nothing"

    @property
    def name(self) -> str:
        return self.answer.__name__.replace("_", " ")

    @property
    def asks(self) -> str:
        """What must hold."""
        return (self.answer.__doc__ or "").partition("\n")[0]


def missing_tensors(reader: Reader) -> Finding:
    """Every weight comes from the file, with its shape; others are initialized randomly."""
    fit = reader.examined.fit
    assert fit is not None
    drawn = "so initialized randomly"
    if fit.misshapen:
        also = f"; and missing, {drawn}: {listed(fit.missing)}" if fit.missing else ""
        return Finding(
            "failed",
            f"of another shape, {drawn}: {listed(fit.misshapen.values())}{also}",
            "use the config.json that was saved with these weights, or the weights that belong to it",
        )
    if fit.missing:
        measured = f"missing in the file, {drawn}: {listed(fit.missing)}"
        return Finding("failed", measured, "load it with the saved architecture, or train it before use")
    return Finding("ok", "every weight is in the file")


def unexpected_tensors(reader: Reader) -> Finding:
    """The file has no weights that the model does not have."""
    fit = reader.examined.fit
    assert fit is not None
    if not fit.surplus:
        return Finding("ok", "the model has every tensor of the file")
    return Finding(
        "failed",
        f"left unread: {listed(fit.surplus)}",
        "set `architectures` in config.json to the class that was saved, or save the model again",
    )


def finite_weights(reader: Reader) -> Finding:
    """No weight is infinite or NaN."""
    tensors = reader.examined.model.state_dict()
    spoiled = [
        f"{name} ({count:,} of {tensor.numel():,})"
        for name, tensor in tensors.items()
        if (count := int((~tensor.isfinite()).sum()))
    ]
    if not spoiled:
        return Finding("ok", f"{len(tensors)} tensors, all finite")
    remedy = "return to an earlier checkpoint; then lower the learning rate"
    return Finding("failed", f"not finite: {listed(spoiled)}", remedy)


def tied_weights(reader: Reader) -> Finding:
    """Embeddings and LM head are one tensor if the configuration says so."""
    config = reader.config.get_text_config(decoder=True)
    head = reader.examined.model.get_output_embeddings()
    told_otherwise = type(config).from_dict(config.to_dict() | {"tie_word_embeddings": False})
    promises = getattr(config, "tie_word_embeddings", False) and not told_otherwise.tie_word_embeddings
    if head is None or not promises:
        return Finding("not applicable", "the configuration ties no LM head")
    if head.weight is reader.examined.embeddings:
        return Finding("ok", "embeddings and LM head are one tensor")
    return Finding(
        "failed",
        "tie_word_embeddings is true, but embeddings and LM head are two tensors",
        "set tie_word_embeddings=False if both were trained; else delete the head's tensor from the file",
    )


PADDED_TO = 128
"""Tables of embeddings are often padded to a multiple of this, for speed."""


def vocabulary(reader: Reader) -> Finding:
    """Every token has a row in the embedding matrix."""
    last, rows = max(reader.tokenizer.get_vocab().values()), reader.examined.rows
    measured = f"the last token has id {last:,}, the embedding matrix has {rows:,} rows"
    if last < rows:
        return Finding("ok", measured)
    remedy = f"model.resize_token_embeddings({last + 1}), then train the new rows"
    return Finding("failed", measured, remedy)


def spare_rows(reader: Reader) -> Finding:
    """Nearly every row of the embedding matrix has a token."""
    tokens, rows = max(reader.tokenizer.get_vocab().values()) + 1, reader.examined.rows
    if rows <= -(-tokens // PADDED_TO) * PADDED_TO:
        return Finding("ok", f"{max(rows - tokens, 0):,} rows without a token")
    measured = f"{rows - tokens:,} of {rows:,} rows of the embedding matrix belong to no token"
    return Finding("failed", measured, "check whether this is the tokenizer that the model was trained with")


def mask_token(reader: Reader) -> Finding:
    """There is one if the model predicts masked tokens."""
    model = reader.examined.model
    if reader.examined.member != "encoder" or model.get_output_embeddings() is None:
        return Finding("not applicable", "the model predicts no masked tokens")
    if reader.tokenizer.mask_token is not None:
        return Finding("ok", f"it is {reader.tokenizer.mask_token!r}")
    return Finding(
        "failed",
        "the model predicts masked tokens, but the tokenizer has no mask token",
        "set tokenizer.mask_token to the token that the model was trained with",
    )


def pad_token(reader: Reader) -> Finding:
    """There is one."""
    if reader.tokenizer.pad_token is not None:
        return Finding("ok", f"it is {reader.tokenizer.pad_token!r}")
    return Finding(
        "failed",
        "the tokenizer has no pad token: texts of different lengths cannot be batched",
        "tokenizer.add_special_tokens({'pad_token': '[PAD]'}), and model.resize_token_embeddings",
    )


def end_and_padding(reader: Reader) -> Finding:
    """The end-of-sequence token is not the padding token: where pads are not learned, neither is the end."""
    pad, end = reader.tokenizer.pad_token_id, reader.tokenizer.eos_token_id
    if pad is None or end is None:
        return Finding("not applicable", "the tokenizer lacks one of both")
    if pad != end:
        return Finding("ok", f"pad is {pad}, eos {end}")
    return Finding(
        "failed",
        f"pad and eos are both {reader.tokenizer.eos_token!r} ({end})",
        "before training, add a separate pad token: if eos is ignored in the loss, the model never learns "
        "to end a text",
    )


ROLES = ("pad", "bos", "eos", "sep", "cls", "mask", "unk", "decoder_start")
"""Special tokens that configurations and tokenizers give an id."""


def special_ids(reader: Reader) -> Finding:
    """Configurations and tokenizer have the same ids, and the embedding matrix has them."""
    model = reader.examined.model
    sources = {
        "config": reader.config,
        "generation config": model.generation_config if model.can_generate() else None,
        "tokenizer": reader.tokenizer,
    }
    wrong = []
    for role in ROLES:
        ids = {source: ids_of(owner, f"{role}_token_id") for source, owner in sources.items()}
        told = {source: found for source, found in ids.items() if found}
        said = ", ".join(f"{source} {listed(map(str, found))}" for source, found in told.items())
        if told and not set.intersection(*told.values()):
            wrong.append(f"{role}: {said}")
        elif any(not 0 <= number < reader.examined.rows for number in set().union(*told.values())):
            wrong.append(f"{role} outside the embedding matrix: {said}")
    if not wrong:
        return Finding("ok", "the same in all files")
    remedy = "set them everywhere to the values that the model was trained with"
    return Finding("failed", "; ".join(wrong), remedy)


def longest_input(reader: Reader) -> Finding:
    """Texts are truncated to no more tokens than the model has positions for."""
    positions = most_positions(reader.config)
    if positions is None:
        return Finding("not applicable", "the model has no maximum length")
    length, remedy = reader.tokenizer.model_max_length, f"tokenizer.model_max_length = {positions}"
    if length >= UNLIMITED:
        return Finding("warning", f"texts are not truncated, the model has {positions:,} positions", remedy)
    measured = f"texts are truncated to {length:,} tokens, the model has {positions:,} positions"
    return Finding("ok", measured) if length <= positions else Finding("failed", measured, remedy)


def right_padding(reader: Reader) -> Finding:
    """Padding on the right, hidden by a mask, does not change results at real tokens."""
    return agreement(
        reader.read_each(reader.padded),
        reader.read_each(reader.alone),
        "pass attention_mask to every layer that mixes positions; until then, batch texts of equal length",
    )


def left_padding(reader: Reader) -> Finding:
    """Nor does padding on the left, if the tokenizer pads there or the model takes `position_ids`."""
    pads_left = reader.examined.tokenizer is not None and reader.tokenizer.padding_side == "left"
    if not pads_left and not reader.takes_positions:
        return Finding("not applicable", "the model always starts at the first column: pad on the right")
    return agreement(
        reader.read_each(partial(reader.padded, side="left")),
        reader.read_each(partial(reader.alone, counted=reader.takes_positions)),
        "set tokenizer.padding_side = 'right', or count positions from the first real token",
    )


PREFIX = 5
"""Tokens that are read before others change."""

LEAST_CHANGE = 1e-5
"""By how much later tokens change an encoder's earlier results at least, as a part of the largest number."""


def causality(reader: Reader) -> Finding:
    """Later tokens change earlier results in an encoder, and in no decoder: alone, padded and in training.

    A mask may be right in one way and wrong in another: kernels that get no mask follow a flag of the layer
    (a batch of one text has none), and training may take another path than evaluation.
    """
    document, stream = reader.documents[0], reader.target
    texts = document, document | {stream: reader.changed(document[stream], since=PREFIX)}
    ways = {
        "alone": (reader.alone, False),
        "padded": (reader.padded, False),
        "in training": (reader.padded, True),
    }
    changes = {}
    for way, (lay_out, trains) in ways.items():
        before, after = (reader.read(lay_out(text), trains=trains)[:PREFIX] for text in texts)
        changes[way] = difference(after, before)
    if reader.examined.member == "encoder":
        kind, apart, bound = "bidirectional", min(changes.values()), f"expected {LEAST_CHANGE:.0e}"
        wrong = [way for way, change in changes.items() if change < LEAST_CHANGE]
    else:
        kind, apart, bound = "causal", max(changes.values()), f"tolerance {TOLERANCE:.0e}"
        wrong = [way for way, change in changes.items() if change > TOLERANCE]
    measured = f"later tokens change {apart:.1e}, {bound}"
    if not wrong:
        return Finding("ok", f"{kind} {', '.join(ways)}: change {apart:.1e}, {bound}")
    return Finding(
        "failed",
        f"{measured}; not {kind} {', '.join(wrong)}",
        f"self-attention must be {kind} in all of these: check is_decoder in the configuration, is_causal in "
        "attention layers, and the mask that these are given",
    )


def packed_documents(reader: Reader) -> Finding:
    """Documents in one row, told apart by `position_ids` that restart, do not attend to each other."""
    if "cu_seq_lens_q" not in reader.parameters:
        return Finding("not applicable", "the model does not support packed documents")
    return agreement(
        reader.read(reader.packed(reader.documents)),
        reader.read_each(reader.alone),
        "build masks from position_ids; until then, use one document per row",
    )


def agreement(ours: Tensor, expected: Tensor, remedy: str) -> Finding:
    apart = difference(ours, expected)
    measured = f"difference {apart:.1e} of the largest number, tolerance {TOLERANCE:.0e}"
    return Finding("ok", measured) if apart <= TOLERANCE else Finding("failed", measured, remedy)


def difference(ours: Tensor, expected: Tensor) -> float:
    """Return the largest difference, as a part of the largest number expected."""
    largest = expected.abs().max().clamp(min=torch.finfo(expected.dtype).tiny)
    return float((ours - expected).abs().max() / largest)


def listed(names: Iterable[str]) -> str:
    """Join the first names, and count the others."""
    return shortened(sorted(names), most=3)


EXAMINATIONS = (
    Examination(missing_tensors),
    Examination(unexpected_tensors, "warning"),
    Examination(finite_weights),
    Examination(tied_weights),
    Examination(vocabulary, needs="tokenizer"),
    Examination(spare_rows, "warning", "tokenizer"),
    Examination(mask_token, needs="tokenizer"),
    Examination(pad_token, "warning", "tokenizer"),
    Examination(end_and_padding, "warning", "tokenizer"),
    Examination(special_ids, needs="tokenizer"),
    Examination(longest_input, needs="tokenizer"),
    Examination(right_padding, needs="numbers"),
    Examination(left_padding, needs="numbers"),
    Examination(causality, needs="numbers"),
    Examination(packed_documents, needs="numbers"),
)
"""All of them, in the order in which they are reported."""
