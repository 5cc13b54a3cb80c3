"""The stock architectures that ours can come from, and become."""

from transformers import PreTrainedConfig

from ..ground.messages import quietly
from ..modeling.pretrained import TercetPreTrainedModel
from .architecture import Architecture
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

NAMES = {model_type for model_type, _ in ARCHITECTURES}


def architecture_of(stock: PreTrainedConfig) -> Architecture:
    """Find the architecture of a stock configuration.

    Raises:
        ValueError: If it is none of those that we know.
    """
    if stock.model_type not in NAMES:
        raise ValueError(f"{stock.model_type!r} cannot be imported: supported architectures are {known()}")
    namesakes = [each for each in ARCHITECTURES.values() if each.model_type == stock.model_type]
    return max(namesakes, key=lambda each: each.config.is_encoder_decoder == stock.is_encoder_decoder)


def architecture_for(model: TercetPreTrainedModel, model_type: str | None = None) -> Architecture:
    """Find the architecture that is exactly a model of ours: that one, or the first.

    Raises:
        ValueError: If that one is not, or none is; with what is in the way, and which ones are.
    """
    if model_type is not None and model_type not in NAMES:
        raise ValueError(f"{model_type!r} is not an architecture to export to: supported are {known()}")
    config, reasons = model.config, dict[str, str]()
    fitting: list[Architecture] = []
    for architecture in ARCHITECTURES.values():
        if architecture.config is type(config):
            try:
                with quietly():  # about the ids of architectures that are not chosen
                    architecture.stock_config(config, architecture.counterpart(ours=type(model).__name__))
                fitting.append(architecture)
            except ValueError as error:
                reasons[architecture.model_type] = str(error)
    if model_type is None and fitting:
        return fitting[0]
    if model_type in {architecture.model_type for architecture in fitting}:
        return ARCHITECTURES[str(model_type), type(config)]
    possible = ", ".join(architecture.model_type for architecture in fitting) or "none of the others"
    if model_type is not None:
        why = reasons.get(model_type, f"{model_type} does not correspond to a {type(config).__name__}")
        raise ValueError(f"{why}; what can: {possible}")
    raise ValueError("no stock architecture matches this model:\n" + "\n".join(reasons.values()))


def known() -> str:
    """List the architectures for a message."""
    return ", ".join(sorted(NAMES))
