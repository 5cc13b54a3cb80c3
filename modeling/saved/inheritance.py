"""What a model takes from the one that it is made of: weights, and how it writes (`generation_config.json`).

Weights go from one model of ours to another with a different head: all that both have. Where the other has
another tokenizer, `token_rows.py` says what each of its tokens begins with. Where its vocabulary is merely
larger, what each new token has begins with the mean of the old ones (Hewitt, 2021, "Initializing New Word
Embeddings for Pretrained Language Models"): of tables, heads and biases alike.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GenerationConfig

from ...configs.messages import quietly, shortened
from ..pretrained import NeuralPreTrainedModel

POOLERS = {
    "next_sentence_head.dense.weight": "classifier.transform.dense.weight",
    "next_sentence_head.dense.bias": "classifier.transform.dense.bias",
}
"""What next-sentence prediction has taught -> where a classifier has it (Devlin et al., 2019, 3.1)."""


@dataclass(frozen=True)
class TokenRows:
    """For each id of a new vocabulary the old ids whose mean row it begins with."""

    pieces: Sequence[Sequence[int]]
    """Old ids of each new id (W,); none means all."""
    num_old: int
    """Old tokens of which the mean of all is taken; rows behind them are of no token."""

    @property
    def num_kept(self) -> int:
        """Number of ids that keep the row of one old token."""
        return sum(len(own) == 1 for own in self.pieces)

    @property
    def num_joined(self) -> int:
        """Number of ids that begin with a mean of pieces."""
        return sum(len(own) > 1 for own in self.pieces)

    @property
    def num_unknown(self) -> int:
        """Number of ids that begin with the mean of all old tokens."""
        return sum(not own for own in self.pieces)

    def apply(self, tensor: Tensor) -> Tensor:
        """Arrange what an old vocabulary has for each of its ids (V, ...) for the new one's (W, ...)."""
        flat = tensor.reshape(len(tensor), -1).float()
        table = torch.cat((flat, flat[: self.num_old].mean(0, keepdim=True)))  # (V + 1, C)
        pieces = [list(own) or [len(flat)] for own in self.pieces]
        lengths = torch.tensor([0, *map(len, pieces)])
        ids = torch.tensor([number for own in pieces for number in own])  # (P,)
        rows = F.embedding_bag(ids, table, lengths.cumsum(0)[:-1], mode="mean")
        single = lengths[1:] == 1
        rows[single] = table[ids[lengths.cumsum(0)[:-1]][single]]  # exactly
        return rows.reshape(-1, *tensor.shape[1:]).to(tensor.dtype)


def inherit(
    model: NeuralPreTrainedModel,
    source: NeuralPreTrainedModel,
    *,
    keeps_head: bool = True,
    rows: TokenRows | None = None,
) -> list[str]:
    """Copy the weights of another model; return the names of the parameters that it does not have.

    Args:
        model: Receives them.
        source: A model of the same member, perhaps without a head.
        keeps_head: Whether a head is taken over, too, as far as its tensors have the same names and shapes.
        rows: What each id of the model's vocabulary begins with, if it has other tokens than the source.
    """
    tensors = inherited(source, model, keeps_head=keeps_head, rows=rows)
    own = model.state_dict()
    misfits = [name for name in tensors if name not in own or own[name].shape != tensors[name].shape]
    if misfits:
        raise ValueError(
            f"model.overrides do not fit its weights: the shapes of {shortened(misfits, 3)} would change: "
            "leave out what changes them"
        )
    model.load_state_dict(tensors, strict=False)
    return sorted(set(dict(model.named_parameters())) - set(tensors))


def inherited(
    source: NeuralPreTrainedModel,
    model: NeuralPreTrainedModel,
    *,
    keeps_head: bool,
    rows: TokenRows | None = None,
) -> dict[str, Tensor]:
    """Name the tensors of one model as another has them, without what only the first has."""
    prefix = "" if hasattr(source, "model") else "model."
    tensors = {f"{prefix}{name}": tensor for name, tensor in source.state_dict().items()}
    own, num_old = model.state_dict(), source.config.vocab_size
    tensors = {name if name in own else POOLERS.get(name, name): each for name, each in tensors.items()}
    if rows is not None:
        names = names_by_token(model)
        tensors |= {  # spellings are the model's own
            name: rows.apply(tensor) if tensor.is_floating_point() else own[name]
            for name, tensor in tensors.items()
            if name in names
        }
    elif model.config.vocab_size > num_old:
        tensors = {name: with_new_tokens(tensor, own.get(name), num_old) for name, tensor in tensors.items()}
    return {
        name: tensor
        for name, tensor in tensors.items()
        if name.startswith("model.") or (keeps_head and name in own and own[name].shape == tensor.shape)
    }


def names_by_token(model: NeuralPreTrainedModel) -> set[str]:
    """Name the tensors of a model that have something for each token: those that a token more enlarges."""
    config = deepcopy(model.config)
    config.vocab_size += 1
    with torch.device("meta"):
        larger = type(model)(config).state_dict()
    return {name for name, tensor in model.state_dict().items() if larger[name].shape != tensor.shape}


def with_new_tokens(tensor: Tensor, own: Tensor | None, num_old: int) -> Tensor:
    """Return a tensor with something for each of the old tokens (V, ...) something for the new ones, too.

    That is their mean; of what is no number to be learned, such as spellings, the model's `own`.
    """
    if own is None or tensor.shape != (num_old, *own.shape[1:]) or len(own) <= num_old:
        return tensor
    if not tensor.is_floating_point():
        return own
    mean = tensor.mean(0, keepdim=True, dtype=torch.float32).to(tensor.dtype)
    return torch.cat((tensor, mean.expand(len(own) - num_old, *tensor.shape[1:])))


SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
"""Fields that the configuration of a model and its generation defaults have in common."""


SEQUENCES = ("bad_words_ids", "force_words_ids", "sequence_bias")
"""Generation defaults that list tokens one after another, of which none can be left out."""

SETS = ("suppress_tokens", "begin_suppress_tokens")
"""Generation defaults that list single tokens."""


def inherit_writing(
    model: NeuralPreTrainedModel,
    source: NeuralPreTrainedModel,
    renumber: Callable[[Iterable[int]], Mapping[int, int]] | None = None,
) -> None:
    """Copy the generation defaults of the model that another comes from, if both write.

    Ids of special tokens that its configuration has changed are changed there, too. If the model has another
    tokenizer, `renumber` finds the ids there; tokens that it does not have are left out. A warning tells of
    both.
    """
    if not (model.can_generate() and source.can_generate()):
        return
    defaults: Any = deepcopy(source.generation_config)
    former = {name: getattr(source.config, name, None) for name in SPECIAL_IDS}
    if renumber is not None:
        named = {
            name: value for name, value in vars(defaults).items() if _has_ids(name) and value is not None
        }
        numbers = renumber(set(_ids_in([*named.values(), *former.values()])))
        former = {name: _followed(name, value, numbers) for name, value in former.items()}
        for name, value in named.items():
            setattr(defaults, name, followed := _followed(name, value, numbers))
            if len(list(_ids_in(followed))) < len(list(_ids_in(value))):
                warnings.warn(
                    f"generation_config.json: {name} was {value}; it is now {followed}, because the model's "
                    "new tokenizer does not have all of these tokens",
                    stacklevel=2,
                )
    for name in SPECIAL_IDS:
        now, default = getattr(model.config, name, None), getattr(defaults, name)
        is_one_of_several = isinstance(default, list) and now in default
        if now not in (None, former[name], default) and not is_one_of_several:
            setattr(defaults, name, now)
            if default is not None:
                warnings.warn(
                    f"generation_config.json: {name} is now {now}, as in the model's configuration; it was "
                    f"{default}",
                    stacklevel=2,
                )
    require_savable(defaults)
    model.generation_config = defaults


def _has_ids(name: str) -> bool:
    return name.endswith("_token_id") or name in (*SEQUENCES, *SETS)


def _ids_in(value: Any) -> Iterator[int]:
    if isinstance(value, int):  # a bias is none
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value:
            yield from _ids_in(each)


def _followed(name: str, value: Any, numbers: Mapping[int, int]) -> Any:
    if isinstance(value, int):
        return numbers.get(value)
    if isinstance(value, float) or value is None:
        return value
    if isinstance(value, dict):  # biases of sequences
        value = [[list(ids), bias] for ids, bias in value.items()]
    parts = [_followed(name, each, numbers) for each in value]  # a token without an id leaves its part out
    if name in SEQUENCES and value and isinstance(value[0], int) and None in parts:
        return None
    is_biased = any(isinstance(each, float) for each in parts)
    return None if is_biased and None in parts else [each for each in parts if each is not None] or None


def require_savable(defaults: GenerationConfig) -> None:
    """Raise a `ValueError` if transformers will not save generation defaults, before a run, not after it."""
    try:
        with TemporaryDirectory() as folder, quietly():
            defaults.save_pretrained(folder)
    except ValueError as error:
        raise ValueError(
            f"generation_config.json cannot be saved with the model ({' '.join(str(error).split())}): "
            f"correct it where the model is from"
        ) from error
