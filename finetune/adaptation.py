"""Further pretraining: a model reads text of the task's domain before it learns the task.

Gururangan et al. (2020) call it domain-adaptive pretraining. Its recipe builds whatever belongs to it: a run
without further pretraining does not import this.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from transformers import PreTrainedConfig

from ..configs.messages import in_part
from ..modeling import NeuralConfig
from ..pretraining.objectives.recipes import SingleObjectiveRecipe
from ..pretraining.recipe import CorpusRecipe, ModelRecipe, PretrainingRecipe, require_stages_of
from ..training.recipe import TrainingRecipe


@dataclass(frozen=True)
class AdaptationRecipe:
    """Continue pretraining on text of the task's domain before fine-tuning (Gururangan et al., 2020)."""

    corpus: CorpusRecipe
    """The text."""
    objective: SingleObjectiveRecipe
    """The objective, usually that of the model's pretraining."""
    training: TrainingRecipe
    """Optimization."""

    def __post_init__(self):
        require_stages_of(self.corpus, self.training)

    def require_adaptable(self, config: PreTrainedConfig, path: str) -> None:
        """Make sure that the objective trains a model's member, and that it can read the text."""
        from ..pretraining.model import require_positions
        from ..pretraining.text import open_texts

        classes = [cast(type[NeuralConfig], each.config_class) for each in self.objective.model_classes]
        if not isinstance(config, tuple(classes)):
            raise ValueError(
                f"adaptation.objective is {self.objective.kind}, which trains a "
                f"{' or a '.join(known.model_type for known in classes)}, but {path} is a "
                f"{config.model_type}: choose another objective, or another model"
            )
        with in_part("adaptation"):
            open_texts(self.corpus, self.objective)
        length, key = self.corpus.sequence_length, "adaptation.corpus.sequence_length"
        require_positions(config, length, key, "model", "choose another model")

    def adapt(self, model: Path, folder: Path) -> Path:
        """Go on with a model's pretraining below a folder, and return the folder of the adapted one.

        A run that was interrupted is continued, and one that is finished is not repeated.
        """
        from ..pretraining.run import pretrain

        with in_part("adaptation"):
            return pretrain(self.further_pretraining(str(model), folder / "run"), resume=True)

    def further_pretraining(self, path: str, output: Path) -> PretrainingRecipe:
        """Return the recipe of the pretraining run that this is."""
        return PretrainingRecipe(
            model=ModelRecipe(path=path),
            corpus=self.corpus,
            objective=self.objective,
            training=self.training,
            output=str(output),
        )
