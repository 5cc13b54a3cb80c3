"""Show that a shift by k positions is one linear map of sinusoidal positions, wherever it begins.

    python examples/shift_positions.py                        prints how exact it is, and draws it
    python examples/shift_positions.py docs/sinusoids.png     into a file of your own

PE(p + k) = PE(p) M_k, where M_k turns each pair of channels, a sine and a cosine of one frequency w, by the
angle k w (Vaswani et al., 2017, section 3.5). M_k does not depend on p: attention can therefore learn to look
a certain number of tokens back, as rotary positions do by construction (Su et al., 2021, section 3.2.2).
"""

import sys
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from tercet import TercetEncoderConfig
from tercet.modeling.layers.positions import SinusoidalPositions, frequencies_of

WIDTH = 16
NUM_POSITIONS = 256
SHIFT = 5
PAIRS = (0, 1, 2)
"""Which pairs of channels are drawn; the first turns by one radian a token, the others more slowly."""

STARTS = (0, 3, 11)
"""Positions from which arrows lead to those of the shift."""


def vectors() -> Tensor:
    """Compute the vectors of all positions, (T, E)."""
    config = TercetEncoderConfig(
        hidden_size=WIDTH, num_attention_heads=2, position_embedding_type="sinusoidal"
    )
    return SinusoidalPositions(config).embed(torch.arange(NUM_POSITIONS)[None])[0]


def shift_matrix(shift: int) -> Tensor:
    """Compute M_k, (E, E): a rotation of each pair of channels."""
    angles = shift * frequencies_of(WIDTH, 10_000.0, torch.device("cpu"))
    cosines, sines = angles.cos(), angles.sin()
    blocks = torch.stack((cosines, -sines, sines, cosines), dim=-1).view(-1, 2, 2)
    return torch.block_diag(*blocks)


def draw_pair(axes: Axes, points: Tensor, pair: int) -> None:
    """Draw a pair of channels (T, 2) at all positions, and an arrow from some to where the shift leads."""
    axes.plot(*points.T, ".", color="lightgray")
    for number, start in enumerate(STARTS):
        (x, y), (end_x, end_y) = points[[start, start + SHIFT]].tolist()
        arrow = {"arrowstyle": "->", "color": f"C{number}"}
        axes.annotate("", xy=(end_x, end_y), xytext=(x, y), arrowprops=arrow)
        axes.text(1.12 * x, 1.12 * y, str(start), ha="center", va="center")
        axes.text(1.12 * end_x, 1.12 * end_y, str(start + SHIFT), ha="center", va="center")
    angle = SHIFT * float(frequencies_of(WIDTH, 10_000.0, torch.device("cpu"))[pair])
    axes.set(aspect="equal", xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), xlabel="sine", ylabel="cosine")
    axes.set_title(f"channels {2 * pair} and {2 * pair + 1}: by {angle:.2f} rad")


def main(file: Path) -> int:
    """Compare PE(p + k) with PE(p) M_k at all positions, and draw three pairs of channels."""
    table = vectors()
    error = (table[:-SHIFT] @ shift_matrix(SHIFT) - table[SHIFT:]).abs().max().item()
    print(f"PE(p + {SHIFT}) and PE(p) M_{SHIFT} differ by {error:.1e} at most, p < {NUM_POSITIONS - SHIFT}")
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axes, pair in zip(figure.subplots(1, len(PAIRS)), PAIRS, strict=True):
        draw_pair(axes, table[:NUM_POSITIONS, 2 * pair : 2 * pair + 2], pair)
    figure.suptitle(f"from p to p + {SHIFT}: one rotation of each pair of channels, for every p")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/sinusoids.png")))
