"""Teach a small decoder to learn from its prompt, and see how much it learns from K demonstrations.

    python lab/examples/learn_in_context.py                       some minutes on two cores
    python lab/examples/learn_in_context.py training.steps=200    other values of the recipe `decoder-recall`

In every world some keys have a value each; lines say `7 C u`, where 7 means nothing. Texts are worlds of one
to four keys: the small ones teach to repeat, the larger ones to look up. Worlds of four that no text has are
asked. Without demonstrations there is nothing to know: one of 26 values. With K of them a key was shown with
probability 1 - (3/4)^K, which is what a perfect reader scores, but for guesses.
"""

import random
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tercet

FOLDER = Path("runs/recall-data")
NUM_LINES = 33
"""Lines of a world: 32 demonstrations, and one more."""

KEYS, NOISES, VALUES = string.ascii_uppercase, string.digits, string.ascii_lowercase
KEYS_OF_A_WORLD = 4
"""At most."""


def draw_world(draw: random.Random, num_keys: int, num_lines: int) -> list[dict[str, str]]:
    """Draw the lines of a world, its keys about equally often."""
    values = dict(zip(draw.sample(KEYS, num_keys), draw.sample(VALUES, num_keys), strict=True))
    keys = draw.choices(list(values), k=num_lines)
    return [{"key": key, "noise": draw.choice(NOISES), "value": values[key]} for key in keys]


def write_text(file: Path, num_worlds: int, seed: int) -> None:
    """Write worlds as documents: lines, and a blank one between two worlds."""
    draw = random.Random(seed)
    sizes = (draw.randint(1, KEYS_OF_A_WORLD) for _ in range(num_worlds))
    worlds = (draw_world(draw, size, NUM_LINES) for size in sizes)
    texts = ("".join(f"{row['noise']} {row['key']} {row['value']}\n" for row in world) for world in worlds)
    file.write_text("\n".join(texts), encoding="utf-8")


def draw_rows(num_worlds: int, seed: int) -> list[dict[str, Any]]:
    """Draw the rows that are asked; those of a world demonstrate each other."""
    draw = random.Random(seed)
    return [
        row | {"world": world}
        for world in range(num_worlds)
        for row in draw_world(draw, KEYS_OF_A_WORLD, 4 * NUM_LINES)  # so that 32 of them read differently
    ]


def main(overrides: Sequence[str]) -> int:
    """Write text, pretrain, ask, and say what was answered and where the report is."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_text(FOLDER / "train.txt", 20_000, seed=0)
    write_text(FOLDER / "validation.txt", 200, seed=1)
    run = tercet.pretrain("decoder-recall", *overrides, overwrite=True)
    asked = tercet.fewshot("recall", models=run, rows=draw_rows(100, seed=2), overwrite=True)
    for name, score in asked.scores.items():
        print(f"{name}: {score}")
    print(asked.report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
