"""The part `general` of a distillation's recipe: pretraining, in which a teacher reads along.

corpus, objective and training are those of `tercet pretrain`; the model is the student, the tokenizer the
teacher's.
"""

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from ..pretraining.objectives.recipes import Share, SingleObjectiveRecipe
from ..pretraining.output import WHAT_IS_LEARNED as OF_PRETRAINING
from ..pretraining.recipe import CorpusRecipe, require_stages_of, texts_of
from ..training.recipe import TrainingRecipe
from .losses import PUBLISHED, Loss, Temperature

MAY_CHANGE = {
    "async_checkpoints",
    "checkpoint_every",
    "cpu_offload",
    "gradient_checkpointing",
    "keep_checkpoints",
    "log_every",
    "max_skipped_steps",
    "measure_utilization",
    "num_workers",
    "peak_flops",
    "retain_heap",
    "save_code",
    "steps",
    "timeout",
    "tokens_per_micro_batch",
    "trackers",
}
"""Keys of `training` that a resumed run may change: with others, finished students would have learned
otherwise than those that they are compared with."""


@dataclass(frozen=True)
class CacheRecipe:
    """Cache the teacher's outputs: it processes the corpus once."""

    top_k: PositiveInt | None = 64
    """Number of likeliest tokens whose probabilities are stored; null stores all."""
    copies: PositiveInt = 1
    """Number of differently masked copies of the text; epochs alternate between them."""
    precision: Literal["fp16", "fp32"] = "fp16"
    """Precision of the stored values."""
    folder: str | None = None
    """Folder of the cache; by default, in the cache of the tokenized corpus."""


@dataclass(frozen=True)
class OnPolicyRecipe:
    """On-policy distillation, on texts that the student generates (Agarwal et al., 2024, algorithm 1)."""

    probability: Share = 0.5
    """Share of the steps with texts of the student, the paper's lambda; the other steps use the corpus."""
    temperature: Temperature = 1.0
    """Temperature of the student's sampling."""
    beginning: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Share of a text that serves as a decoder's prompt, at least one token."""


@dataclass(frozen=True)
class GeneralRecipe:
    """Distill a pretrained teacher on raw text."""

    teacher: str
    """Folder or Hub id of the teacher with its tokenizer: a Tercet model, or a stock one that Tercet can
    import."""
    corpus: CorpusRecipe
    """The text."""
    objective: SingleObjectiveRecipe
    """The training objective on the text itself."""
    training: TrainingRecipe
    """Optimization."""
    losses: tuple[Loss, ...] = PUBLISHED
    """What is learned from the teacher."""
    objective_weight: NonNegativeFloat = 2.0
    """Weight of the objective's loss; 0 trains with the teacher's losses only."""
    cache: CacheRecipe | None = None
    """If set, the teacher's outputs are cached; otherwise the teacher computes every batch."""
    sequences: PositiveInt | None = None
    """If set, sequence-level distillation: the teacher generates the targets once, with this number of beams
    (Kim and Rush, 2016, section 3.2); for translation."""
    on_policy: OnPolicyRecipe | None = None
    """If set, the student generates the targets of some steps; for decoders and sequence-to-sequence
    models."""

    WHAT_IS_LEARNED: ClassVar[tuple[str, ...]] = (
        *("teacher", "objective", "losses", "objective_weight", "sequences", "on_policy"),
        *("cache.top_k", "cache.copies", "cache.precision"),
        *(key for key in OF_PRETRAINING if key.startswith("corpus.")),
        *(f"training.{key.name}" for key in fields(TrainingRecipe) if key.name not in MAY_CHANGE),
    )
    """Keys that a resumed run may not change."""

    def __post_init__(self):
        if texts_of(self.corpus.train):
            raise ValueError(
                "corpus.train lists texts with shares, which distillation does not support: name one text, "
                "or a list of files"
            )
        require_stages_of(self.corpus, self.training)
