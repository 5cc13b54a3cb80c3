"""The models that a finished run of pretraining leaves in its folder, with what they are and score."""

import copy
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..configs.messages import quietly
from ..data.files.atomic_writes import explaining_a_full_disk, replace_text
from ..modeling.saved.length import most_positions
from ..modeling.saved.model_folder import keep_option, save_tokenizer
from ..modeling.saved.saving import save_loadable
from ..modeling.saved.weights import hash_of_weights
from ..training.checkpoints.final_weights import FILES, each_kind, folder_of, scores_of
from ..training.devices.environment import environment_of
from ..training.learning import Outcome, Session, tell_of_amount, tell_of_weights
from ..training.run_folder import EVALUATION, RECIPE, delete
from ..training.stages import LEAST_FILL
from ..training.tracking import as_json
from .prepared import Prepared

SavedModel = tuple[PreTrainedModel, dict[str, Tensor]]
"""A finished model with its whole weights."""


def keep_models(session: Session, parts: Prepared, outcome: Outcome) -> None:
    """Write the finished models with every kind of weights, what they are and score, and the run's counts.

    Models of earlier ends are deleted. Every process calls this; the main one writes.
    """
    models: Mapping[str, SavedModel] = {}
    saved: dict[str, str] = {}
    folder, accelerator, training = session.folder, session.accelerator, session.recipe
    for kind, weights in each_kind(parts.model, training.kinds_of_weights, outcome.checkpoint, accelerator):
        if accelerator.is_main_process:
            models = saved_models(parts.model, parts.saved, weights)
            saved[kind] = hash_of_weights(weights)
            for name, (model, own) in models.items():
                place = folder / folder_of(name, kind, training.final_kind)
                save_model(place, model, own, parts.tokenizer, folder, with_code=training.save_code)
    if not accelerator.is_main_process:
        return
    kinds = {kind: scores_of(kind, outcome.scores) for kind in training.kinds_of_weights}
    final, text, progress = training.final_kind, parts.text, outcome.progress
    left_out = {"train": text.left_out, "validation": text.held_out.left_out}
    summary = progress.state_dict() | {
        "weights": final,
        "scores": kinds[final],
        "saved": saved,
        "scores_of_other_weights": {kind: scores for kind, scores in kinds.items() if kind != final},
        "held_out": dict(text.held_out.about),
        "left_out": {split: [each._asdict() for each in own] for split, own in left_out.items()},
        "trained_on": environment_of(parts.model, accelerator),
        "trained_parameters": sum(weights.numel() for weights in parts.model.parameters()),
        "models": {name: type(model).__name__ for name, (model, _) in models.items()},
    }
    for name in models:
        for kind in FILES.keys() - (kinds.keys() - {final}):
            delete(folder / f"{name}-{kind}")
    replace_text(folder / EVALUATION, json.dumps(as_json(summary), indent=2) + "\n")
    asked = training.tokens_asked(progress.step)
    tolerance = (1 - LEAST_FILL) * asked
    tell_of_amount(folder.name, "tokens", progress.tokens, asked, progress, tolerance=tolerance)
    tell_of_weights(folder.name, progress.scored, saved)


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
    run_folder: Path,
    *,
    with_code: bool,
) -> None:
    """Write a model as people load it: with its weights, its tokenizer, its code and the run's recipe."""
    remedy = "make room and continue with --resume; the checkpoints are there"
    with explaining_a_full_disk(folder, model.get_memory_footprint(), remedy), quietly():
        save_loadable(model, folder, weights, with_code=with_code)
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
