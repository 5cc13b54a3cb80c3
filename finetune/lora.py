"""Low-rank adaptation (Hu et al., 2022), by `peft`: pretrained weights rest, small additions to them learn.

The finished model has its additions merged, and is loaded like any other; they are kept beside it as well.
"""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..interop.messages import quietly
from ..modeling import TercetPreTrainedModel
from .recipe import LoraRecipe


def with_additions(model: TercetPreTrainedModel, recipe: LoraRecipe) -> nn.Module:
    """Let additions to a model's weights, and its head, learn instead of the model; the model is changed.

    Raises:
        ValueError: `peft` is not installed, or the model has no such layers.
    """
    try:
        import peft
    except ImportError:
        raise ValueError("lora needs peft: pip install 'tercet[lora]', or leave lora out") from None
    config = peft.LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules=list(recipe.target_modules),
        modules_to_save=[name for name, _ in model.named_children() if name != "model"],
    )
    try:
        return peft.get_peft_model(model, config)
    except ValueError as error:
        raise ValueError(f"lora.target_modules: {error}") from None


def merged(learner: nn.Module, adapter: Path) -> tuple[TercetPreTrainedModel, dict[str, Tensor]]:
    """Keep the additions in a folder, then merge them into the model; give it and its weights."""
    additions: Any = learner
    with quietly():
        additions.save_pretrained(adapter)
    model = additions.merge_and_unload()
    return model, model.state_dict()
