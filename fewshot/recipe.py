"""What an evaluation by prompts depends on: a recipe has a part for each thing that it joins.

task       templates of one row (`task_recipes.py`)                       data     which rows
prompting  how many demonstrations, drawn how, and how answers are scored models   which models
and optionally: contamination (which rows stand in a corpus that a model was trained on)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ..text.paths import named_path
from ..training.recipe import Positive
from .boundary import Opening, SpecialTokenPolicy
from .encoder_scoring import Hiding
from .subject import Precision
from .task_recipes import TaskRecipe

Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1)]


@dataclass(frozen=True)
class DataRecipe:
    """Which rows are evaluated, and which serve as demonstrations."""

    test: str
    """File to evaluate (.jsonl, .json, .csv, .tsv, .parquet, perhaps with .gz or .zst), or a split of
    `dataset`."""
    demonstrations: str | None = None
    """File or split that demonstrations are drawn from; `test` if left out, never the row of the query."""
    folder: str = "data"
    """Where files lie whose names are not absolute."""
    dataset: str | None = None
    """Id of a data set on the Hub; `test` and `demonstrations` are its splits then."""
    subset: str | None = None
    """Its part, where it has several."""
    where: str | None = None
    """Jinja expression: only rows of which it is true are read."""
    limit: Positive | None = None
    """Rows that are evaluated, at most; which ones does not depend on seeds."""

    def resolve(self, split: str) -> str:
        """Give the path of a file, or the name of a split."""
        return split if self.dataset is not None else str(Path(self.folder).expanduser() / split)


@dataclass(frozen=True)
class PromptingRecipe:
    """How rows become prompts, and prompts scores (Brown et al., 2020, section 2)."""

    RENAMED: ClassVar[Mapping[str, str]] = {"shots": "num_fewshot"}

    num_fewshot: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
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
    """Whether prompts of sequence-to-sequence models are like span corruption: the source ends in
    `<extra_id_0>`, and the answer follows it in the target, up to `<extra_id_1>` where it is generated."""
    pseudo_log_likelihood: Hiding = "within_word"
    """Which tokens of an answer are masked together for an encoder."""
    precision: Precision = "fp32"
    """Number format of weights and products."""
    tokens_at_once: Positive = 4096
    """Tokens of a batch: lower it when memory is short."""
    retain_heap: bool = True
    """Whether freed memory is kept for the next batch, on a CPU."""
    one_by_one: bool = False
    """Whether each request is read by itself, as scores are defined: slow, to check the fast way."""

    @property
    def policy(self) -> SpecialTokenPolicy:
        """What stands around texts."""
        return SpecialTokenPolicy(self.opening, self.ends_answer, self.sentinel)


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

    RENAMED: ClassVar[Mapping[str, str]] = {"asking": "prompting"}

    task: TaskRecipe
    """The task."""
    data: DataRecipe
    """Which rows."""
    output: str
    """Folder of the evaluation."""
    models: tuple[str, ...] = ()
    """Folders or Hub ids, of Tercet's models or stock ones. `--model` adds one."""
    prompting: PromptingRecipe = field(default_factory=PromptingRecipe)
    """How the models are prompted."""
    contamination: ContaminationRecipe | None = None
    """If given, scores are told apart for rows that stand in a corpus."""

    @property
    def folder(self) -> Path:
        """The output folder as a path."""
        return named_path(self.output, "output")
