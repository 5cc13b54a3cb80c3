"""A pretraining run, from a recipe to a model that the Auto classes load.

recipe -> inputs -> parts: tokenizer, model, objective, data -> learn -> models, scores on disk

Whatever may be wrong with recipe and text shows before the output folder is touched: tokenizer and corpus lie
in the cache until then.
"""

from contextlib import nullcontext
from pathlib import Path

from ..configs.by_kind import ByKind
from ..data.steps.exchange import wait_for_everyone
from ..training.devices.precision import join_processes
from ..training.learning import Session, learn
from ..training.run_folder import MODEL, running
from ..training.start import waiting_for
from .finished import keep_models
from .output import run_folder
from .prepared import find_inputs, prepare
from .recipe import PretrainingRecipe
from .start import begin

ON_REQUEST = ByKind(
    __name__,
    {"push_checkpoints": "revisions.require_repository", "revisions": "revisions.keeping_revisions"},
)
"""Key of `training` -> what carries it out, imported by the runs whose recipe asks for it."""


def pretrain(recipe: PretrainingRecipe, *, resume: bool = False, overwrite: bool = False) -> Path:
    """Pretrain a model as a recipe says, and return the folder of the finished model.

    Args:
        recipe: Everything that the run depends on.
        resume: Continue from the newest checkpoint in the output folder, if there is one.
        overwrite: Replace an earlier run in the output folder.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the text or the output folder.
        FileNotFoundError: A named file does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
        WriteError: There is no room; what was written before is intact.
        DamagedCheckpointError: The run is to be resumed, and none of its checkpoints is as it was written.
    """
    with waiting_for("the text: its files are read and compared"):
        inputs = find_inputs(recipe)
    processes = join_processes(inputs.training.timeout)
    with running(run_folder(recipe), resume=resume, overwrite=overwrite, processes=processes) as run:
        session = Session.begin(run.folder, inputs.training, resume=run.resume)
        if inputs.training.push_checkpoints is not None:
            ON_REQUEST["push_checkpoints"](session)
        with waiting_for("the text: it is tokenized once, and found in the cache from then on"):
            parts = prepare(inputs, session.accelerator, inputs.tokenizer.found(run))
        begin(run, inputs, parts, session)
        keeping = nullcontext()
        if inputs.training.revisions is not None:
            keeping = ON_REQUEST["revisions"](session, parts, inputs.corpus.cache)
        with keeping as revisions:
            outcome = learn(session, parts, revisions)
            keep_models(session, parts, outcome)
            wait_for_everyone()
        return run.folder / MODEL


def train_recipe_tokenizer(recipe: PretrainingRecipe, *, overwrite: bool = False) -> Path:
    """Train the tokenizer of a recipe, without training a model, and return its folder.

    Raises:
        ValueError: The recipe names an existing tokenizer, or the output folder is in use.
    """
    if recipe.tokenizer.path is not None and not recipe.tokenizer.is_extended:
        raise ValueError(
            f"tokenizer.path is {recipe.tokenizer.path}, so there is no tokenizer to train: set "
            "tokenizer.path=null, or tokenizer.add"
        )
    inputs = find_inputs(recipe)
    with running(run_folder(recipe), resume=False, overwrite=overwrite) as run:
        tokenizer = inputs.tokenizer.load_or_train(inputs.model, inputs.tokenizer.found(run))
        run.take()
        return inputs.tokenizer.keep(run.folder, tokenizer)
