"""Examinations of a model: of its weights, its tokenizer, and of what it computes.

The layout of a batch must not matter, and a cache must not either. Each examination of them takes two ways to
the same numbers, in a manner that no other fault disturbs: a document is padded in a row of its own, a row of
a batch is compared with itself alone, pads included.

Whether a model is truly causal, or truly bidirectional, is asked in every way in which it can be called: a
later token is replaced, and the results of earlier ones are compared. A mask may be right in one way and
wrong in another: kernels that get no mask follow a flag of the layer (a batch of one text has none), training
takes another path than evaluation, and a cache needs masks of its own.

Shapes: B batch, T positions, N real tokens, C classes or channels.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..storage.pad_positions import positions_of_pads
from .examined_model import TOLERANCE, ExaminedModel, Finding, agreement, difference, ids_of, listed
from .reader import Document, Inputs, Reader


def missing_tensors(examined: ExaminedModel) -> Finding:
    """Every weight comes from the file, and has the shape that the configuration gives it."""
    assert examined.fit is not None
    missing = examined.fit.missing
    if misshapen := examined.fit.misshapen.values():
        also = f"; and missing, so initialized randomly: {listed(missing)}" if missing else ""
        return Finding(
            "failed",
            f"of another shape, so initialized randomly: {listed(misshapen)}{also}",
            "use the config.json that was saved with these weights, or the weights that belong to it",
        )
    if not missing:
        return Finding("ok", "every weight is in the file")
    return Finding(
        "failed",
        f"missing in the file, so initialized randomly: {listed(missing)}",
        "load it with the saved architecture, or train it before use",
    )


def unexpected_tensors(examined: ExaminedModel) -> Finding:
    """The file holds nothing that the model has no place for."""
    assert examined.fit is not None
    if not examined.fit.surplus:
        return Finding("ok", "the model has every tensor of the file")
    return Finding(
        "warning",
        f"left unread: {listed(examined.fit.surplus)}",
        "set `architectures` in config.json to the class that was saved, or save the model again",
    )


def finite_weights(examined: ExaminedModel) -> Finding:
    """No weight is infinite or not a number."""
    tensors = examined.model.state_dict()
    spoiled = [
        f"{name} ({count:,} of {tensor.numel():,})"
        for name, tensor in tensors.items()
        if (count := int((~tensor.isfinite()).sum()))
    ]
    if not spoiled:
        return Finding("ok", f"{len(tensors)} tensors, all finite")
    return Finding(
        "failed",
        f"not finite: {listed(spoiled)}",
        "return to an earlier checkpoint; then lower the learning rate",
    )


def constant_rows(examined: ExaminedModel) -> Finding:
    """No matrix is zero, and no row of one holds the same number throughout, but for the padding token's."""
    constant = [
        f"{name} ({count:,} of {len(matrix):,})"
        for name, (matrix, padding) in matrices(examined.model).items()
        if (count := count_constant_rows(matrix, padding))
    ]
    if not constant:
        return Finding("ok", "none in any matrix")
    return Finding(
        "warning",
        f"constant rows: {listed(constant)}",
        "check whether these were trained: an optimizer or a conversion may have left them out",
    )


def matrices(model: PreTrainedModel) -> dict[str, tuple[Tensor, int | None]]:
    """Return the weights of two and more dimensions once, as rows, and which row is the padding token's."""
    paddings = {
        id(module.weight): module.padding_idx
        for module in model.modules()
        if isinstance(module, nn.Embedding)
    }
    return {
        name: (parameter.detach().flatten(1), paddings.get(id(parameter)))
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and parameter[0].numel() > 1
    }


def count_constant_rows(matrix: Tensor, padding: int | None) -> int:
    """Count the rows that hold one number only, without the padding token's."""
    is_constant = (matrix == matrix[:, :1]).all(dim=1)
    if padding is not None:
        is_constant[padding] = False
    return int(is_constant.sum())


WEIGHTS = (missing_tensors, unexpected_tensors, finite_weights, constant_rows)


ROLES = ("pad", "bos", "eos", "sep", "cls", "mask", "unk", "decoder_start")
"""Special tokens that configurations and tokenizers give an id."""

PADDED_TO = 128
"""Tables of embeddings are often padded to a multiple of this, for speed."""

UNLIMITED = 10**9
"""A tokenizer that was told no longest length reports more than this."""


def vocabulary(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """Every token has a row in the table of embeddings, and nearly every row a token."""
    last, rows = max(tokenizer.get_vocab().values()), examined.rows
    measured = f"the last token has id {last:,}, the embedding matrix has {rows:,} rows"
    if last >= rows:
        return Finding(
            "failed", measured, f"model.resize_token_embeddings({last + 1}), then train the new rows"
        )
    if rows > -(-(last + 1) // PADDED_TO) * PADDED_TO:
        return Finding(
            "warning", measured, "check whether this is the tokenizer that the model was trained with"
        )
    return Finding("ok", measured)


def needed_tokens(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """There is a token to pad with, and one to mask with where hidden tokens are predicted."""
    if predicts_hidden_tokens(examined) and tokenizer.mask_token is None:
        return Finding(
            "failed",
            "the model predicts masked tokens, but the tokenizer has no mask token",
            "set tokenizer.mask_token to the token that the model was trained with",
        )
    if tokenizer.pad_token is None:
        return Finding(
            "warning",
            "the tokenizer has no pad token: texts of different lengths cannot be batched",
            "tokenizer.add_special_tokens({'pad_token': '[PAD]'}), and model.resize_token_embeddings",
        )
    return Finding("ok", "all there")


def predicts_hidden_tokens(examined: ExaminedModel) -> bool:
    """Return whether a model is an encoder that ends in the vocabulary."""
    return examined.member == "encoder" and examined.model.get_output_embeddings() is not None


def end_and_padding(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """The token that ends a text is not the one that pads: where pads are not learned, neither is the end."""
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    if pad is None or end is None:
        return Finding("not applicable", "the tokenizer lacks one of both")
    if pad != end:
        return Finding("ok", f"pad is {pad}, eos {end}")
    return Finding(
        "warning",
        f"pad and eos are both {tokenizer.eos_token!r} ({end})",
        "before training, add a separate pad token: if eos is ignored in the loss, the model never learns "
        "to end a text",
    )


def special_ids(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """Configuration, generation configuration and tokenizer mean the same ids, which the table has."""
    sources = {
        "config": examined.config,
        "generation config": examined.model.generation_config if examined.model.can_generate() else None,
        "tokenizer": tokenizer,
    }
    wrong = []
    for role in ROLES:
        ids = {source: ids_of(owner, f"{role}_token_id") for source, owner in sources.items()}
        told = {source: found for source, found in ids.items() if found}
        said = ", ".join(f"{source} {listed(map(str, found))}" for source, found in told.items())
        if told and not set.intersection(*told.values()):
            wrong.append(f"{role}: {said}")
        elif any(not 0 <= number < examined.rows for number in set().union(*told.values())):
            wrong.append(f"{role} outside the embedding matrix: {said}")
    if not wrong:
        return Finding("ok", "the same in all files")
    return Finding(
        "failed", "; ".join(wrong), "set them everywhere to the values that the model was trained with"
    )


def longest_input(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """Truncation cuts to no more tokens than the model has positions for."""
    positions = getattr(examined.config, "max_position_embeddings", None)
    if positions is None:
        return Finding("not applicable", "the model has no maximum length")
    positions -= positions_of_pads(examined.config)
    remedy = f"tokenizer.model_max_length = {positions}"
    if tokenizer.model_max_length > UNLIMITED:
        return Finding("warning", f"texts are not truncated, the model has {positions:,} positions", remedy)
    measured = (
        f"texts are truncated to {tokenizer.model_max_length:,} tokens, the model has {positions:,} positions"
    )
    if tokenizer.model_max_length > positions:
        return Finding("failed", measured, remedy)
    return Finding("ok", measured)


TOKENIZER = (vocabulary, needed_tokens, end_and_padding, special_ids, longest_input)


PREFIX = 5
"""Tokens that are read before others change, or before a cache is used."""

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
    """Describe in which ways the model could not be called."""
    named = ", ".join(f"{way} ({type(error).__name__})" for way, error in failures.items())
    return f"; not examined {named}" if named else ""


def ways(reader: Reader) -> Iterator[tuple[str, Read]]:
    """Yield the ways to read a text and the same with other later tokens; each is to be used at once."""
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
    """Yield the ways of evaluation: with and without a mask, padded, in a batch, packed, behind a cache."""
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
    ends = (CACHED, texts[0][reader.target].shape[1])
    before, after = (reader.read_on(text, ends)[1][: PREFIX - CACHED] for text in texts)
    return before, after


@contextmanager
def attention_by(examined: ExaminedModel, kernel: str) -> Iterator[bool]:
    """Switch to another implementation of attention for a while; yield whether the model supports it."""
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
    return agreement(
        reader.read(batched(reader, reader.documents)),
        torch.cat([reader.read(reader.padded(document)) for document in reader.documents]),
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
        torch.stack([piece[-1] for piece in reader.read_on(document, ends)]),
        torch.stack(anew),
        "count positions from cache.get_seq_length(), and append keys to the cache in every layer",
    )


BEHAVIOUR = (right_padding, left_padding, batch, causality, packed_documents, cache)


def saving(reader: Reader) -> Finding:
    """Saved and loaded again, the model gives the same numbers."""
    inputs = reader.padded(reader.documents[0])
    return agreement(
        reader.read(inputs, reader.examined.reloaded),
        reader.read(inputs),
        "store everything that results depend on in a parameter, a persistent buffer or the configuration",
    )


def tied_weights(reader: Reader) -> Finding:
    """Embeddings and head are one tensor if the configuration says so, and all ties outlast saving."""
    examined, model = reader.examined, reader.examined.model
    config = examined.config.get_text_config(decoder=True)
    head = model.get_output_embeddings()
    if head is not None and promises_tie(config) and head.weight is not examined.embeddings:
        return Finding(
            "failed",
            "tie_word_embeddings is true, but embeddings and LM head are two tensors",
            "set tie_word_embeddings=False if both were trained; otherwise delete the head's tensor from "
            "the file",
        )
    before, after = ties(model), ties(examined.reloaded)
    if before != after:
        names = listed("=".join(sorted(tie)) for tie in before ^ after)
        return Finding("failed", f"not the same after saving: {names}", "declare them in _tied_weights_keys")
    if not before:
        return Finding("not applicable", "no weights are tied")
    return Finding("ok", f"{len(before)} shared by several names, before and after saving")


def promises_tie(config: PreTrainedConfig) -> bool:
    """Return whether a configuration says that embeddings and head are one; T5's does whatever it is told."""
    told_otherwise = type(config).from_dict(config.to_dict() | {"tie_word_embeddings": False})
    return getattr(config, "tie_word_embeddings", False) and not told_otherwise.tie_word_embeddings


def ties(model: PreTrainedModel) -> set[frozenset[str]]:
    """Group the names that stand for one tensor."""
    names = defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].add(name)
    return {frozenset(group) for group in names.values() if len(group) > 1}


SAVING = (saving, tied_weights)
