"""How a model writes after fine-tuning: as `generation_config.json` said before, but for what a run decides.

task.longest_target, task.num_beams    a model is scored so, and asked so without further words
the language of the targets            what the decoder starts from, or writes first (mBART, NLLB)
the end of an answer                   one more token that ends what is written (chat)
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.tokenizers.special_tokens import target_language
from ..modeling.saved.inheritance import require_savable

OF_BEAMS = ("early_stopping", "length_penalty")
"""Defaults that mean something with several beams only."""


def settle_writing(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, longest: int, num_beams: int | None
) -> None:
    """Let a model write at most `longest` tokens in the targets' language; without `num_beams`, as it did."""
    wanted: dict[str, Any] = {"max_new_tokens": longest, "max_length": None}
    if num_beams is not None:
        wanted["num_beams"] = num_beams
    if num_beams == 1:
        wanted |= dict.fromkeys(OF_BEAMS)
    wanted |= target_language(tokenizer)
    if (start := wanted.get("decoder_start_token_id")) is not None:
        model.config.decoder_start_token_id = start
    config: Any = model.generation_config
    before = {name: getattr(config, name) for name in wanted}
    if any(old not in (None, wanted[name]) for name, old in before.items()):
        warnings.warn(
            f"the run writes with {in_words(wanted)}, and so will the model; its generation_config.json said "
            f"{in_words(before)}",
            stacklevel=2,
        )
    for name, value in wanted.items():
        setattr(config, name, value)
    require_savable(config)


def settle_end(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ends: Sequence[int]) -> None:
    """Let a model stop where it learns that an answer ends."""
    config: Any = model.generation_config
    told = config.eos_token_id
    own = [] if told is None else told if isinstance(told, list) else [told]
    if not ends:
        warnings.warn(
            "no special token stands behind an answer among what is learned, so that the model will not "
            "learn to stop: let the chat template end answers with {{ eos_token }}, within {% generation %} "
            "if it has that",
            stacklevel=2,
        )
    elif not {*own} & {*ends}:
        config.eos_token_id = [*own, ends[-1]]
        warnings.warn(
            f"the model stops at {tokenizer.convert_ids_to_tokens(ends[-1])!r}, too, with which the chat "
            f"template ends answers; its generation_config.json said eos_token_id = {told}",
            stacklevel=2,
        )


def in_words(values: Mapping[str, Any]) -> str:
    """List what is set.

    >>> in_words({"num_beams": 4, "max_length": None})
    'num_beams = 4'
    """
    return ", ".join(f"{name} = {value}" for name, value in values.items() if value is not None)
