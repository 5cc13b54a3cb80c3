"""Stock models: loaded from a folder with the head that their weights are for, and as models of ours.

from_stock(GPT2LMHeadModel...)  ->  TercetDecoderForCausalLM
to_stock(TercetDecoderForCausalLM...)  ->  LlamaForCausalLM
"""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.initialization import no_init_weights

from ... import modeling
from ..configuration_tercet import SHARED_FIELDS, TercetConfig
from ..pretrained import TercetPreTrainedModel
from ..saved.checkpoint import Checkpoint
from ..saved.length import most_positions
from ..saved.weights import Fit, compare_weights, load_finite, require_fit
from .architecture import Architecture, Counterpart
from .architectures import architecture_for, architecture_of
from .weights import Links, has_own_head, is_dropped, link, tied_names


def as_ours(checkpoint: Checkpoint) -> TercetPreTrainedModel:
    """Load a Transformer of ours as it is, or what a stock model is with us."""
    return checkpoint.transformer() if checkpoint.is_ours else imported(load_stock(checkpoint), checkpoint)


def imported(stock: PreTrainedModel, checkpoint: Checkpoint) -> TercetPreTrainedModel:
    """Build the model of ours that a stock model from a folder is, which reads as many tokens of a text."""
    ours = from_stock(stock)
    if most_positions(checkpoint.config) is None:  # ours has a number in any case
        own = ours.config.max_position_embeddings
        ours.config.max_position_embeddings = max(own, checkpoint.max_length)
    return ours


def from_stock(stock: PreTrainedModel | str, revision: str | None = None) -> TercetPreTrainedModel:
    """Build the model of ours that a stock model is, with its weights, type, and generation defaults.

    Args:
        stock: The model, its folder, or its repository on the Hub.
        revision: Branch, tag or commit there.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: If its architecture, an option or a tensor of it is not among ours.

    Example:
        >>> from tercet.modeling.stock import from_stock
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
        >>> type(from_stock(GPT2LMHeadModel(config))).__name__
        'TercetDecoderForCausalLM'
    """
    if isinstance(stock, str):
        stock = load_stock(Checkpoint.open(stock, revision))
    architecture = architecture_of(stock.config)
    counterpart = architecture.counterpart(stock=type(stock).__name__)
    told = {"tie_word_embeddings": False} if has_own_head(stock) else {}
    told |= {name: tell(stock) for name, tell in architecture.by_weights.items()}
    config = architecture.our_config(stock.config, counterpart, **told)
    with no_init_weights():  # all are filled
        ours = getattr(modeling, counterpart.ours)(config).to(stock.dtype)
    ours.tie_weights()
    links = link(stock, ours, architecture.table(counterpart))
    fill(ours, links.to_ours(stock.state_dict()))
    return settled(ours, stock)


def to_stock(model: TercetPreTrainedModel, model_type: str | None = None) -> PreTrainedModel:
    """Build the stock model that one of ours is: of the requested architecture, or the first that fits.

    Raises:
        ValueError: If the architecture cannot be exactly this model, with every reason.

    Warns:
        UserWarning: In training it drops elsewhere, or not as much.
    """
    architecture = architecture_for(model, model_type)
    counterpart = architecture.counterpart(ours=type(model).__name__)
    config = architecture.stock_config(model.config, counterpart)
    if apart := dropouts_apart(model.config, architecture.our_config(config, counterpart)):
        warnings.warn(
            f"in training, the exported {architecture.model_type} has {'; '.join(apart)}", stacklevel=2
        )
    stock_class = getattr(transformers, counterpart.stock)
    # Built in its type: `.to` would round buffers, too, such as the wavelengths of positions.
    stock = stock_class._from_config(config, dtype=model.dtype, **counterpart.arguments)
    part_head(stock, model)
    links = link(stock, model, architecture.table(counterpart))
    fill(stock, links.to_stock(model.state_dict()))
    return settled(stock, model)


def dropouts_apart(own: TercetConfig, other: TercetConfig) -> list[str]:
    """List where layers drop otherwise by another configuration; heads may be replaced before they learn."""
    names = [name for name in SHARED_FIELDS if name.endswith("dropout") and not name.startswith("classifier")]
    rates = [(name, other.dropout_of(name), own.dropout_of(name)) for name in names]
    return [f"{name}={its:g} instead of {ours:g}" for name, its, ours in rates if its != ours]


def part_head(stock: PreTrainedModel, ours: TercetPreTrainedModel) -> None:
    """Untie the head of a stock model if ours is untied: its class ties what it has not loaded."""
    head: Any = stock.get_output_embeddings()
    if not (ours.config.tie_word_embeddings or head is None or has_own_head(stock)):
        head.weight = nn.Parameter(torch.empty_like(head.weight))
        stock.config.tie_word_embeddings = False


def links_between(stock: PreTrainedModel, ours: PreTrainedModel) -> Links:
    return link(stock, ours, architecture_of(stock.config).table(counterpart_of(stock)))


def counterpart_of(stock: PreTrainedModel) -> Counterpart:
    return architecture_of(stock.config).counterpart(stock=type(stock).__name__)


@torch.no_grad()
def fill(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy tensors into a model, whose other ones keep what they have."""
    own = model.state_dict()
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def settled(model: Any, source: Any) -> Any:
    """Take generation defaults along, and leave the model ready to be used."""
    if model.can_generate() and source.generation_config is not None:
        model.generation_config = source.generation_config
    return model.eval()


class Attempt(NamedTuple):
    """One head for a model, and how well it goes with the files.

    Args:
        loader: The class with this head.
        fit: Without what ours has no use for, such as the pooler of a model that was built without one.
    """

    loader: Any
    fit: Fit

    @property
    def num_misfits(self) -> tuple[int, int]:
        """Count the tensors that are not as the model needs them, and those that it does not have."""
        return len(self.fit.missing) + len(self.fit.misshapen), len(self.fit.surplus)


def load_stock(checkpoint: Checkpoint) -> PreTrainedModel:
    """Load a stock model with the head that takes up most of its tensors.

    The head that the configuration names is tried first, then others, until one fits.
    """
    config = checkpoint.config
    if checkpoint.is_ours:
        raise ValueError(f"{checkpoint.name} is a {config.model_type} already: load it with from_pretrained")
    architecture, stored, attempts = architecture_of(config), checkpoint.weights, []
    named = (config.architectures or [None])[0]
    for counterpart in sorted(architecture.counterparts, key=lambda each: each.stock != named):
        attempts.append(attempt(checkpoint.folder, architecture, counterpart))
        if not any(attempts[-1].num_misfits):
            break
    best = min(attempts, key=lambda each: each.num_misfits)
    require_fit(best.fit, stored)
    return load_finite(best.loader, checkpoint.folder, stored)


def attempt(folder: Path, architecture: Architecture, counterpart: Counterpart) -> Attempt:
    """Compare the files with one head."""
    loader = getattr(transformers, counterpart.stock)
    fit = compare_weights(loader, folder)
    alone = {names[0] for names in tied_names(fit.model) if len(names) == 1}
    about = architecture.table(counterpart), fit.model.config
    missing = [name for name in fit.missing if not (name in alone and is_dropped(name, *about))]
    surplus = [name for name in fit.surplus if not is_dropped(name, *about)]
    return Attempt(loader, fit._replace(missing=missing, surplus=surplus))
