"""Fine-tuning, from a recipe to a model that knows a task, and the scores of every seed.

rows -> task -> examples ---+
                            +--> a run for every seed --> scores --> the best model
model -> further reading? --+

Further reading is domain-adaptive pretraining: the model reads text of the task's domain before it learns
the task (Gururangan et al., 2020). Whatever may be wrong with recipe, rows and model shows before the output
folder is touched.
"""

from dataclasses import replace
from pathlib import Path

from ..data.files.locks import require_unheld
from ..data.steps.exchange import main_first
from ..modeling.saved.checkpoint import opening_once
from ..training.devices.precision import join_processes
from ..training.run_folder import MODEL, running
from ..training.stages import require_consistent
from ..training.start import tell_start
from .adaptation import adapt, require_adaptable
from .explanation import settled, start_lines
from .facts import keep_best, keep_rows
from .learning import best_of_grid, learn_all
from .output import ADAPTED, BEFORE, run_folder
from .prepared import prepare
from .recipe import FineTuningRecipe


def finetune(recipe: FineTuningRecipe, *, resume: bool = False, overwrite: bool = False) -> Path:
    """Fine-tune a model as a recipe says, once for every seed, and return the folder of the best one.

    Args:
        recipe: Everything that the run depends on.
        resume: Continue an earlier run in the output folder, if there is one.
        overwrite: Replace an earlier run in the output folder.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the rows, the model or the output folder.
        FileNotFoundError: A named file or model does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
        WriteError: There is no room; what was written before is intact.
    """
    require_unheld(recipe.folder)  # said before a model is looked for
    open_model = opening_once()
    recipe, tried, rates = settled(recipe, open_model)
    if recipe.adaptation is not None:  # which comes after runs without it
        require_consistent(recipe.adaptation.training)
    with running(recipe, run_folder, resume=resume, overwrite=overwrite, processes=join_processes()) as run:
        folder, adaptation = run.folder, recipe.adaptation
        with main_first():
            prepared = prepare(recipe, tried, open_model)
        if adaptation is not None:
            require_adaptable(adaptation, prepared.pretrained.model.config, recipe.model.path, folder)
        with run.together() as is_main:
            if is_main:
                run.take()
                keep_rows(recipe, prepared)
                tell_start(start_lines(tried[0][1] if tried else recipe, prepared, rates, len(tried)))
        best = best_of_grid(tried, prepared, run) if tried else 0
        chosen = tried[best][1] if tried else recipe
        first = None if tried else prepared.pretrained
        if adaptation is not None:
            learn_all(chosen, prepared, folder / BEFORE, first=first, resume=run.resume)
            first = None
            former = open_model(recipe.model.path, recipe.model.revision)
            adapted = adapt(former, adaptation, folder / ADAPTED)
            chosen = replace(chosen, model=replace(chosen.model, path=str(adapted), revision=None))
        results = learn_all(chosen, prepared, folder, first=first, resume=run.resume)
        with run.together() as is_main:
            if is_main:
                keep_best(chosen, prepared, results, rate=rates[best])
        return folder / MODEL
