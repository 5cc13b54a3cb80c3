"""Compare attention scores: the time that each takes, and what each learns to recall.

Times are those of one layer's attention, forward and backward, for a sequence of 512 tokens and four heads of
64 channels, by one thread: processor time, in which other work on the machine counts little. Recall is
associative: a text has pairs of a key and its value, and then the keys in another order, each of which asks
for its value. A decoder of two layers has to learn two steps, which are useful together: a value finds the
token before it, its key, and a key finds the value that knows it. `joined` takes the first step for it: the
vector of each value has that of its key added.
"""

import time
from argparse import Namespace
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from measuring import Conditions, in_fresh_process
from publishing import Result, describe_run, lines_of, table
from speed import Benchmark
from torch import Tensor

from tercet.modeling import TercetDecoderConfig, TercetDecoderForCausalLM
from tercet.modeling.attention.multi_head import SelfAttention
from tercet.modeling.attention.scores import SCORES

NUM_SYMBOLS = 16
"""Keys, and as many values."""

NUM_PAIRS = 8
"""Pairs of a text."""

LEARNED = 1e-3
"""Loss of a batch below which training ends."""


@dataclass(frozen=True)
class ScoreCase:
    """A score, and the size of the attention that is timed."""

    score: str
    length: int = 512
    head_dim: int = 64
    repeats: int = 15

    def shrunk(self) -> "ScoreCase":
        """Return the same so small that it takes no time."""
        return replace(self, length=16, head_dim=8, repeats=2)


def seconds(case: ScoreCase) -> list[float]:
    """Time forward and backward passes of a layer's attention, in seconds of the processor."""
    hidden_size = 4 * case.head_dim
    config = TercetDecoderConfig(hidden_size=hidden_size, num_attention_heads=4, attention_score=case.score)
    config._attn_implementation = "sdpa"  # a bare layer has no `set_attn_implementation`
    attention = SelfAttention(config, 0, is_causal=True)
    x = torch.randn(1, case.length, config.hidden_size, requires_grad=True)
    times = []
    for _ in range(case.repeats + 1):
        begin = time.process_time()
        attention(x, None, None)[0].sum().backward()
        times.append(time.process_time() - begin)
    return times[1:]  # without the first, which sets up


def draw_texts(num_texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts (B, 3 P) of pairs, then of their keys in another order, and the values of these, (B, P)."""
    keys = torch.rand(num_texts, NUM_SYMBOLS, generator=generator).argsort(-1)[:, :NUM_PAIRS]
    values = torch.randint(NUM_SYMBOLS, keys.shape, generator=generator) + NUM_SYMBOLS
    order = torch.rand(keys.shape, generator=generator).argsort(-1)
    pairs = torch.stack((keys, values), dim=-1).flatten(1)
    return torch.cat((pairs, keys.gather(1, order)), dim=1), values.gather(1, order)


def recall(score: str, steps: int, *, is_joined: bool = False, seed: int = 0) -> tuple[float, int]:
    """Train a small decoder, and give the share of held-out values that it recalls, and the steps taken.

    Args:
        score: By which it attends.
        steps: At most.
        is_joined: Whether the vector of each value has that of its key added.
        seed: Of weights and texts.
    """
    torch.manual_seed(seed)
    config = TercetDecoderConfig(
        vocab_size=2 * NUM_SYMBOLS,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        attention_score=score,
    )
    model = TercetDecoderForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 50, (steps - step) / (0.2 * steps))
    )
    generator, num_steps, last_loss = torch.Generator().manual_seed(seed), 0, torch.inf
    while num_steps < steps and last_loss > LEARNED:
        texts, answers = draw_texts(64, generator)
        logits = values_read(model, texts, is_joined)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        num_steps, last_loss = num_steps + 1, loss.item()
    texts, answers = draw_texts(2000, torch.Generator().manual_seed(seed + 1))
    with torch.inference_mode():
        found = values_read(model.eval(), texts, is_joined).argmax(-1)
    return (found == answers).float().mean().item(), num_steps


def values_read(model: TercetDecoderForCausalLM, texts: Tensor, is_joined: bool) -> Tensor:
    """Compute the logits (B, P, V) of the values of the last keys."""
    vectors = model.get_input_embeddings()(texts)
    if is_joined:
        keys, values = slice(0, 2 * NUM_PAIRS, 2), slice(1, 2 * NUM_PAIRS, 2)
        joined = vectors.clone()
        joined[:, values] += vectors[:, keys]
        vectors = joined
    return model(inputs_embeds=vectors, logits_to_keep=NUM_PAIRS).logits


def without_keys(seed: int = 1) -> float:
    """Return the share of values that equal the most frequent of their text: the best guess without a key."""
    _, answers = draw_texts(2000, torch.Generator().manual_seed(seed))
    return (answers == answers.mode(-1, keepdim=True).values).float().mean().item()


def measure_case(case: ScoreCase, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Time a score, and train with it if `--steps` are given."""
    found: dict[str, Any] = {"seconds": in_fresh_process(conditions, seconds, case)}
    if options.steps:
        for name, is_joined in (("recall", False), ("recall_joined", True)):
            learn = partial(recall, case.score, options.steps, is_joined=is_joined)
            found[name] = in_fresh_process(conditions, learn)
    return found


def render(result: Result) -> str:
    """Write both tables; times are related to those of dot products where these were measured."""
    cases = result["cases"]
    usual = min(cases.get("dot_product", next(iter(cases.values())))["seconds"])
    rows = [
        {"score": name, "minimum": 1000 * min(own), "median": 1000 * median(own), "ratio": min(own) / usual}
        for name, own in ((name, case["seconds"]) for name, case in cases.items())
    ]
    lines = [*describe_run(result), "", *table(TIMES, rows, "l")]
    learned = [
        [name, *(f"{share:.1%} | {steps}" for share, steps in (case["recall"], case["recall_joined"]))]
        for name, case in cases.items()
        if "recall" in case
    ]
    if learned:
        head = ["score", "recalled", "steps", "recalled, joined", "steps, joined"]
        guess = ["(most frequent value of the text)", f"{without_keys():.1%}", "", "", ""]
        lines += ["", *lines_of(head, [guess, *learned], "l")]
    return "\n".join(lines)


TIMES = {
    "score": "{score}",
    "minimum": "{minimum:.1f} ms",
    "median": "{median:.1f} ms",
    "minimum by that of dot products": "{ratio:.1f}x",
}

BENCHMARK = Benchmark(
    {name: ScoreCase(name) for name in SCORES},
    measure_case,
    text=render,
    options={"--steps": {"type": int, "default": 1500, "help": "of training at most; 0: none"}},
    defaults={"threads": 1},
)
