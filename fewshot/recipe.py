"""What can be said about asking a model: a recipe has a part for each thing that an evaluation joins.

task    what is asked, as templates of one row (`task_recipes.py`)     data     which rows
asking  how many demonstrations, drawn how, and how answers are read   models   who is asked
and, if wanted: contamination (which rows stand in a corpus that a model has read)
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ..pretraining.paths import named_path
from ..training.recipe import Positive
from .boundary import Opening, Policy
from .encoder_scoring import Hiding
from .subject import Precision
from .task_recipes import TaskRecipe

Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1)]


@dataclass(frozen=True)
class DataRecipe:
    """Which rows are asked about, and which serve as demonstrations."""

    test: str
    """File to ask about (.jsonl, .json, .csv, .tsv, .parquet, perhaps with .gz or .zst), or a split of
    `dataset`."""
    demonstrations: str | None = None
    """File or split that demonstrations are drawn from; `test` if left out, never the row that is asked."""
    folder: str = "data"
    """Where files lie whose names are not absolute."""
    dataset: str | None = None
    """Id of a data set on the Hub; `test` and `demonstrations` are its splits then."""
    subset: str | None = None
    """Its part, where it has several."""
    where: str | None = None
    """Jinja expression: only rows of which it is true are read."""
    limit: Positive | None = None
    """Rows that are asked about, at most; which ones does not depend on seeds."""

    def place(self, split: str) -> str:
        """Give the path of a file, or the name of a split."""
        return split if self.dataset is not None else str(Path(self.folder).expanduser() / split)


@dataclass(frozen=True)
class AskingRecipe:
    """How rows are asked about (Brown et al., 2020, section 2)."""

    shots: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    """Numbers of demonstrations, K; each is a result of its own."""
    seeds: Seeds = (0,)
    """One draw of demonstrations for each; K demonstrations are the first K of the largest draw."""
    orders: Positive = 1
    """In how many orders each draw is shown."""
    draw: Literal["fixed", "per_example"] = "fixed"
    """The same demonstrations for all rows, which is faster, or others for each."""
    balanced: bool = False
    """Whether all answers are demonstrated equally often, as far as K allows."""
    opening: Opening = "tokenizer"
    """What opens a text: what the tokenizer puts there, its bos token, or nothing."""
    ends_answer: bool = False
    """Whether the end-of-sequence token belongs to an answer, and is scored."""
    sentinel: bool = False
    """Whether a sequence-to-sequence model is asked as in span corruption: the source ends in `<extra_id_0>`,
    and the answer follows it in the target, up to `<extra_id_1>` where it is written."""
    pseudo_log_likelihood: Hiding = "within_word"
    """Which tokens of an answer an encoder does not see together."""
    precision: Precision = "fp32"
    """Number format of weights and products."""
    tokens_at_once: Positive = 4096
    """Tokens of a batch: lower it when memory is short."""
    retain_heap: bool = True
    """Whether freed memory is kept for the next batch, on a CPU."""
    one_by_one: bool = False
    """Whether each request is read by itself, as scores are defined: slow, to check the fast way."""

    @property
    def policy(self) -> Policy:
        """What stands around texts."""
        return Policy(self.opening, self.ends_answer, self.sentinel)


@dataclass(frozen=True)
class ContaminationRecipe:
    """Which rows stand in a corpus that a model was pretrained on (Brown et al., 2020, appendix C)."""

    corpus: str | tuple[str, ...]
    """Files or folders, as in a pretraining recipe's `corpus.train`; `documentation`; or a Hub id."""
    words: Annotated[int, Field(ge=1)] | None = None
    """Length of the n-grams; if left out, 8 to 13, by the length of the rows."""


@dataclass(frozen=True)
class FewShotRecipe:
    """Everything that an evaluation depends on, but the machine."""

    task: TaskRecipe
    """What is asked."""
    data: DataRecipe
    """Which rows."""
    output: str
    """Folder of the evaluation."""
    models: tuple[str, ...] = ()
    """Who is asked: folders or Hub ids, of Tercet's models or stock ones. `--model` adds one."""
    asking: AskingRecipe = field(default_factory=AskingRecipe)
    """How."""
    contamination: ContaminationRecipe | None = None
    """If given, scores are told apart for rows that stand in a corpus."""

    @property
    def folder(self) -> Path:
        """The output folder as a path."""
        return named_path(self.output, "output")
