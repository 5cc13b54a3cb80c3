"""How a model writes after fine-tuning: as `generation_config.json` said before, but for what a run decides.

task.longest_target, task.num_beams    a model is scored so, and asked so without further words
the language of the targets            what the decoder starts from, or writes first (mBART, NLLB)
the end of answers in a chat template  where a chat model stops, beside the ends that it has
"""

import warnings
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..interop.generation_defaults import require_savable
from ..text.special_tokens import target_language

OF_BEAMS = ("early_stopping", "length_penalty")
"""Defaults that mean something with several beams only."""


def settle_writing(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, longest: int, num_beams: int | None
) -> None:
    """Let a model write targets as a recipe says, in their language.

    Args:
        model: Can generate.
        tokenizer: Its own.
        longest: Tokens that it writes at most.
        num_beams: Targets that it follows at once; `None`: as it did.

    Warns:
        UserWarning: A value of its generation defaults gives way to another one.

    Raises:
        ValueError: Its other generation defaults do not go with these.
    """
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


def settle_ends(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end: int | None) -> None:
    """Let a model stop writing behind the token that ends the answers which it learns, too.

    Warns:
        UserWarning: It did not, or nothing ends an answer.
    """
    config: Any = model.generation_config
    known = config.eos_token_id
    ends = [] if known is None else known if isinstance(known, list) else [known]
    if end is None:
        warnings.warn(
            "the chat template ends answers with no special token, so that the model does not learn to stop: "
            "save the tokenizer with a template that writes its eos_token there",
            stacklevel=2,
        )
    elif end not in ends:
        config.eos_token_id = [*ends, end]
        warnings.warn(
            f"the chat template ends answers with {tokenizer.decode([end])!r}: the model stops there, too; "
            f"its generation_config.json said eos_token_id = {known}",
            stacklevel=2,
        )


def in_words(values: Mapping[str, Any]) -> str:
    """List what is set.

    >>> in_words({"num_beams": 4, "max_length": None})
    'num_beams = 4'
    """
    return ", ".join(f"{name} = {value}" for name, value in values.items() if value is not None)
