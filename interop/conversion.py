"""Models on their way from one house to another: the weights, and what else goes along.

from_stock(GPT2LMHeadModel...)  ->  TercetDecoderForCausalLM
to_stock(TercetDecoderForCausalLM...)  ->  LlamaForCausalLM
convert(LlamaForCausalLM..., "encoder")  ->  TercetEncoderForMaskedLM
"""

from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from .. import modeling
from ..modeling.pretrained import TercetPreTrainedModel
from .architecture import Counterpart
from .architectures import architecture_for, architecture_of
from .members import Member, Reading, read_as
from .model_folder import find_folder, load_config
from .own_model import load_transformer
from .source import load_stock
from .weights import Links, has_own_head, link


def from_stock(stock: PreTrainedModel | str, revision: str | None = None) -> TercetPreTrainedModel:
    """Build the model of ours that a stock model is, with its weights, type, and generation defaults.

    Args:
        stock: The model, its folder, or its repository on the Hub.
        revision: Branch, tag or commit there.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: If its architecture, an option or a tensor of it is not among ours.

    Example:
        >>> from tercet.interop import from_stock
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
        >>> type(from_stock(GPT2LMHeadModel(config))).__name__
        'TercetDecoderForCausalLM'
    """
    if isinstance(stock, str):
        stock = load_stock(stock, revision)
    architecture = architecture_of(stock.config)
    counterpart = architecture.counterpart(stock=type(stock).__name__)
    told = {"tie_word_embeddings": False} if has_own_head(stock) else {}
    told |= {name: tell(stock) for name, tell in architecture.by_weights.items()}
    config = architecture.our_config(stock.config, counterpart, **told)
    ours = getattr(modeling, counterpart.ours)(config).to(stock.dtype)
    links = link(stock, ours, architecture.table(counterpart))
    fill(ours, links.to_ours(tensors_of(stock)))
    return settled(ours, stock)


def to_stock(model: TercetPreTrainedModel, model_type: str | None = None) -> PreTrainedModel:
    """Build the stock model that one of ours is: of the requested architecture, or the first that fits.

    Raises:
        ValueError: If the architecture cannot be exactly this model, with every reason.
    """
    architecture = architecture_for(model, model_type)
    counterpart = architecture.counterpart(ours=type(model).__name__)
    config = architecture.stock_config(model.config, counterpart)
    stock_class = getattr(transformers, counterpart.stock)
    # Built in its type: `.to` would round buffers, too, such as the wavelengths of positions.
    stock = stock_class._from_config(config, dtype=model.dtype, **counterpart.arguments)
    part_head(stock, model)
    links = link(stock, model, architecture.table(counterpart))
    fill(stock, links.to_stock(tensors_of(model)))
    return settled(stock, model)


def convert(
    model: PreTrainedModel | str,
    to: Member,
    decoder: PreTrainedModel | str | None = None,
    *,
    seed: int = 0,
) -> Reading:
    """Read a model as another member of the family; a stock model is imported first.

    Args:
        model: The model, its folder, or its repository on the Hub.
        to: `encoder`, `decoder` or `seq2seq`.
        decoder: For `seq2seq`, what becomes the decoder; `None`: `model` becomes both stacks.
        seed: Of the weights that no source has.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: As in `from_stock` and `read_as`.

    Example:
        >>> from tercet import TercetDecoderConfig, TercetDecoderForCausalLM
        >>> from tercet.interop import convert
        >>> decoder = TercetDecoderForCausalLM(TercetDecoderConfig(hidden_size=32, num_attention_heads=2))
        >>> encoder = convert(decoder, "encoder")
        >>> type(encoder.model).__name__, len(encoder.new)
        ('TercetEncoderForMaskedLM', 0)
    """
    return read_as(as_ours(model), to, None if decoder is None else as_ours(decoder), seed=seed)


def as_ours(model: PreTrainedModel | str) -> TercetPreTrainedModel:
    """Return a model of ours as it is, from its folder, or imported.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: As in `load_transformer` and `from_stock`.
    """
    if isinstance(model, TercetPreTrainedModel):
        return model
    if isinstance(model, str) and load_config(find_folder(model)).model_type.startswith("tercet"):
        return load_transformer(model)
    return from_stock(model)


def part_head(stock: PreTrainedModel, ours: TercetPreTrainedModel) -> None:
    """Give a stock model a head of its own if ours has one, where its class ties what it has not loaded."""
    head: Any = stock.get_output_embeddings()
    if not (ours.config.tie_word_embeddings or head is None or has_own_head(stock)):
        head.weight = nn.Parameter(torch.empty_like(head.weight))
        stock.config.tie_word_embeddings = False


def links_between(stock: PreTrainedModel, ours: PreTrainedModel) -> Links:
    """Find what each tensor of a stock model is in a model of ours that equals it."""
    return link(stock, ours, architecture_of(stock.config).table(counterpart_of(stock)))


def counterpart_of(stock: PreTrainedModel) -> Counterpart:
    """Find what a stock model is with us."""
    return architecture_of(stock.config).counterpart(stock=type(stock).__name__)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Name all tensors of a model, the tied ones by each of their names."""
    return dict(model.state_dict())


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
