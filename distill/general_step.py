"""What all runs of a recipe's step on raw text have in common: the teacher, its text, and how it is read.

teacher -> tokenizer -> corpus -> examples
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..modeling import TercetConfig
from ..objectives.token_objective import TokenObjective
from ..pretraining.model import require_positions
from ..pretraining.recipe import ModelRecipe, PretrainingRecipe, TokenizerRecipe
from ..pretraining.text import Texts, build_held_out, open_texts, training_source
from ..training.evaluation import HeldOut
from ..training.examples import ExampleSource
from .recipe import GeneralRecipe
from .teacher import Source, load_source, require_outputs


@dataclass(frozen=True)
class GeneralStep:
    """What all runs of a recipe's step on raw text have in common."""

    recipe: GeneralRecipe
    teacher: Source
    base: TokenObjective
    """What is learned from the text itself."""
    source: ExampleSource
    """What is read."""
    held_out: HeldOut
    """What models are measured on."""
    texts: Texts
    """The documents of both splits."""


def prepare_general(recipe: GeneralRecipe, folder: Path) -> GeneralStep:
    """Load the teacher and its text, and make sure that they fit what is to be learned.

    Args:
        recipe: Names them.
        folder: Of the run; nothing is written there.

    Raises:
        FileNotFoundError: A file or model is not there.
        ValueError: Teacher, text and objective do not fit each other.
    """
    kind, corpus = recipe.objective.kind, recipe.corpus
    teacher = load_source(recipe.teacher)
    model_class = recipe.objective.model_class
    member = cast(type[TercetConfig], model_class.config_class).model_type
    require_outputs(teacher.model, recipe.teacher, kind, member)
    require_positions(teacher.model.config, corpus.sequence_length)
    pretraining = PretrainingRecipe(
        model=ModelRecipe(path=str(teacher.folder)),
        tokenizer=TokenizerRecipe(path=str(teacher.folder)),
        corpus=corpus,
        objective=recipe.objective,
        training=recipe.training,
        output=str(folder),
    )
    base = recipe.objective.build(
        teacher.tokenizer,
        sequence_length=corpus.sequence_length,
        seed=recipe.training.seed,
        decoder_start_id=getattr(teacher.model.config, "decoder_start_token_id", None),
    )
    if not isinstance(base, TokenObjective):
        raise ValueError(
            f"general.objective is {kind}, which has targets other than tokens: use "
            f"masked_language_modeling, without next-sentence prediction"
        )
    texts = open_texts(pretraining)
    source = training_source(pretraining, texts["train"], teacher.tokenizer)(corpus.sequence_length)
    held_out = build_held_out(pretraining, texts["validation"], teacher.tokenizer)
    return GeneralStep(recipe, teacher, base, source, held_out, texts)
