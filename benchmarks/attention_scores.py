"""Compare attention scores: the time that each takes, and what each learns to recall.

    python benchmarks/attention_scores.py                       both, some minutes on one core
    python benchmarks/attention_scores.py --steps 0             the times alone

Times are those of one layer's attention, forward and backward, for a sequence of 512 tokens and four heads of
64 channels, by one thread: processor time, in which other work on the machine counts little. Recall is
associative: a text has pairs of a key and its value, and then a key again, whose value is asked. A decoder of
two layers learns it with each score.
"""

import sys
import time
from argparse import ArgumentParser
from statistics import median

import torch
from torch import Tensor

from tercet.modeling import TercetDecoderConfig, TercetDecoderForCausalLM
from tercet.modeling.attention import SelfAttention
from tercet.modeling.attention_scores import SCORES

NUM_SYMBOLS = 16
"""Keys, and as many values."""

NUM_PAIRS = 8
"""Pairs of a text."""


def seconds(score: str, length: int = 512, head_dim: int = 64, repeats: int = 15) -> list[float]:
    """Time forward and backward passes of a layer's attention, in seconds of the processor."""
    config = TercetDecoderConfig(hidden_size=4 * head_dim, num_attention_heads=4, attention_score=score)
    config._attn_implementation = "sdpa"  # a bare layer has no `set_attn_implementation`
    attention = SelfAttention(config, 0, is_causal=True)
    x = torch.randn(1, length, config.hidden_size, requires_grad=True)
    times = []
    for _ in range(repeats + 1):
        begin = time.process_time()
        attention(x, None, None)[0].sum().backward()
        times.append(time.process_time() - begin)
    return times[1:]  # without the first, which sets up


def draw_texts(num_texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts (B, 2 P + 1) of pairs and a key, and the values that are asked, (B,)."""
    keys = torch.rand(num_texts, NUM_SYMBOLS, generator=generator).argsort(-1)[:, :NUM_PAIRS]
    values = torch.randint(NUM_SYMBOLS, keys.shape, generator=generator) + NUM_SYMBOLS
    asked = torch.randint(NUM_PAIRS, (num_texts, 1), generator=generator)
    pairs = torch.stack((keys, values), dim=-1).flatten(1)
    return torch.cat((pairs, keys.gather(1, asked)), dim=1), values.gather(1, asked)[:, 0]


def recall(score: str, steps: int, seed: int = 0) -> float:
    """Train a small decoder, and give the share of held-out texts whose value it recalls."""
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 50, (steps - step) / (0.2 * steps))
        texts, answers = draw_texts(64, generator)
        loss = torch.nn.functional.cross_entropy(model(texts, logits_to_keep=1).logits[:, -1], answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    texts, answers = draw_texts(2000, torch.Generator().manual_seed(seed + 1))
    with torch.inference_mode():
        return (
            (model.eval()(texts, logits_to_keep=1).logits[:, -1].argmax(-1) == answers).float().mean().item()
        )


def main(arguments: list[str]) -> int:
    """Print both tables."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500, help="of the training of each score; 0: none")
    parser.add_argument("--scores", nargs="+", choices=SCORES, default=list(SCORES))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| score | minimum | median |\n|---|---|---|")
    for score in options.scores:
        times = seconds(score)
        print(f"| {score} | {1000 * min(times):.1f} ms | {1000 * median(times):.1f} ms |", flush=True)
    if options.steps:
        print(f"\n| score | recalled after {options.steps} steps |\n|---|---|")
    for score in options.scores if options.steps else ():
        print(f"| {score} | {recall(score, options.steps):.1%} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
