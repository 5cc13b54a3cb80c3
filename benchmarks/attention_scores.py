"""Compare attention scores: the time that each takes, and what each learns to recall.

    python benchmarks/attention_scores.py                       both, some minutes on one core
    python benchmarks/attention_scores.py --steps 0             the times alone

Times are those of one layer's attention, forward and backward, for a sequence of 512 tokens and four heads of
64 channels, by one thread: processor time, in which other work on the machine counts little. Recall is
associative: a text has pairs of a key and its value, and then the keys in another order, each of which asks
for its value. A decoder of two layers has to learn two steps, which are useful together: a value finds the
token before it, its key, and a key finds the value that knows it. `joined` takes the first step for it: the
vector of each value has that of its key added.
"""

import sys
import time
from argparse import ArgumentParser
from statistics import median

import torch
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


def main(arguments: list[str]) -> int:
    """Print both tables."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500, help="of training at most; 0: none")
    parser.add_argument("--scores", nargs="+", choices=SCORES, default=list(SCORES))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    usual = min(seconds("dot_product"))
    print("| score | minimum | median | minimum by that of dot products |\n|---|---|---|---|")
    for score in options.scores:
        times = seconds(score)
        cells = (
            f"{1000 * min(times):.1f} ms",
            f"{1000 * median(times):.1f} ms",
            f"{min(times) / usual:.1f}x",
        )
        print(f"| {score} | {' | '.join(cells)} |", flush=True)
    if options.steps:
        print("\n| score | recalled | steps | recalled, joined | steps, joined |\n|---|---|---|---|---|")
        print(f"| (most frequent value of the text) | {without_keys():.1%} | | | |")
    for score in options.scores if options.steps else ():
        found = (recall(score, options.steps, is_joined=is_joined) for is_joined in (False, True))
        print(f"| {score} | {' | '.join(f'{share:.1%} | {steps}' for share, steps in found)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
