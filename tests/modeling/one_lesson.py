"""One law of all layouts and kernels: a text teaches what it teaches alone, by the definition.

Whatever a model is built of, its texts are read alone, padded on either side and packed, in training and in
evaluation, by the definition and by faster kernels. Logits, losses and gradients are the same.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.testing import assert_close

from ..tolerances import CLOSE
from .ragged import Ragged, padded

NEAR = {"rtol": 1e-3, "atol": 1e-4}
"""How far gradients may differ, which are sums of more numbers."""


def gradients(model) -> dict[str, Tensor]:
    """Take the gradients of all parameters, and clear them."""
    taken = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return taken


def inputs_of(member: str, batch: Ragged, targets: Ragged, index: slice, side: str) -> dict:
    """Padded inputs of a part of the batch, with labels."""
    batch, targets = (Ragged(part.sequences[index]) for part in (batch, targets))
    ids, mask = batch.padded(side)
    if member != "seq2seq":
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
    target_ids, target_mask = targets.padded("right")
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "decoder_attention_mask": target_mask,
        "labels": target_ids.masked_fill(target_mask == 0, -100),
    }


def packed_inputs_of(member: str, batch: Ragged, targets: Ragged) -> dict:
    """All sequences in one stream, with labels; for seq2seq, sources and targets in one stream each."""
    packed = batch.packed()
    if member != "seq2seq":
        return packed | {"labels": packed["input_ids"]}
    target = targets.packed()
    starts = [torch.cat((torch.tensor([0]), ids[:-1])) for ids in targets.sequences]
    return {
        "input_ids": packed["input_ids"],
        "position_ids": packed["position_ids"],
        "cu_seq_lens_k": packed["cu_seq_lens_q"],
        "decoder_input_ids": torch.cat(starts)[None],
        "decoder_position_ids": target["position_ids"],
        "cu_seq_lens_q": target["cu_seq_lens_q"],
        "labels": target["input_ids"],
    }


def ways(member: str, batch: Ragged, targets: Ragged, chosen: list[Tensor] | None) -> Iterator[tuple]:
    """Yield each way to read the texts: its name, whether the model is in training, and the inputs."""
    whole = slice(None)
    stream = packed_inputs_of(member, batch, targets)
    stream |= {} if chosen is None else {"global_attention_mask": torch.cat(chosen)[None]}
    for training in (False, True):
        for side in ("right", "left"):
            rows = inputs_of(member, batch, targets, whole, side)
            rows |= {} if chosen is None else {"global_attention_mask": padded(chosen, 0, side)}
            yield f"padded on the {side}", training, rows
        yield "packed", training, stream
    if member != "seq2seq":
        yield "packed, kept apart by a mask", False, stream | {"output_attentions": True}


def lesson(model, training: bool, inputs: list[dict]) -> tuple[Tensor | None, Tensor, dict[str, Tensor]]:
    """Return logits of all labels, if they are returned, the sum of the losses, and the gradients."""
    logits, losses = [], []
    model.train(training)
    for each in inputs:
        outputs = model(**each, reduction="sum")
        losses.append(outputs.loss)
        if outputs.logits is not None:
            logits.append(outputs.logits[each["labels"] != -100].detach())
    total = torch.stack(losses).sum()
    total.backward()
    return torch.cat(logits) if logits else None, total.detach(), gradients(model)


def assert_one_lesson(
    build: Callable[[str], torch.nn.Module],
    member: str,
    batch: Ragged,
    targets: Ragged,
    chosen: list[Tensor] | None = None,
    close: dict[str, float] = CLOSE,
    near: dict[str, float] = NEAR,
) -> None:
    """Compare all ways with the definition of each text alone.

    Args:
        build: Builds the same model for `eager`, the definition, and for `sdpa`.
        member: Which it is.
        batch: Texts, or sources.
        targets: What a seq2seq model learns of these.
        chosen: Tokens of each text that are chosen to be global.
        close: How far logits and losses may differ.
        near: How far gradients may.
    """
    alone = [inputs_of(member, batch, targets, slice(i, i + 1), "right") for i in range(len(batch.sequences))]
    for each, row in zip(alone, chosen or (), strict=chosen is not None):
        each["global_attention_mask"] = row[None]
    expected_logits, expected_loss, expected = lesson(build("eager"), False, alone)
    for kernel in ("eager", "sdpa"):
        model = build(kernel)
        for name, training, inputs in ways(member, batch, targets, chosen):
            place = f"{kernel}, {name}, {'training' if training else 'evaluation'}"
            logits, loss, found = lesson(model, training, [inputs])
            assert (logits is None) == training, place
            if logits is not None:
                assert_same(logits, expected_logits, f"{place}, logits", close)
            assert_same(loss, expected_loss, f"{place}, loss", close)
            assert found.keys() == expected.keys(), place
            for parameter, gradient in expected.items():
                assert_same(found[parameter], gradient, f"{place}, gradient of {parameter}", near)


def assert_same(found: Tensor, expected: Tensor | None, what: str, tolerances: dict[str, float]) -> None:
    """Compare numbers, and say which differ."""
    assert_close(found, expected, **tolerances, msg=lambda text: f"{what}: {text}")
