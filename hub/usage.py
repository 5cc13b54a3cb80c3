"""How a model is loaded, and what the Hub calls what it does: by the last words of its class's name."""

from dataclasses import dataclass

from ..modeling import CONFIGURATIONS
from ..storage.finished_run import FinishedRun

USES = {
    "ForPreTraining": ("fill-mask", "AutoModelForMaskedLM"),
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "ForCausalLM": ("text-generation", "AutoModelForCausalLM"),
    "ForConditionalGeneration": ("text2text-generation", "AutoModelForSeq2SeqLM"),
    "ForNextSentencePrediction": ("text-classification", "AutoModelForNextSentencePrediction"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification"),
    "ForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "ForMultipleChoice": ("multiple-choice", "AutoModelForMultipleChoice"),
    "ForSentenceEmbedding": ("sentence-similarity", "AutoModel"),
    "ForReplacedTokenDetection": ("feature-extraction", "AutoModelForPreTraining"),
    "Model": ("feature-extraction", "AutoModel"),
}
"""Ending of a class's name -> the Hub's name of the task, and the Auto class that loads it."""


@dataclass(frozen=True)
class Usage:
    """What someone must know who loads a model."""

    pipeline: str
    """The Hub's name of what it does."""
    auto_class: str
    """The Auto class to call."""
    needs_code: bool
    """Whether code comes with the weights, for those without Tercet."""


def usage_of(run: FinishedRun) -> Usage:
    """Find how a model is loaded; whether it writes texts anew or translates them, only its recipe says."""
    config = run.config
    architecture = (config.get("architectures") or ["Model"])[0]
    pipeline, auto_class = next(
        (use for ending, use in USES.items() if architecture.endswith(ending)), USES["Model"]
    )
    if run.recipe.get("objective", {}).get("kind") == "translation":
        pipeline = "translation"
    is_ours = config.get("model_type") in {known.model_type for known in CONFIGURATIONS}
    return Usage(pipeline, auto_class, needs_code=is_ours or "auto_map" in config)
