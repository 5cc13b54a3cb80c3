"""Fine-tuning, from a recipe to a model that knows a task, and the scores of every seed.

recipe -> inputs -> parts: task, rows as examples, model -> a run for every seed -> scores -> the best model
                                              |
                                              +-> further reading? -> the same again

Further reading is domain-adaptive pretraining: the model reads text of the task's domain before it learns
the task (Gururangan et al., 2020). Whatever may be wrong with recipe, rows and model shows before the output
folder is touched.
"""

from pathlib import Path

from ..data.files.locks import require_unheld
from ..data.steps.exchange import main_first
from ..training.devices.precision import join_processes
from ..training.run_folder import MODEL, running
from ..training.start import tell_start
from .explanation import start_lines
from .facts import keep_best, keep_rows
from .inputs import find_inputs
from .learning import learn_best
from .output import run_folder
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
    inputs = find_inputs(recipe)
    recipe, processes = inputs.recipe, join_processes()
    with running(run_folder(recipe), resume=resume, overwrite=overwrite, processes=processes) as run:
        with main_first():
            prepared = prepare(inputs)
        if inputs.adaptation is not None:
            inputs.adaptation.require_adaptable(prepared.pretrained.model.config, recipe.model.path)
        with run.together() as is_main:
            if is_main:
                run.take()
                keep_rows(run.folder, inputs.data, prepared)
                tell_start(start_lines(inputs, prepared))
        setting, results = learn_best(inputs, prepared, run)
        with run.together() as is_main:
            if is_main:
                keep_best(run.folder, prepared, results, setting)
        return run.folder / MODEL
