"""The folder of a run: what lies in it, and when a run may write there.

    recipe.yaml       what the run does             checkpoints/   from which it can be resumed
    tokenizer/        if the run made one           log.jsonl      losses, speed and evaluations
    evaluation.json   scores of the finished model  model/         the finished model, for `from_pretrained`
    texts.json        which texts were read         curves.png     the losses, drawn
    revisions/        intermediate models, if the recipe asks for them
    scores.json       how sure the scores are, and what they show
    report.md, report.html                          what was learned from context, curves, samples and scores
    non_finite/       why a run was given up

With averages of weights, `model/` has those that `training.final_weights` says, and the others lie beside it:
`model-last/`, `model-ema/`, `model-mean/`. An objective that trains several models may leave others beside
`model/`: see `saved` of its recipe.
`training/run_folder.py` decides when a run may write there.
"""

from dataclasses import fields

from ..training.checkpoints.recovery import UNCHANGEABLE
from ..training.run_folder import RECIPE, TEXTS, RunFolder
from .recipe import CorpusRecipe, PretrainingRecipe

TOKENIZER = "tokenizer"
PREPARED = (RECIPE, TOKENIZER, TEXTS)
"""What a run finds that only the tokenizer was trained for, or that ended before its first step."""

HOW_IT_IS_READ = {"cache", "remote_cache", "skip_bad_records"}
"""Keys of the corpus that do not say what is learned."""

WHAT_IS_LEARNED = (
    "model",
    "tokenizer",
    # Neither where the corpus is kept nor what would have ended an earlier run says what is learned.
    *(f"corpus.{key.name}" for key in fields(CorpusRecipe) if key.name not in HOW_IT_IS_READ),
    "objective",
    *(f"training.{key}" for key in UNCHANGEABLE),
)
"""Keys of a recipe that a resumed run may not change."""

WHAT_IS_TOKENIZED = (
    "tokenizer",
    "objective.kind",
    "objective.objectives",
    "corpus.train",
    "corpus.text_column",
    "corpus.source_column",
    "corpus.target_column",
    "corpus.largest_record",
    "corpus.control_tokens",
)
"""Keys of a recipe on which its tokenizer depends; the model's positions are set anew (`fit_length`)."""


def run_folder(recipe: PretrainingRecipe) -> RunFolder:
    """Return where a run writes and what it reads."""
    return RunFolder(
        recipe,
        kept=WHAT_IS_LEARNED,
        models=("model.path", "tokenizer.path", "corpus.cache"),
        texts=("corpus.train", "corpus.validation", "tokenizer.add"),
        prepared=PREPARED,
        needed={TOKENIZER: WHAT_IS_TOKENIZED},
    )
