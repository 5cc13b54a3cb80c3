"""Which of a teacher's layers a student begins with, and which of theirs are compared.

    teacher   0  1  2  3  4  5  6  7  8  9 10 11      half of them:
    every     0     2     4     6     8    10         every k-th (Sanh et al., 2019, section 3)
    spread    0     2     4        7     9    11      evenly from the first to the last: DistilBERT's own code
    first     0  1  2  3  4  5
    last                        6  7  8  9 10 11

Legend: L layers of the teacher, K of the student.
"""

from collections.abc import Sequence
from typing import Literal

from ..modeling import TercetConfig, TercetDecoderConfig, TercetSeq2SeqConfig

LayerChoice = Literal["every", "spread", "first", "last"] | tuple[int, ...]
"""A rule, or the numbers of the layers, counted from 0."""


def choose_layers(
    choice: LayerChoice, depth: int, count: int | None, key: str, key_of_count: str
) -> list[int]:
    """Choose `count` layers of a teacher (half by default) out of `depth`; errors name the keys of a recipe.

    >>> choose_layers("spread", 12, 6, "student.layers", "student.num_layers")
    [0, 2, 4, 7, 9, 11]
    """
    if not isinstance(choice, str):
        return list(checked_list(choice, depth, count, key, key_of_count))
    count = max(depth // 2, 1) if count is None else count
    if not 0 < count <= depth:
        raise ValueError(f"{key_of_count} is {count}, but the teacher has {depth} layers: take fewer")
    match choice:
        case "first":
            return list(range(count))
        case "last":
            return list(range(depth - count, depth))
        case "spread":
            return [round(number * (depth - 1) / max(count - 1, 1)) for number in range(count)]
        case "every":
            if depth % count:
                raise ValueError(
                    f"{key} is every, but {count} layers do not divide {depth}: choose spread, or list the "
                    f"layers"
                )
            return list(range(0, depth, depth // count))


def checked_list(
    layers: Sequence[int], depth: int, count: int | None, key: str, key_of_count: str
) -> Sequence[int]:
    """Return listed layers, unless they do not fit the teacher."""
    if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0 or layers[-1] >= depth:
        raise ValueError(
            f"{key} is {list(layers)}, but the teacher's layers are 0 to {depth - 1}: list some of these, "
            "each once, in their order"
        )
    if count is not None and count != len(layers):
        raise ValueError(f"{key} lists {len(layers)} layers, but {key_of_count} is {count}: leave that out")
    return layers


def paired_layers(student_depth: int, teacher_depth: int) -> list[tuple[int, int]]:
    """Pair the states below and above the student's layers with the teacher's at the same height.

    State 0 is what the first layer reads, state i what the i-th has made of it (Jiao et al., 2020, section
    3.1, with their uniform strategy).

    >>> paired_layers(2, 6)
    [(0, 0), (1, 3), (2, 6)]
    """
    return [(number, round(number * teacher_depth / student_depth)) for number in range(student_depth + 1)]


def stacks_of(config: TercetConfig) -> tuple[str, ...]:
    """Name the stacks of a member; the last one's tokens are what it predicts."""
    if isinstance(config, TercetSeq2SeqConfig):
        return "encoder", "decoder"
    return ("decoder",) if isinstance(config, TercetDecoderConfig) else ("encoder",)
