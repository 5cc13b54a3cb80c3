"""Ranking: vectors of queries, and of the texts that belong to them, that are near each other.

Each query has to tell its own text from those of other rows. These are the negatives (Henderson et al., 2017,
section 4.4; Karpukhin et al., 2020, section 3.2), and the loss is a softmax over cosines divided by a
temperature (Gao et al., 2021, section 2). Which rows they are of must depend neither on how steps are cut
into micro-batches nor on how many processes share them. So rows are grouped before that, and a group is what
the engine calls a sequence:

    stream of a batch       query text  query text  query text  query text
    bounds (cu_seq_lens)    ^ group                 ^ group                ^
    position_ids            0 1 2 0 1   0 1 0 1 2   ...                        restart at every text

Groups hold rows of like length, since a step's examples come in this order: the length of a text does not
give away to which query it belongs.

A split is searched as a whole: for each query, among the texts of all rows. What belongs to a query are the
positives of all rows that have it, and it counts once, in however many rows it stands. Its own text, where
other rows have it as a document, is neither a negative nor found, unless it is one of its positives.

Shapes: E rows of a split, P of a batch, R texts of a row (the query first), Q distinct queries, D distinct
documents (all texts but queries), or those of a batch, S texts of a batch, N their tokens, C width of a
vector.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ...data.files.columns import texts_of
from ...data.steps.examples import gather, has_field
from ...data.steps.objective import INDEX, Batch, Example
from ...data.steps.packing import Ragged, ragged, restarting_positions
from ...data.steps.static_shapes import POSITIONS
from ...data.steps.streams import one_stream
from ...modeling import TercetConfig
from ...modeling.attention.packing import sequence_ids
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.length import max_length
from ...modeling.saved.sentence_vectors import SentenceVectors, find_vectors, sentence_files
from ...training.metrics.ranking import query_scores
from ..encoding import LabelledExamples, TextEncoder, vectors
from .objectives import TaskObjective, first_tokens, group_edges, texts_within
from .recipes import ColumnFields, RowsRecipe
from .task import Facts, Prediction, Predictions, RowScore, Task


class RankingObjective(TaskObjective[Tensor]):
    """Cross-entropy of each query over the documents of its group.

    Args:
        texts_of_row: R: a query, its positive, and perhaps its negative.
        group_size: Rows of a group, about.
        temperature: What cosines are divided by.
    """

    reads_whole_step = True  # which rows are a group depends on how many rows there are

    def __init__(self, texts_of_row: int, group_size: int, temperature: float):
        super().__init__("query")
        self.texts_of_row = texts_of_row
        self.group_size = group_size
        self.temperature = temperature

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # `labels` (1, N) number the distinct texts, at each of their tokens. `INDEX` has an entry for each
        # row, not for each group, and is no tensor: it is left behind where batches are cut.
        rows, lengths = gather(examples, "input_ids"), gather(examples, "text_lengths").values
        edges = group_edges(len(rows), self.group_size)
        batch = one_stream(Ragged(rows.values, np.add.reduceat(rows.lengths, edges[:-1])))
        batch["position_ids"] = torch.from_numpy(restarting_positions(lengths))[None]
        batch[INDEX] = gather(examples, INDEX).values
        if has_field(examples, "labels"):
            batch["labels"] = torch.from_numpy(gather(examples, "labels").values.repeat(lengths))[None]
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: (batch["position_ids"] == 0).sum() // self.texts_of_row}

    def predicted(self, batch: Batch) -> Tensor:
        return first_tokens(batch)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        # of length 1, (S, C)
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
        return F.cross_entropy(*self.logits_and_targets(outputs, batch), reduction="sum")

    def logits_and_targets(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
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
        # the vectors of each row's texts, (R, C), or its query's alone, (1, C)
        return list(outputs.float().unflatten(0, (len(batch[INDEX]), -1)).cpu().numpy())


def competing(texts: Tensor, groups: Tensor) -> Tensor:
    """Return which documents each query has to be told from, (P, D).

    They are those of its group that are not the query's own text and do not belong to it: no row of the group
    with the same query has this text as its positive, wherever else it stands.

    Args:
        texts: Numbers of the texts, equal where these are, (P, R).
        groups: The group of each row, (P,).
    """
    documents = texts[:, 1:].flatten()
    in_group = groups[:, None] == groups  # (P, P)
    has_same_query = in_group & (texts[:, :1] == texts[:, 0])
    is_positive = texts[:, 1:2] == documents  # (P, D)
    belongs = has_same_query.float() @ is_positive.float() > 0
    is_other = texts[:, :1] != documents  # (P, D)
    return in_group.repeat_interleave(texts.shape[1] - 1, dim=1) & is_other & ~belongs


SHOWN_DOCUMENTS = 10
"""Documents of a prediction: the nearest ones."""

SHOWN_DIGITS = 6
"""Digits of similarities and vectors in predictions."""

QUERIES_AT_ONCE = 256
"""Queries that are compared with all documents at once."""


@dataclass(frozen=True)
class Collection:
    """What is searched for and in: the distinct texts of a split."""

    queries: list[str]
    """Each once."""
    documents: list[str]
    """Positives and negatives, each once."""
    query_of_row: np.ndarray
    """Numbers of the rows' queries, (E,)."""
    documents_of_row: np.ndarray
    """Numbers of the rows' documents, the positive first, (E, R - 1)."""

    @cached_property
    def relevant(self) -> list[set[int]]:
        """The documents that belong to each query: the positives of all its rows."""
        relevant: list[set[int]] = [set() for _ in self.queries]
        for query, document in zip(self.query_of_row, self.documents_of_row[:, 0], strict=True):
            relevant[query].add(int(document))
        return relevant

    @property
    def repeated(self) -> np.ndarray:
        """The document that repeats each query without belonging to it, (Q,), or -1."""
        places = {text: place for place, text in enumerate(self.documents)}
        own = [places.get(text, -1) for text in self.queries]
        return np.array(
            [-1 if each in wanted else each for each, wanted in zip(own, self.relevant, strict=True)]
        )


class Wanted(NamedTuple):
    """What a row is compared with."""

    texts: list[str]
    """All that belong to its query."""
    is_first_of_query: bool
    """Whether no row before it has the same query: only the first one counts."""


@dataclass(frozen=True)
class RankingRecipe(RowsRecipe):
    """Texts that answer a query: sentence embeddings that are close to each other (semantic search)."""

    COLUMNS = ColumnFields(("query",), ("positive", "negative"))
    TERMS = {"ranking": ("searches", "sentence-similarity")}
    METRICS = {
        "mrr": "MRR",
        "ndcg@10": "nDCG@10",
        "recall@1": "recall@1",
        "recall@10": "recall@10",
        "map": "MAP",
    }

    kind: Literal["ranking"]
    query: str = "query"
    """Column of the query."""
    positive: str = "positive"
    """Column of a text that answers it."""
    negative: str | None = None
    """Column of a hard negative, in addition to the in-batch negatives."""
    group_size: Annotated[int, Field(gt=1)] = 32
    """Approximate number of rows that share in-batch negatives: the texts of the other rows of the group are
    negatives. Larger groups give a better training signal, but a group is always one forward pass, whatever
    `training.tokens_per_micro_batch` is. A step of fewer rows (`training.batch_size`) is one group."""
    temperature: Annotated[float, Field(gt=0)] = 0.05
    """Divisor of the cosine similarities."""
    pooling: Literal["first", "last", "mean"] | None = None
    """Embedding of a text: the mean of its tokens (Reimers and Gurevych, 2019, section 3), or one of them. By
    default, what the model's folder says (sentence-transformers' `modules.json`), else the mean."""
    query_prompt: str | None = None
    """What is put before each query; by default, the prompt that the model's folder has for queries."""
    document_prompt: str | None = None
    """What is put before each other text; by default, the prompt that the model's folder has for these."""
    metric_for_best_model: Literal["mrr", "ndcg@10", "recall@1", "recall@10"] = "mrr"
    """Metric that selects the best checkpoint."""

    def build(self, facts: Facts | None = None) -> "Ranking":
        return Ranking(self, facts)


class Ranking(Task):
    """Vectors of queries and documents."""

    title = "Semantic search"
    head = "ForSentenceEmbedding"
    learns_texts = True
    recipe: RankingRecipe
    metrics = {"mrr": True, "ndcg@10": True, "recall@1": True, "recall@10": True, "map": True, "loss": False}
    baseline = "most frequent documents"
    drawn_unit = "distinct queries"

    def settled(self, model: Checkpoint) -> tuple[RankingRecipe, int | None]:
        task, config = self.recipe, model.config
        remedy = "set task.pooling to train the model with that alone, or choose another model"
        found = find_vectors(model.folder, remedy, task.pooling)
        if found is None:
            is_ours = (config.architectures or [""])[0].endswith(self.head)
            found = SentenceVectors(task.pooling or (config.classifier_pooling if is_ours else "mean"))
        longest = found.max_length and max_length(config, found.max_length)
        settled = {
            "pooling": found.pooling,
            "query_prompt": found.query_prompt if task.query_prompt is None else task.query_prompt,
            "document_prompt": (
                found.document_prompt if task.document_prompt is None else task.document_prompt
            ),
        }
        return replace(task, **settled), longest

    def find(self, train: Dataset) -> Facts:
        columns = self.recipe.label_columns
        if len(set(chain.from_iterable(texts_of(train, column) for column in columns))) < 2:
            raise ValueError(
                f"all rows have the same text in {' and '.join(columns)}: there is nothing to learn; add "
                "rows with others, or name other columns"
            )
        return {}

    @property
    def config_fields(self) -> dict[str, Any]:
        return {"classifier_pooling": self.recipe.pooling or "mean"}

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        # the texts of each row end to end, or its query alone; distinct ones are numbered
        columns = self.recipe.input_columns + (self.recipe.label_columns if labelled else ())
        texts = [texts_of(rows, column) for column in columns]
        prompts = [self.recipe.query_prompt or "", *[self.recipe.document_prompt or ""] * (len(columns) - 1)]
        prompted = ([prompt + text for text in own] for prompt, own in zip(prompts, texts, strict=True))
        ids = [encoder.encode(column)["input_ids"] for column in prompted]
        lengths = np.stack([column.lengths for column in ids], axis=1)
        end_to_end = ragged(list(chain.from_iterable(zip(*ids, strict=True))))
        fields = {
            "input_ids": Ragged(end_to_end.values, lengths.sum(axis=1)),
            "text_lengths": vectors(lengths),
        }
        if labelled:
            _, numbers = distinct(chain.from_iterable(texts))
            fields["labels"] = vectors(numbers.reshape(len(columns), len(rows)).T)
        return LabelledExamples(fields)

    def objective(self) -> RankingObjective:
        texts_of_row = 1 + len(self.recipe.label_columns)
        return RankingObjective(texts_of_row, self.recipe.group_size, self.recipe.temperature)

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        # without documents, the vector of the query
        embeddings = np.stack(answers)  # (E, R, C)
        if embeddings.shape[1] == 1:
            return [{"embedding": rounded(vector)} for vector in embeddings[:, 0]]
        collection = self.collect(rows)
        queries = embeddings[first_rows(collection.query_of_row), 0]
        documents = embeddings[:, 1:].reshape(-1, embeddings.shape[-1])
        documents = documents[first_rows(collection.documents_of_row.ravel())]
        return search(collection, (part @ documents.T for part in parts(queries)))

    def collect(self, rows: Dataset) -> Collection:
        """Find the distinct texts of a split."""
        queries, query_of_row = distinct(texts_of(rows, self.recipe.query))
        columns = [texts_of(rows, column) for column in self.recipe.label_columns]
        documents, document_of_text = distinct(chain.from_iterable(columns))
        return Collection(queries, documents, query_of_row, document_of_text.reshape(len(columns), -1).T)

    def references(self, rows: Dataset) -> list[Wanted]:
        collection = self.collect(rows)
        texts = [[collection.documents[each] for each in sorted(own)] for own in collection.relevant]
        is_first = np.isin(np.arange(len(rows)), first_rows(collection.query_of_row)).tolist()
        return [
            Wanted(texts[query], first)
            for query, first in zip(collection.query_of_row, is_first, strict=True)
        ]

    def score(self, predictions: Predictions, references: Sequence[Wanted]) -> dict[str, float]:
        # of the distinct queries, which are in the predictions of their rows
        counted, _ = self.drawn(predictions, references)
        names = [name for name in self.metrics if name != "loss"]
        return {name: float(np.mean([each[name] for each in counted])) for name in names}

    def drawn_rows(self, references: Sequence[Wanted]) -> list[int]:
        return [row for row, wanted in enumerate(references) if wanted.is_first_of_query]

    def score_of_rows(self, predictions: Predictions, references: Sequence[Wanted]) -> RowScore:
        values = np.array([each[self.metric_for_best_model] for each in predictions])
        return lambda queries: float(values[queries].mean())

    def error(self, predictions: Predictions, references: Sequence[Wanted]) -> np.ndarray:
        # how far the first right text is from the top
        return 1 - np.array([each["mrr"] for each in predictions])

    def format_prediction(self, prediction: Prediction) -> str:
        return prediction["ranked"][0]

    def format_reference(self, reference: Wanted) -> str:
        return " | ".join(reference.texts)

    def companions(self, config: TercetConfig, max_length: int) -> dict[str, Any]:
        # what sentence-transformers reads, and the length that servers of vectors look for there
        files = vector_files(config, self.recipe.query_prompt or "", self.recipe.document_prompt or "")
        return files | {"sentence_bert_config.json": {"max_seq_length": max_length}}

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        # First what belongs to most training rows. Documents that are new, as most are in most data, come
        # last, and those that belong to the query behind the others.
        collection = self.collect(rows)
        counts = Counter(texts_of(train, self.recipe.positive))
        popularity = np.array([counts[document] for document in collection.documents], dtype=np.float32)
        every = np.broadcast_to(popularity, (len(collection.queries), len(popularity)))
        return search(collection, parts(every))


def search(collection: Collection, similarities: Iterator[np.ndarray]) -> list[Prediction]:
    """Rank the documents of a collection for each row: the nearest ones, and how good the ranking is.

    A document that repeats the query without belonging to it is not found.

    Args:
        collection: What is searched.
        similarities: Those of some queries with all documents, (q, D), until all queries had their turn.
    """
    relevant, repeated, found = collection.relevant, collection.repeated, []
    for part in map(np.array, similarities):
        these = slice(len(found), len(found) + len(part))
        repeats = np.flatnonzero(repeated[these] >= 0)
        part[repeats, repeated[these][repeats]] = -np.inf
        scores = query_scores(part, relevant[these])
        nearest = np.argsort(-part, axis=1, kind="stable")[:, :SHOWN_DOCUMENTS]
        for query, documents in enumerate(nearest):
            documents = documents[part[query, documents] != -np.inf]
            found.append(
                {
                    "ranked": [collection.documents[document] for document in documents],
                    "similarities": rounded(part[query, documents]),
                    **{name: float(values[query]) for name, values in scores.items()},
                }
            )
    return [found[query] for query in collection.query_of_row]


def parts(queries: np.ndarray) -> Iterator[np.ndarray]:
    """Cut rows, one for each query, into parts that are looked at together."""
    for first in range(0, len(queries), QUERIES_AT_ONCE):
        yield queries[first : first + QUERIES_AT_ONCE]


def distinct(texts: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """Keep each text once, in their order; number all by that.

    >>> distinct(["b", "a", "b"])
    (['b', 'a'], array([0, 1, 0]))
    """
    numbers: dict[str, int] = {}
    of_each = [numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), np.array(of_each)


def first_rows(numbers: np.ndarray) -> np.ndarray:
    """Find where each of the numbers 0, 1, ... occurs first."""
    return np.unique(numbers, return_index=True)[1]


def rounded(values: np.ndarray) -> list[float]:
    return values.astype(np.float64).round(SHOWN_DIGITS).tolist()


def vector_files(config: TercetConfig, query_prompt: str = "", document_prompt: str = "") -> dict[str, Any]:
    """Return the JSON files by which sentence-transformers reads a model, as names and contents.

    They say that its vectors are pooled states, normalized to length 1, and what is put before texts.
    """
    vectors = SentenceVectors(config.classifier_pooling, query_prompt, document_prompt)
    return sentence_files(vectors, config.hidden_size)
