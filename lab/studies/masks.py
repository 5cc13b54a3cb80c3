"""Masks: what pads and the future can reach, and why training is parallel and generation is not."""

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.modeling.compatibility import CACHE

from .lessons import decoder, encoder, seq2seq
from .study import Curve, Measured

ROTARY = {"position_embedding_type": "rotary"}
"""Positions that do not end, and that padding on the left does not move."""


def padding(seed: int, broken: str = "", numbers: Sequence[int] = (1, 4, 16)) -> Measured:
    """Put pads behind a text, and before it, and compare the logits of its 12 tokens with those of it alone.

    A pad has the id of one of the tokens. The sequence-to-sequence model's source is padded, and its decoder
    reads the text itself.
    """
    members: dict[str, nn.Module] = {
        "encoder": encoder(**ROTARY).eval(),
        "decoder": decoder(**ROTARY).eval(),
        "sequence to sequence": seq2seq(**ROTARY).eval(),
    }
    ids = torch.randint(2, 16, (1, 12))
    curves: dict[str, list[tuple[float, float]]] = {}
    largest = {}
    with torch.no_grad():
        for name, model in members.items():
            target = {"decoder_input_ids": ids} if "sequence" in name else {}
            alone = model(input_ids=ids, **target).logits
            changes = []
            for number in numbers:
                found = []
                for sides in ((0, number), (number, 0)):
                    padded = torch.where(F.pad(torch.ones_like(ids), sides) > 0, F.pad(ids, sides), 3)
                    mask = {} if broken else {"attention_mask": F.pad(torch.ones_like(ids), sides)}
                    logits = model(input_ids=padded, **mask, **target).logits
                    real = slice(None) if target else slice(sides[0], sides[0] + 12)
                    found.append((logits[:, real] - alone).abs().max().item())
                changes.append(max(found))
            largest[f"largest change of a state, {name}"] = max(changes)
            curves[name] = [
                (number, math.log10(max(each, 1e-9))) for number, each in zip(numbers, changes, strict=True)
            ]
    return Measured(largest, {("largest change of a state, as a power of ten", "pads"): curves})


def future(seed: int, broken: str = "", length: int = 16) -> Measured:
    """Take the gradient of the state of the ninth of 16 tokens with respect to the vector of each.

    The gradient is that of the state's product with a random vector. Then the later tokens are replaced,
    and the logits up to there compared.
    """
    ids, middle = torch.randint(2, 16, (1, length)), length // 2
    direction = {"is_causal": False} if broken else {}
    curves: dict[str, Curve] = {}
    values = {}
    for name, model, options in (
        ("decoder", decoder(**ROTARY), direction),
        ("encoder", encoder(**ROTARY), {}),
    ):
        stack: Any = model.eval().get_submodule("model")
        vectors = model.get_input_embeddings()(ids).detach().requires_grad_()
        states = stack(inputs_embeds=vectors, **options).last_hidden_state
        (gradient,) = torch.autograd.grad((states[0, middle] * torch.randn(32)).sum(), vectors)
        norms = gradient[0].norm(dim=-1)
        curves[name] = list(enumerate(norms.tolist(), 1))
        values[f"norm of the gradient with respect to later tokens, {name}"] = (
            norms[middle + 1 :].max().item()
        )
        other = ids.clone()
        other[0, middle + 1 :] = 1
        with torch.no_grad():
            states, others = (stack(input_ids=each, **options).last_hidden_state for each in (ids, other))
        change = (states - others)[0, : middle + 1].abs().max().item()
        values[f"change of a logit when later tokens change, {name}"] = change
    return Measured(values, {("norm of the gradient of the ninth state", "token"): curves})


def teacher_forcing(seed: int, broken: str = "", lengths: Sequence[int] = (16, 32, 64)) -> Measured:
    """Compute the logits of a text in one pass of a decoder, and token by token with a cache.

    Greedy choices are the most probable tokens at each place. Times are those of the processor.
    """
    model = decoder(**ROTARY).eval()
    times: dict[str, list[tuple[float, float]]] = {"one pass": [], "cached steps": []}
    difference, differing = 0.0, 0
    with torch.no_grad():
        for length in lengths:
            ids = torch.randint(2, 16, (1, length))
            start = time.process_time()
            whole = model(ids).logits
            between = time.process_time()
            stepped = by_steps(model, ids, has_memory=not broken)
            end = time.process_time()
            for name, seconds in (("one pass", between - start), ("cached steps", end - between)):
                times[name].append((math.log2(length), math.log2(1000 * seconds)))
            difference = max(difference, (whole - stepped).abs().max().item())
            differing += int((whole.argmax(-1) != stepped.argmax(-1)).sum())
    return Measured(
        {"largest difference of logits": difference, "greedy choices that differ": differing},
        {("processor time, milliseconds as a power of two", "tokens, as a power of two"): times},
    )


def by_steps(model: nn.Module, ids: Tensor, *, has_memory: bool) -> Tensor:
    """Compute logits token by token, each behind the cache of those before it."""
    cache, logits = None, []
    for place in range(ids.shape[1]):
        positions = torch.tensor([[place]])
        found = model(
            input_ids=ids[:, place : place + 1],
            position_ids=positions,
            cache=cache,
            use_cache=has_memory,
        )
        cache = found[CACHE] if has_memory else None
        logits.append(found.logits)
    return torch.cat(logits, dim=1)
