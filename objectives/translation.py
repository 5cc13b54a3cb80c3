"""Translation: write in one language what was said in another (Vaswani et al., 2017), with teacher forcing.

Any pairs of texts do: summaries of articles, or numbers and their sorted order, are translations as well.

Legend: S sequences.
"""

from collections.abc import Sequence

import numpy as np

from ..training.examples import gather
from ..training.objective import Example
from .teacher_forcing import TeacherForcing


class Translation(TeacherForcing):
    """Write the target of a pair; the term is `translation`.

    Args:
        decoder_start_id: What the decoder reads first.
        label_smoothing: See `TeacherForcing`; 0.1 in the paper.
    """

    def __init__(self, decoder_start_id: int, label_smoothing: float = 0.1):
        super().__init__("translation", decoder_start_id, label_smoothing)

    def pairs(
        self, examples: Sequence[Example], rng: np.random.Generator
    ) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Take the pairs as they are: `input_ids` and `labels`, both with the end-of-sequence token."""
        return gather(examples, "input_ids"), gather(examples, "labels")
