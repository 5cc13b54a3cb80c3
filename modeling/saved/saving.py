"""Saving a model: of its configuration those keys are kept that say what model or tokenizer it is.

transformers keeps all others, too, also those by which programs load something: code of another repository
(`auto_map`, `custom_pipelines`), or a kernel (`attn_implementation`). A model of one's own that began with
somebody's would go on naming theirs.
"""

import inspect
import json
import sys
from collections.abc import Container
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ...configs.documents import texts_in
from ...configs.messages import shortened
from ...configs.model_paths import CONFIG
from .foreign_folder import BESIDE, NAMES_FILES

OF_CONFIGURATIONS = {
    *("architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "auto_map"),
    *("id2label", "label2id", "num_labels", "problem_type", "sentence_transformers"),
    *("sbert_ce_default_activation_function",),
}
"""Keys that any model's configuration may have, beside the fields of its class."""

OF_TOKENIZERS = {
    *("tokenizer_class", "backend", "is_local", "local_files_only", "auto_map", "processor_class", "verbose"),
    *("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens", "chat_control_tokens"),
    *("model_specific_special_tokens", "split_special_tokens", "spaces_between_special_tokens"),
    *("model_max_length", "max_len", "max_length", "stride", "truncation_strategy", "pad_to_multiple_of"),
    *("model_input_names", "padding_side", "truncation_side", "pad_token_type_id", "unk_id", "extra_ids"),
    *("chat_template", "response_schema", "response_template", "clean_up_tokenization_spaces", "errors"),
    *("add_bos_token", "add_eos_token", "add_prefix_space", "add_dummy_prefix", "legacy", "from_slow"),
    *("do_lower_case", "do_lower", "do_basic_tokenize", "keep_accents", "strip_accents", "never_split"),
    *("tokenize_chinese_chars", "remove_space", "wordpieces_prefix", "clean_text", "split_by_punct"),
    *("trim_offsets", "normalization", "fix_mistral_regex", "sp_model_kwargs", "offset", "demojizer"),
    *("lang", "src_lang", "tgt_lang", "source_lang", "target_lang", "language", "task", "vocab_type"),
    *("predict_timestamps", "separate_vocabs"),
}
"""Keys that say how a tokenizer cuts and writes texts, beside names of tokens and arguments of its class."""

OF_TOKENS = ("_token", "_tokens", "_token_id")
"""How keys end that name tokens, also those of one model alone (`image_token`)."""


def save_loadable(
    model: PreTrainedModel, folder: Path, weights: dict[str, Tensor] | None = None, *, with_code: bool = False
) -> None:
    """Write a model, ours or a stock one, with no keys but the fields of its configuration's class.

    `weights` may take the place of the model's own. The code of a model of ours is written only `with_code`.
    """
    model.save_pretrained(folder, state_dict=weights)
    if with_code:
        from .remote_code import save_code

        save_code(folder)
    keep_known_fields(model.config, folder)


def keep_known_fields(config: PreTrainedConfig, folder: Path) -> None:
    """Take out of a configuration that has just been saved what it has beside the fields of its class."""
    file, kind = folder / CONFIG, type(config)
    known = keep_known(file, keys_of_configuration(kind), kind=kind.__name__)
    file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def keep_known(file: Path, known: Container[str], *, kind: str) -> dict[str, Any]:
    """Return what is known of a configuration that has just been saved in a file, and say what is left out.

    Of `auto_map` it is kept only if all its code lies in the folder. `kind` is what other keys are not of.
    """
    facts = json.loads(file.read_bytes())
    kept = {key: value for key, value in facts.items() if key in known and is_own(key, value, file.parent)}
    if gone := sorted(facts.keys() - kept.keys()):
        shown = [f"auto_map ({references(facts)})" if key == "auto_map" else key for key in gone]
        print(
            f"{file.name}: left out {shortened(shown)}, which came with the model: {kind} lacks it, or "
            "its code is not in the folder",
            file=sys.stderr,
            flush=True,
        )
    return kept


def is_own(key: str, value: Any, folder: Path) -> bool:
    """Return whether a key names no code, or code in the folder."""
    if key != "auto_map":
        return True
    found = [BESIDE.fullmatch(text) for _, text in texts_in(value)]
    return all(each is not None and (folder / f"{each[1]}.py").exists() for each in found)


def references(facts: dict[str, Any]) -> str:
    """List what an `auto_map` names."""
    return shortened(sorted({text for _, text in texts_in(facts["auto_map"])}), 3)


@cache
def keys_of_configuration(kind: type[PreTrainedConfig]) -> set[str]:
    """Name the keys of a configuration: fields of its class, what it computes, and those of generation."""
    own = {*kind.attribute_map, *kind().to_dict(), *(field.name for field in fields(kind))}
    return OF_CONFIGURATIONS | {*GenerationConfig().to_dict()} | own


class KeysOfTokenizer:
    """The keys that a tokenizer's configuration may have by its class; none names a file."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        builders = [vars(kind)["__init__"] for kind in type(tokenizer).__mro__ if "__init__" in vars(kind)]
        arguments = {name for build in builders[:-1] for name in inspect.signature(build).parameters}
        self.known = OF_TOKENIZERS | arguments

    def __contains__(self, key: object) -> bool:
        is_known = key in self.known or str(key).endswith(OF_TOKENS)
        return is_known and not NAMES_FILES.fullmatch(str(key))
