"""Ranking: each query has to tell its own text from those of the other rows.

These are the negatives (Henderson et al., 2017, section 4.4; Karpukhin et al., 2020, section 3.2), and the
loss is a softmax over cosines divided by a temperature (Gao et al., 2021, section 2). Which rows they are of
must depend neither on how steps are cut into micro-batches nor on how many processes share them. So rows are
grouped before that, and a group is what the engine calls a sequence:

    stream of a batch       query text  query text  query text  query text
    bounds (cu_seq_lens)    ^ group                 ^ group                ^
    position_ids            0 1 2 0 1   0 1 0 1 2   ...                        restart at every text

Groups hold rows of like length, since a step's examples come in this order: the length of a text does not
give away to which query it belongs.

Shapes: P rows of a batch, R texts of a row (the query first), D documents (all texts but queries), S texts of
a batch, N their tokens, C width of a vector.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..modeling.attention.packing import sequence_ids
from ..training.examples import gather, has_field
from ..training.objective import Batch, Example
from ..training.packing import Ragged, restarting_positions
from ..training.static_shapes import POSITIONS
from .streams import one_stream
from .task_objectives import TaskObjective, first_tokens, texts_within


class RankingObjective(TaskObjective[Tensor]):
    """Cross-entropy of each query over the documents of its group.

    Args:
        texts_of_row: R: a query, its positive, and perhaps its negative.
        group_size: Rows of a group, about.
        temperature: What cosines are divided by.
    """

    def __init__(self, texts_of_row: int, group_size: int, temperature: float):
        super().__init__("query")
        self.texts_of_row = texts_of_row
        self.group_size = group_size
        self.temperature = temperature

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the texts of all rows; `labels` (1, N) number the distinct ones, at each of their tokens.

        `index` has an entry for each row, not for each group, and is no tensor: it is left behind where
        batches are cut.
        """
        rows, lengths = gather(examples, "input_ids"), gather(examples, "text_lengths").values
        edges = group_edges(len(rows), self.group_size)
        batch = one_stream(Ragged(rows.values, np.add.reduceat(rows.lengths, edges[:-1])))
        batch["position_ids"] = torch.from_numpy(restarting_positions(lengths))[None]
        batch["index"] = gather(examples, "index").values
        if has_field(examples, "labels"):
            batch["labels"] = torch.from_numpy(gather(examples, "labels").values.repeat(lengths))[None]
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the queries."""
        return {self.term: (batch["position_ids"] == 0).sum() // self.texts_of_row}

    def predicted(self, batch: Batch) -> Tensor:
        """List the first tokens of the texts."""
        return first_tokens(batch)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Vectors of all texts, of length 1, (S, C)."""
        texts = texts_within(batch)
        longest = batch["max_length_q"] if POSITIONS in batch else None
        return model(
            input_ids=batch["input_ids"],
            position_ids=batch["position_ids"],
            cu_seq_lens_q=texts.bounds,
            cu_seq_lens_k=texts.bounds,
            max_length_q=longest,
            max_length_k=longest,
        ).sentence_embeddings[texts.numbers]

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Sum over the queries."""
        return F.cross_entropy(*self.contest(outputs, batch), reduction="sum")

    def contest(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Score each query's documents, (P, D), -inf where they do not compete; say its own, (P,)."""
        num_tokens = batch["input_ids"].shape[1]
        begins = texts_within(batch).begins
        begins = begins[: len(begins) // self.texts_of_row * self.texts_of_row]
        is_filling = begins == num_tokens
        places = begins.clamp(max=num_tokens - 1)
        groups = sequence_ids(batch["cu_seq_lens_q"], num_tokens)[0, places].masked_fill(is_filling, -1)
        by_row = partial(torch.unflatten, dim=0, sizes=(-1, self.texts_of_row))
        texts, groups = by_row(batch["labels"][0, places]), by_row(groups)[:, 0]  # (P, R), (P)
        embeddings = by_row(outputs[: len(begins)].float())  # (P, R, C)
        scores = embeddings[:, 0] @ embeddings[:, 1:].flatten(0, 1).T / self.temperature  # (P, D)
        own = torch.arange(len(texts), device=scores.device) * (self.texts_of_row - 1)
        compete = competing(texts, groups) & (groups >= 0)[:, None]
        return scores.masked_fill(~compete.scatter(1, own[:, None], True), -torch.inf), own

    def answers(self, outputs: Tensor, batch: Batch) -> list[np.ndarray]:
        """Return the vectors of each row's texts, (R, C), or its query's alone, (1, C)."""
        return list(outputs.float().unflatten(0, (len(batch["index"]), -1)).cpu().numpy())


def group_edges(num_rows: int, group_size: int) -> np.ndarray:
    """Cut rows into groups that are nearly as large as each other and as wanted: the edges.

    >>> group_edges(11, 4).tolist()
    [0, 3, 7, 11]
    """
    num_groups = max(round(num_rows / group_size), 1)
    return np.arange(num_groups + 1) * num_rows // num_groups


def competing(texts: Tensor, groups: Tensor) -> Tensor:
    """Return which documents each query has to be told from, (P, D).

    They are those of its group that do not belong to it: no row of the group with the same query has this
    text as its positive, wherever else it stands.

    Args:
        texts: Numbers of the texts, equal where these are, (P, R).
        groups: The group of each row, (P,).
    """
    documents = texts[:, 1:].flatten()
    in_group = groups[:, None] == groups  # (P, P)
    has_same_query = in_group & (texts[:, :1] == texts[:, 0])
    is_positive = texts[:, 1:2] == documents  # (P, D)
    belongs = has_same_query.float() @ is_positive.float() > 0
    return in_group.repeat_interleave(texts.shape[1] - 1, dim=1) & ~belongs
