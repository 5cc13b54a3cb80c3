"""The recipe of a few-shot evaluation.

task       templates of prompts and answers (`tasks/recipes.py`)    data     the rows
prompting  demonstrations, and the scoring of answers              models   the models
and optionally: contamination (a corpus that the models may have been trained on)
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from ..configs.named_files import named_path
from .member import Head
from .prompts.boundary import Opening, SpecialTokenPolicy
from .prompts.items import Draw
from .prompts.request import Hiding
from .tasks.recipes import TaskRecipe

Precision = Literal["fp32", "bf16"]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1)]


@dataclass(frozen=True)
class DataRecipe:
    """The rows to evaluate, and the rows that serve as demonstrations."""

    test: str
    """File to evaluate (.jsonl, .json, .csv, .tsv, .parquet, optionally with .gz or .zst), or a split of
    `dataset`. A .txt file has a row of one column, `text`, between two blank lines."""
    demonstrations: str | None = None
    """File or split to sample demonstrations from; by default `test`, without the row of the query."""
    dataset: str | None = None
    """Id of a data set on the Hub; `test` and `demonstrations` are then its splits."""
    subset: str | None = None
    """Subset (configuration) of the data set, if it has several."""
    where: str | None = None
    """Jinja expression that selects rows: only rows for which it is true are read. It gives a
    truth value, a number or null; a text is compared: `keep == 'True'`."""
    limit: PositiveInt | None = None
    """Maximum number of rows to evaluate; the selection does not depend on seeds."""


@dataclass(frozen=True)
class PromptingRecipe:
    """Prompts and scoring (Brown et al., 2020, section 2)."""

    num_fewshot: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    """Numbers of demonstrations, K; the report has a score for each."""
    seeds: Seeds = (0,)
    """One sample of demonstrations per seed; K demonstrations are the first K of the largest sample."""
    orders: PositiveInt = 1
    """Number of orders in which each sample is shown."""
    draw: Draw = "fixed"
    """`fixed`: the same demonstrations for all rows, which is faster; `per_example`: a sample for each
    row."""
    balanced: bool = False
    """Whether demonstrations are balanced over answers, as far as K allows."""
    opening: Opening = "tokenizer"
    """Start of a text: the tokenizer's special tokens, its bos token, or nothing."""
    ends_answer: bool = False
    """Whether the end-of-sequence token is part of an answer, and is scored."""
    sentinel: bool = False
    """Whether prompts of sequence-to-sequence models have the format of span corruption: the source ends in
    `<extra_id_0>`, and the target has the answer after it, up to `<extra_id_1>` in generation."""
    pseudo_log_likelihood: Hiding = "within_word"
    """Tokens of an answer that are masked together, for encoders."""
    head: Head = "auto"
    """How decoders of Tercet are read: with the head that they were saved with, causally (`causal_lm`), or in
    both directions by masking (`masked_lm`), which a model of hybrid language modeling has learned, too."""
    precision: Precision = "fp32"
    """Precision of weights and matrix products."""
    tokens_at_once: PositiveInt = 4096
    """Number of tokens in a batch: lower it if memory is short."""
    retain_heap: bool = True
    """Whether freed memory is kept for the next batch, on a CPU."""
    one_by_one: bool = False
    """Whether to compute each request separately, as scores are defined: slow, to check the fast path."""

    @property
    def policy(self) -> SpecialTokenPolicy:
        return SpecialTokenPolicy(self.opening, self.ends_answer, self.sentinel)


@dataclass(frozen=True)
class ContaminationRecipe:
    """A corpus that models were pretrained on, to find contaminated rows (Brown et al., 2020, appendix C)."""

    corpus: str | tuple[str, ...]
    """Files or folders, as in a pretraining recipe's `corpus.train`; `documentation`; or a Hub id."""
    words: Annotated[int, Field(ge=1)] | None = None
    """Length of the n-grams in words; by default, 8 to 13, depending on the length of the rows."""


@dataclass(frozen=True)
class FewShotRecipe:
    """All settings of an evaluation."""

    task: TaskRecipe
    """The task."""
    data: DataRecipe
    """The rows."""
    output: str
    """Folder of the evaluation."""
    models: tuple[str, ...] = ()
    """Folders or Hub ids of Tercet models or stock models; `--model` sets them."""
    prompting: PromptingRecipe = field(default_factory=PromptingRecipe)
    """Prompts and scoring."""
    contamination: ContaminationRecipe | None = None
    """If set, scores are also reported separately for contaminated rows."""

    @property
    def folder(self) -> Path:
        return named_path(self.output, "output")
