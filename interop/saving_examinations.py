"""Examinations of a copy of the model that was saved and loaded again: is it the same model?"""

from collections import defaultdict

from transformers import PreTrainedConfig, PreTrainedModel

from .finding import Finding, agreement, listed
from .reader import Reader


def saving(reader: Reader) -> Finding:
    """Saved and loaded again, the model gives the same numbers."""
    inputs = reader.padded(reader.documents[0])
    return agreement(
        reader.read(inputs, reader.examined.reloaded),
        reader.read(inputs),
        "store everything that results depend on in a parameter, a persistent buffer or the configuration",
    )


def tied_weights(reader: Reader) -> Finding:
    """Embeddings and head are one tensor if the configuration says so, and all ties outlast saving."""
    examined, model = reader.examined, reader.examined.model
    config = examined.config.get_text_config(decoder=True)
    head = model.get_output_embeddings()
    if head is not None and promises_tie(config) and head.weight is not examined.embeddings:
        return Finding(
            "failed",
            "tie_word_embeddings is true, but embeddings and LM head are two tensors",
            "set tie_word_embeddings=False if both were trained; otherwise delete the head's tensor from "
            "the file",
        )
    before, after = ties(model), ties(examined.reloaded)
    if before != after:
        names = listed("=".join(sorted(tie)) for tie in before ^ after)
        return Finding("failed", f"not the same after saving: {names}", "declare them in _tied_weights_keys")
    if not before:
        return Finding("not applicable", "no weights are tied")
    return Finding("ok", f"{len(before)} shared by several names, before and after saving")


def promises_tie(config: PreTrainedConfig) -> bool:
    """Tell whether a configuration says that embeddings and head are one; T5's does whatever it is told."""
    told_otherwise = type(config).from_dict(config.to_dict() | {"tie_word_embeddings": False})
    return getattr(config, "tie_word_embeddings", False) and not told_otherwise.tie_word_embeddings


def ties(model: PreTrainedModel) -> set[frozenset[str]]:
    """Group the names that stand for one tensor."""
    names = defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].add(name)
    return {frozenset(group) for group in names.values() if len(group) > 1}


SAVING = (saving, tied_weights)
