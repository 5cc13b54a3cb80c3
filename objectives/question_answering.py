"""What is learned of answers that are spans: which token of a window is the first one, and which the last.

Shapes: S windows of a batch, T tokens of the longest one.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..training.examples import gather, has_field
from ..training.objective import INDEX, Batch, Example
from .streams import fields_of, one_stream
from .task_objectives import TaskObjective, in_rows, inputs_of, one_entry_each

NO_CHARACTER = -1
"""Where a token begins and ends that stands for no character of the text."""

CHARACTERS = ("begins", "ends")
"""Fields of a batch: where each token begins and ends in the text."""

WINDOW_FIELDS = ("rows", "nowhere")
"""Fields of a batch: the row of each window, and its token that stands for no answer."""


class QuestionAnsweringObjective(TaskObjective[Tensor]):
    """Cross-entropy of the first and of the last token of the answer among those of the window, their mean.

    Args:
        longest_answer: Tokens of a span at most.
    """

    def __init__(self, longest_answer: int):
        super().__init__("answer")
        self.longest_answer = longest_answer

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the windows; labels are (S, 1, 2), `begins` and `ends` streams like the ids."""
        batch = one_stream(gather(examples, "input_ids"))
        batch |= fields_of(examples, along=("token_type_ids", *CHARACTERS), single=(INDEX, *WINDOW_FIELDS))
        if has_field(examples, "labels"):
            batch["labels"] = one_entry_each(gather(examples, "labels"))
        return batch

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Scores of each token as the first and as the last one, (S, T, 2), -inf beyond the window."""
        inputs = inputs_of(batch)
        found = model(**{name: inputs[name] for name in inputs if name not in CHARACTERS + WINDOW_FIELDS})
        scores = torch.stack((found.start_logits[0], found.end_logits[0]), dim=-1)
        return in_rows(scores, batch["cu_seq_lens_q"], batch["max_length_q"], -torch.inf)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Sum over the windows."""
        return F.cross_entropy(outputs.float(), batch["labels"][:, 0], reduction="sum") / 2

    def answers(self, outputs: Tensor, batch: Batch) -> list[np.ndarray]:
        """Return five numbers of each window, (5,).

        Its row, the characters from and up to which its best span goes, and the logarithms of the
        probabilities of this span and of there being no answer.
        """
        sizes = batch["cu_seq_lens_q"], batch["max_length_q"]
        begins, ends = (in_rows(batch[name][0], *sizes, NO_CHARACTER) for name in CHARACTERS)
        scores = outputs.float().log_softmax(1)
        windows = torch.arange(len(scores), device=scores.device)
        start, end = scores.masked_fill((begins == NO_CHARACTER)[..., None], -torch.inf).unbind(-1)
        found, first, last = best_spans(start, end, self.longest_answer)
        none = scores[windows, batch["nowhere"]].sum(-1)
        columns = (batch["rows"], begins[windows, first], ends[windows, last], found, none)
        return list(np.column_stack([column.cpu().numpy() for column in columns]))


def best_spans(start: Tensor, end: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the span of each row whose scores of start and end (S, T) sum up to most: sum, first, last (S,).

    All spans of at most `longest` tokens are tried.
    """
    reach = min(longest, start.shape[1])
    sums = start[..., None] + F.pad(end, (0, reach - 1), value=-torch.inf).unfold(-1, reach, 1)
    best, place = sums.flatten(1).max(-1)
    return best, place // reach, place // reach + place % reach
