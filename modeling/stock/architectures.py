"""The stock architectures that ours can come from, and become."""

from collections.abc import Mapping, Sequence

from transformers import PreTrainedConfig

from ...configs.messages import LinesError, first_line, quietly
from ..configuration_tercet import TercetConfig
from ..pretrained import TercetPreTrainedModel
from .architecture import Architecture, MisfitError
from .bart import BART, MARIAN, MBART
from .bert import BERT, BIG_BIRD, DISTILBERT, ELECTRA, ROBERTA
from .gpt import GPT2, GPT_NEOX, OPT
from .llama import LLAMA, MISTRAL, QWEN2, QWEN3
from .modernbert import MODERNBERT
from .t5 import MT5, MT5_ENCODER, T5, T5_ENCODER

ARCHITECTURES = {
    (architecture.model_type, architecture.config): architecture
    for architecture in (
        BERT, DISTILBERT, ROBERTA, ELECTRA, BIG_BIRD, MODERNBERT, GPT2, OPT, GPT_NEOX, LLAMA, MISTRAL, QWEN2,
        QWEN3, BART, MBART, MARIAN, T5, MT5, T5_ENCODER, MT5_ENCODER,
    )
}  # fmt: skip
"""By the name that transformers gives them, and what they are with us: T5's encoder also stands alone.

Where several fit a model, the first is the default.
"""

PRETRAINED = (
    "TercetEncoderForMaskedLM",
    "TercetDecoderForCausalLM",
    "TercetSeq2SeqForConditionalGeneration",
)
"""Models with which pretraining usually ends."""

NAMES = {model_type for model_type, _ in ARCHITECTURES}


def architecture_of(stock: PreTrainedConfig) -> Architecture:
    """Find the architecture of a stock configuration."""
    if stock.model_type not in NAMES:
        raise ValueError(f"{stock.model_type!r} cannot be imported: supported architectures are {known()}")
    namesakes = [each for each in ARCHITECTURES.values() if each.model_type == stock.model_type]
    return max(namesakes, key=lambda each: each.config.is_encoder_decoder == stock.is_encoder_decoder)


def architecture_for(model: TercetPreTrainedModel, model_type: str | None = None) -> Architecture:
    """Find the architecture that is exactly a model of ours: the named one, or the first."""
    if model_type is not None and model_type not in NAMES:
        raise ValueError(f"{model_type!r} is not an architecture to export to: supported are {known()}")
    model_class, config_class = type(model).__name__, type(model.config)
    candidates = [each for each in ARCHITECTURES.values() if each.config is config_class]
    reasons = {each.model_type: reasons_against(each, model.config, model_class) for each in candidates}
    fitting = [name for name, own in reasons.items() if not own]
    if model_type is None and not fitting:
        raise LinesError(no_match(model_class, candidates, reasons))
    if model_type is None or model_type in fitting:
        return ARCHITECTURES[model_type or fitting[0], config_class]
    why = f"{model_type} does not correspond to a {config_class.__name__}"
    if model_type in reasons:
        why = f"{model_type} cannot represent this model: {'; '.join(reasons[model_type])}"
    raise ValueError(f"{why}; what can: {', '.join(fitting) or 'none of the others'}")


def reasons_against(architecture: Architecture, config: TercetConfig, model_class: str) -> list[str]:
    """List what keeps an architecture from being exactly a model, its head or any option."""
    own = [each for each in architecture.counterparts if each.ours == model_class]
    reasons = [] if own else [f"it has no counterpart of {model_class}"]
    counterpart = own[0] if own else architecture.base
    try:
        with quietly():  # about the ids of architectures that are not chosen
            architecture.stock_config(config, counterpart)
    except MisfitError as error:
        reasons += error.reasons
    except ValueError as error:
        reasons.append(first_line(error))
    return reasons


def options_of_export(config: PreTrainedConfig) -> str | None:
    """Return the options with which `tercet export` writes a model that needs no code of Tercet.

    None are needed where a stock architecture is the model; `None` if the model has no other form.
    """
    if not isinstance(config, TercetConfig):
        return None
    name = (config.architectures or [""])[0].replace("ForSentenceEmbedding", "Model")  # see without_vectors
    candidates = [each for each in ARCHITECTURES.values() if each.config is type(config)]
    return "" if any(not reasons_against(each, config, name) for each in candidates) else " --onnx"


def no_match(model_class: str, candidates: Sequence[Architecture], reasons: Mapping[str, list[str]]) -> str:
    """Say in three lines which architecture is nearest to a model, what is in the way, and what else to do.

    The nearest has the fewest `reasons` against it, of those that have a head to pretrain or the model's.
    """
    able = [
        each.model_type
        for each in candidates
        if any(counterpart.ours in (model_class, *PRETRAINED) for counterpart in each.counterparts)
    ]
    nearest = min(able, key=lambda name: len(reasons[name]))
    return (
        f"no stock architecture is exactly this {model_class}; the nearest is {nearest}\n"
        f"in the way: {'; '.join(reasons[nearest])}\n"
        "instead: tercet push uploads it with its code, tercet export --onnx makes graphs of it; or pretrain "
        "the next model with these values (model.overrides)"
    )


def known() -> str:
    return ", ".join(sorted(NAMES))
