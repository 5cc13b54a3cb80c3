"""Train small decoders on short texts, and see how well they read longer ones, by their kind of positions.

    python examples/extrapolate.py                        20 minutes on half a core
    python examples/extrapolate.py training.steps=200     other values of the recipe `decoder-demo`

All learn from 64 tokens at a time, and read 64, 128 and 256 (Press et al., 2022, figure 1). The validation
text is cut into parts of that length; perplexity is that of all tokens but the first of each part. Writes
runs/extrapolation/extrapolation.png.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

import tercet
from tercet.text.cache import cache_folder
from tercet.text.documentation import read_documentation

FOLDER = Path("runs/extrapolation")
KINDS = ("rotary", "relative_bias", "alibi", "sinusoidal")
TRAINED_LENGTH = 64
LENGTHS = (64, 128, 256)
MOST_TOKENS = 256 * 256
"""Of the validation text that are read."""


def train(kind: str, overrides: Sequence[str]) -> Path:
    """Pretrain a decoder with a kind of positions, and tell where it is."""
    own = [f"model.overrides.position_embedding_type={kind}", f"corpus.sequence_length={TRAINED_LENGTH}"]
    own += [f"model.overrides.max_position_embeddings={LENGTHS[-1]}", f"output={FOLDER / kind}"]
    return tercet.pretrain("decoder-demo", *own, *overrides, overwrite=True).model_path


def validation_ids(model: Path, cache: Path) -> Tensor:
    """Tokenize the validation text, as one stream."""
    documents = read_documentation("validation", cache)
    text = "\n".join(part for _, strings in documents for each in strings for part in each.paragraphs)
    ids = AutoTokenizer.from_pretrained(model)(text, add_special_tokens=False)["input_ids"]
    return torch.tensor(ids[:MOST_TOKENS])


@torch.no_grad()
def perplexity(model: torch.nn.Module, ids: Tensor, length: int) -> float:
    """Read a stream in parts of a length, without what is left over."""
    total, count = 0.0, 0
    for rows in ids[: len(ids) // length * length].view(-1, length).split(4096 // length):
        total += model(input_ids=rows, labels=rows, reduction="sum").loss.item()
        count += rows[:, 1:].numel()
    return math.exp(total / count)


def draw(results: dict[str, list[float]], file: Path) -> None:
    """Draw the perplexities by the number of tokens that are read at once."""
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    for kind, values in results.items():
        axes.plot(LENGTHS, values, marker="o", label=kind)
    axes.set(xlabel="tokens read at once", ylabel="perplexity", yscale="log", xticks=LENGTHS)
    axes.yaxis.set_major_formatter("{x:.0f}")
    axes.yaxis.set_minor_formatter("{x:.0f}")
    axes.set_title(f"trained on {TRAINED_LENGTH} tokens")
    axes.legend()
    figure.savefig(file, dpi=120)


def main(overrides: Sequence[str]) -> int:
    """Train, read, print a table, and draw it."""
    results: dict[str, list[float]] = {}
    for kind in KINDS:
        folder = train(kind, overrides)
        cache = cache_folder(tercet.load_recipe("decoder-demo", *overrides).corpus.cache)
        ids = validation_ids(folder, cache)
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        results[kind] = [perplexity(model, ids, length) for length in LENGTHS]
    print(f"| perplexity at | {' | '.join(map(str, LENGTHS))} |\n|---|{'---:|' * len(LENGTHS)}")
    for kind, values in results.items():
        print(f"| `{kind}` | {' | '.join(f'{value:.1f}' for value in values)} |")
    draw(results, FOLDER / "extrapolation.png")
    print(FOLDER / "extrapolation.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
