"""The model that a pretraining run begins with: a preset with random weights, or one that goes on learning.

The objective chooses the head, the tokenizer the vocabulary's size and the special ids; the preset says the
rest. A model that gets another tokenizer keeps what it knows of tokens (`data/tokenizers/token_rows.py`).

A stock model that goes on is imported. The import lies in the cache, with its certificate, under the hash of
what it was made of: a run that is resumed, planned or verified finds it there.
"""

import copy
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..configs.messages import first_line, quietly, shortened
from ..configs.recipe import load_preset, read_recipe, recipe_folders, wrong_member
from ..configs.schema import require_fields
from ..data.cache import cache_folder, made_once, name_of
from ..data.files.atomic_writes import explaining_a_full_disk
from ..data.tokenizers.token_rows import keeps_ids, new_ids, rows_between
from ..modeling import NeuralConfig, NeuralPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint, Opener
from ..modeling.saved.inheritance import TokenRows, inherit, inherit_writing
from ..modeling.saved.length import most_positions
from ..modeling.saved.model_folder import (
    keep_option,
    num_ids,
    require_fit,
    save_tokenizer,
)
from ..modeling.saved.saving import save_loadable
from ..training.recipe import TrainingRecipe
from ..training.run_folder import RECIPE
from .objectives.base_recipe import Trainable
from .objectives.recipes import OBJECTIVES
from .recipe import PretrainingRecipe

SavedModel = tuple[PreTrainedModel, dict[str, Tensor]]
"""A finished model with its whole weights."""

SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
"""Fields of a configuration that repeat what the tokenizer says."""

EDITION_OF_IMPORTS = 2
"""To be raised whenever the same stock model gives another one of ours."""


def build_model(
    recipe: PretrainingRecipe,
    tokenizer: PreTrainedTokenizerBase,
    config: NeuralConfig | None = None,
    open_model: Opener = Checkpoint.open,
) -> Trainable:
    """Build the untrained model of a recipe; its weights are a function of the recipe's seed.

    Args:
        recipe: Of the run.
        tokenizer: Sets the size of the vocabulary and the special ids.
        config: What `build_config` gives, if that is known already; it is changed.
        open_model: Finds the model that goes on by its name.

    Raises:
        ValueError: As in `build_config`, or the tokenizer does not fit the model.
    """
    config = build_config(recipe, open_model) if config is None else config
    fit_vocabulary(config, tokenizer, recipe, open_model)
    torch.manual_seed(recipe.training.seed)
    model = recipe.objective.taught(recipe.objective.build_model(config), tokenizer)
    if (path := recipe.model.path) is not None:
        source = kept_import(open_model(path), recipe.corpus.cache).ours()
        former = former_tokenizer(recipe, open_model)
        rows = rows_of_tokens(former, tokenizer, source.config.vocab_size, config.vocab_size)
        renumber = None if former is None or rows is None else partial(new_ids, former, tokenizer)
        tell_of_fresh(path, inherit_parts(model, recipe, source, rows, renumber))
        tell_of_new_tokens(path, rows, source.config.vocab_size, config.vocab_size)
    return model


def former_tokenizer(
    recipe: PretrainingRecipe, open_model: Opener = Checkpoint.open
) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer that a model which goes on learning comes with, if there is one."""
    return None if recipe.model.path is None else open_model(recipe.model.path).tokenizer


def rows_of_tokens(
    former: PreTrainedTokenizerBase | None,
    tokenizer: PreTrainedTokenizerBase,
    num_rows: int,
    num_new_rows: int,
) -> TokenRows | None:
    """Find what each id of a tokenizer begins with, if it is another tokenizer than that of the model."""
    if former is None or not former.is_fast or former.get_vocab() == tokenizer.get_vocab():
        return None
    return rows_between(former, tokenizer, num_rows, num_new_rows)


def inherit_parts(
    model: Trainable,
    recipe: PretrainingRecipe,
    source: NeuralPreTrainedModel,
    rows: TokenRows | None = None,
    renumber: Callable[[Iterable[int]], Mapping[int, int]] | None = None,
) -> list[str]:
    """Return parts of what is trained the weights of a model; name what it does not have."""
    fresh = {id(parameter): name for name, parameter in model.named_parameters()}
    for part in map(model.get_submodule, recipe.objective.inheriting):
        assert isinstance(part, NeuralPreTrainedModel)
        missing = inherit(part, source, rows=rows)
        inherit_writing(part, source, renumber)
        for name, parameter in part.named_parameters():
            if name not in missing:
                fresh.pop(id(parameter), None)
    return sorted(fresh.values())


def saved_models(
    model: nn.Module, saved: Mapping[str, str], weights: Mapping[str, Tensor]
) -> dict[str, SavedModel]:
    """Find the models that a run leaves in what it trains, by their folders.

    Args:
        model: What is trained.
        saved: Folders, and which part of the model each gets; the empty name is all of it.
        weights: All of them, whole and by their names in `model`.
    """
    found = {}
    for folder, part in saved.items():
        prefix = f"{part}." if part else ""
        own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        found[folder] = cast(PreTrainedModel, model.get_submodule(part)), own
    return found


def save_model(
    folder: Path,
    model: PreTrainedModel,
    weights: dict[str, Tensor],
    tokenizer: PreTrainedTokenizerBase,
    training: TrainingRecipe,
    run_folder: Path,
) -> None:
    """Write a model as people load it: with its weights, its tokenizer, its code and the run's recipe.

    Raises:
        WriteError: There is no room.
    """
    remedy = "make room and continue with --resume; the checkpoints are there"
    with explaining_a_full_disk(folder, model.get_memory_footprint(), remedy), quietly():
        save_loadable(model, folder, weights, with_code=training.save_code)
        save_tokenizer(cut_to(tokenizer, model.config), folder)
        shutil.copy(run_folder / RECIPE, folder)


def cut_to(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """Return a tokenizer that cuts texts to no more tokens than a model has positions, as a student may."""
    positions = most_positions(config)
    if positions is None or tokenizer.model_max_length <= positions:
        return tokenizer
    shorter = copy.deepcopy(tokenizer)
    keep_option(shorter, "model_max_length", positions)
    return shorter


def tell_of_fresh(path: str, fresh: list[str]) -> None:
    """Warn of parameters that a model brings no weights for."""
    if fresh:
        warnings.warn(
            f"{path} has no weights for {shortened(fresh)}: they are initialized randomly", stacklevel=2
        )


def tell_of_new_tokens(path: str, rows: TokenRows | None, num_old: int, num_new: int) -> None:
    """Show on the screen that a model has got another vocabulary, or a larger one."""
    if rows is not None:
        print(
            f"{path}: the vocabulary changes from {num_old:,} to {num_new:,} rows: {rows.num_kept:,} are "
            f"those of one token, {rows.num_joined:,} begin with the mean of the pieces that the model's "
            f"tokenizer cuts their text into, {rows.num_unknown:,} with the mean of all tokens",
            file=sys.stderr,
            flush=True,
        )
    elif num_new > num_old:
        print(
            f"{path}: the vocabulary grows from {num_old:,} to {num_new:,} tokens; the new ones begin with "
            "the mean of the old ones",
            file=sys.stderr,
            flush=True,
        )


def build_config(recipe: PretrainingRecipe, open_model: Opener = Checkpoint.open) -> NeuralConfig:
    """Join a preset, or the configuration of a model that goes on learning, with a recipe's overrides.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: Preset or model is unknown or of another member than the objective trains, an override is
            no field or no possible value, or sequences are longer than the model's positions.
    """
    overrides, kind = recipe.model.applied_overrides, recipe.objective.kind
    classes = [cast(type[NeuralConfig], model.config_class) for model in recipe.objective.model_classes]
    origin, values = values_of(recipe, open_model)
    model_type = values.pop("model_type")
    values.pop("auto_map", None)  # code beside the weights that a model begins with stays there
    config_class = next((known for known in classes if known.model_type == model_type), None)
    if config_class is None:
        raise ValueError(wrong_member(origin, model_type, kind, [known.model_type for known in classes]))
    require_fields(config_class, list(overrides))
    try:
        config = config_class(**values | overrides)
    except StrictDataclassError as error:
        raise ValueError(f"model.overrides: {first_line(error)}") from None
    require_positions(config, recipe.corpus.sequence_length)
    return config


def values_of(recipe: PretrainingRecipe, open_model: Opener) -> tuple[str, dict[str, Any]]:
    """Read the fields of the configuration that a recipe begins with, and say where they are from.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: The recipe names no preset and no model, or both; or there is no such preset.
    """
    preset, path = recipe.model.preset, recipe.model.path
    if preset is None and path is None:
        raise ValueError(
            "model.preset and model.path are both empty: name a preset (`tercet recipes`) to train from "
            "random weights, or a model to go on with"
        )
    if path is not None:
        checkpoint = open_model(path)
        require_trainable(recipe, checkpoint)
        return f"model.path {path}", kept_import(checkpoint, recipe.corpus.cache).config.to_dict()
    return f"model.preset {preset}", load_preset(str(preset))


def require_trainable(recipe: PretrainingRecipe, checkpoint: Checkpoint) -> None:
    """Raise a `ValueError` if the objective does not train the model that is to go on; it is not imported."""
    from ..modeling.stock.architectures import architecture_of

    path, own_type = checkpoint.name, checkpoint.config.model_type
    is_ours = checkpoint.is_ours
    member = own_type if is_ours else architecture_of(checkpoint.config).config.model_type
    trained = members_of(recipe.objective.model_classes)
    if member not in trained:
        known_as = f"a {member}" if is_ours else f"a {own_type}, with Tercet a {member}"
        fitting = [
            kind
            for kind, objective in OBJECTIVES.items()
            if member in members_of([objective.model_class, *objective.other_model_classes])
        ]
        raise ValueError(
            f"model.path {path} is {known_as}, but {recipe.objective.kind} trains a "
            f"{' or a '.join(trained)}: {to_adapt(path, fitting)}set objective.kind to "
            f"{' or '.join(fitting)}, or name another model"
        )


def to_adapt(path: str, kinds: Sequence[str]) -> str:
    """Name the shipped recipe that goes on with a model by one of some objectives, if there is one."""
    for name, folder in sorted(recipe_folders().items()):
        data = read_recipe(name)[1] if folder == "pretraining" else {}
        if data.get("model", {}).get("path") and data["objective"]["kind"] in kinds:
            return f"run `tercet pretrain {name} model.path={path}`, "
    return ""


def members_of(models: Sequence[type[NeuralPreTrainedModel]]) -> list[str]:
    """List the types of configurations of models."""
    return [cast(type[NeuralConfig], model.config_class).model_type for model in models]


def require_positions(config: NeuralConfig, sequence_length: int) -> None:
    """Raise a `ValueError` if sequences are longer than the model has positions for."""
    positions = most_positions(config)
    if positions is not None and sequence_length > positions:
        raise ValueError(
            f"corpus.sequence_length is {sequence_length}, but the model has "
            f"{positions} positions: shorten the sequences, or raise "
            "model.overrides.max_position_embeddings"
        )


def fit_vocabulary(
    config: NeuralConfig,
    tokenizer: PreTrainedTokenizerBase,
    recipe: PretrainingRecipe,
    open_model: Opener = Checkpoint.open,
) -> None:
    """Set room for the tokenizer's ids, unless the recipe gives one, and its special ids, in a configuration.

    A model that goes on learning keeps its room, or gets more, unless its tokens are numbered anew. A decoder
    that begins with the preset's eos token (BART) will begin with the tokenizer's, and so on.

    Raises:
        ValueError: The given size has no room for the tokenizer's ids.
    """
    needed, model, former = num_ids(tokenizer), recipe.model, former_tokenizer(recipe, open_model)
    is_anew = former is not None and not keeps_ids(former, tokenizer)
    if "vocab_size" not in model.applied_overrides:
        keeps_room = model.path is not None and not is_anew
        config.vocab_size = max(config.vocab_size, needed) if keeps_room else needed
    if config.vocab_size < needed:
        raise ValueError(
            f"model.overrides.vocab_size is {config.vocab_size:,}, but the tokenizer's ids need "
            f"{needed:,}: leave it out, or train a smaller tokenizer (tokenizer.vocab_size)"
        )
    if config.is_encoder_decoder:
        start = config.decoder_start_token_id
        role = next((name for name in SPECIAL_IDS if getattr(config, name) == start), "pad_token_id")
        config.decoder_start_token_id = getattr(tokenizer, role)
    for name in SPECIAL_IDS:
        own, given = getattr(tokenizer, name), getattr(config, name)
        if is_anew or not (isinstance(given, list) and own in given):  # several tokens may end a text
            setattr(config, name, own)


def kept_import(checkpoint: Checkpoint, cache: str | Path | None = None) -> Checkpoint:
    """Return a model of ours as it is, or the import of a stock model in the cache, and tell of a new one.

    Args:
        checkpoint: The model on disk.
        cache: Folder of the cache; by default `TERCET_CACHE`, else `~/.cache/tercet`.

    Raises:
        ValueError: As in `load_stock` and `from_stock`, the tokenizer has ids without rows, or the
            models are not one.
    """
    if checkpoint.is_ours:
        return checkpoint
    kept = cache_folder(cache) / "imported" / name_of(EDITION_OF_IMPORTS, checkpoint.hash)
    if not kept.exists():
        made_once(kept, lambda target: import_into(target, checkpoint))
        print(
            f"{checkpoint.name}: imported from {checkpoint.config.model_type}, in {kept}; certificate.json "
            "there says how close the logits are",
            file=sys.stderr,
            flush=True,
        )
    return Checkpoint.open(str(kept))


def import_into(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the model of ours that a stock model is, its tokenizer and the certificate into a folder.

    Raises:
        ValueError: As in `kept_import`.
    """
    from ..modeling.stock.certificate import certify
    from ..modeling.stock.models import imported, load_stock

    stock, tokenizer = load_stock(checkpoint), checkpoint.tokenizer
    require_fit(tokenizer, stock.config)
    ours = imported(stock, checkpoint)
    certificate = certify(stock, ours, tokenizer)
    if not certificate.holds:
        raise ValueError(certificate.verdict())
    print(certificate.verdict(), file=sys.stderr, flush=True)
    with quietly():
        save_loadable(ours, folder)
        if tokenizer is not None:
            save_tokenizer(tokenizer, folder)
    certificate.save(folder)
