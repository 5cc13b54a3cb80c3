"""A law: whatever a recipe says otherwise on resuming is refused, or is on a short list and takes effect."""

import copy
import dataclasses
import functools
import typing

import pytest
import yaml

from tercet.configs.by_kind import OptionalPart
from tercet.configs.recipe import parse_recipe, recipe_data
from tercet.distill import output as of_distillation
from tercet.distill.recipe import DistillationRecipe
from tercet.finetune import output as of_finetuning
from tercet.finetune.recipe import FineTuningRecipe
from tercet.pretraining import output as of_pretraining
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.training.ownership import mark

PRETRAINING = {
    "model": {"preset": "encoder-tiny"},
    "corpus": {"train": "train.txt", "validation": "validation.txt"},
    "objective": {"kind": "masked_language_modeling"},
    "training": {"steps": 9},
}
FINE_TUNING = {
    "model": {"path": "model"},
    "task": {"kind": "classification"},
    "data": {"train": "train.csv"},
    "lora": {"rank": 4},
    "adaptation": {key: PRETRAINING[key] for key in ("corpus", "objective", "training")},
}
DISTILLATION = {
    "general": {"teacher": "teacher", "cache": {}, "on_policy": {}}
    | {key: PRETRAINING[key] for key in ("corpus", "objective", "training")},
    "task": {"teacher": "teacher", "data": {"train": "train.csv"}},
}

BOOKKEEPING = (
    *("steps", "tokens_per_micro_batch", "checkpoint_every", "keep_checkpoints", "log_every", "trackers"),
    *("async_checkpoints", "gradient_checkpointing", "cpu_offload"),
    *("measure_utilization", "peak_flops", "num_workers", "max_skipped_steps"),
    *("retain_heap", "save_code", "timeout"),
)
MORE = (
    *("evaluate_every", "patience", "max_grad_norm", "precision", "compile", "cuda_graphs"),
    *(
        "optimizer.learning_rate",
        "optimizer.matrix_learning_rate",
        "optimizer.betas",
        "optimizer.epsilon",
        "optimizer.weight_decay",
    ),
    *("optimizer.neuron_beta", "schedule.decay_shape", "average_checkpoints", "final_weights"),
    *(f"schedule.{name}" for name in ("kind", "warmup_steps", "warmup_ratio", "final_ratio", "decay_ratio")),
    *("schedule.factor", "stages.steps", "stages.tokens_per_step", "stages.sequence_length"),
    "stages.shares",
)
"""What a run of the engine takes up on resuming: `tests/training/test_resumed_recipes.py` shows it."""

OF_THE_ROWS = (
    *("seeds", "tokens_per_micro_batch", "num_workers", "trackers", "save_code"),
    *("gradient_checkpointing", "cpu_offload"),
)
"""What fine-tuning hands on to the engine, and which runs there are: those that are finished stay."""

OF_THE_TEXT = ("cache", "remote_cache", "skip_bad_records")
"""Where the text is kept, and what of it is read: it is looked up, or read, anew."""

CASES = {
    "pretraining": (
        *(PretrainingRecipe, PRETRAINING, of_pretraining),
        {"output", "training.revisions", "training.push_revisions"}
        | {f"training.{name}" for name in (*BOOKKEEPING, *MORE)}
        | {f"corpus.{name}" for name in OF_THE_TEXT},
    ),
    "fine-tuning": (
        *(FineTuningRecipe, FINE_TUNING, of_finetuning),
        {"output", "trust_remote_code"} | {f"training.{name}" for name in OF_THE_ROWS},
    ),
    "distillation": (
        *(DistillationRecipe, DISTILLATION, of_distillation),
        # What a report compares is made, or made anew, from what was learned.
        {"output", "general.cache.folder", "report.without_teacher", "report.random", "report.speed"}
        | {f"general.training.{name}" for name in BOOKKEEPING}
        | {f"task.training.{name}" for name in OF_THE_ROWS}
        | {f"general.corpus.{name}" for name in OF_THE_TEXT},
    ),
}
"""Name -> kind of recipe, a recipe, its rules, and the keys that take effect."""


def leaves(kind, above=""):
    """Name the fields of a kind of recipe and of all that may be in it, with dots."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, hint in ((field.name, hints[field.name]) for field in dataclasses.fields(kind)):
        about = getattr(hint, "__metadata__", ())
        parts = [each[""] for each in about if isinstance(each, OptionalPart)]
        parts += [
            part
            for part in (hint, *typing.get_args(hint))
            if dataclasses.is_dataclass(part) and isinstance(part, type)
        ]
        for part in parts:
            yield from leaves(part, f"{above}{name}.")
        if not parts:
            yield above + name


def with_another(data, key):
    """Give plain data another value of a dotted key."""
    other = copy.deepcopy(data)
    *above, last = key.split(".")
    place = other
    for name in above:
        if not isinstance(place.get(name), dict):
            place[name] = {}
        place = place[name]
    place[last] = "something else"
    return other


def is_refused(key, kept):
    return any(f"{key}.".startswith(f"{refused}.") for refused in kept)


@pytest.mark.parametrize("case", CASES)
def test_every_field_is_refused_or_known_to_take_effect(case):
    """A new field is refused, or must be entered above with the place that takes it up."""
    kind, data, rules, takes_effect = CASES[case]
    kept = rules.run_folder(parse_recipe(kind, data | {"output": "runs/x"})).kept
    assert {key for key in leaves(kind) if not is_refused(key, kept)} == takes_effect


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_names_the_key_and_the_rest_is_taken_up(case, tmp_path):
    kind, data, rules, takes_effect = CASES[case]
    recipe = parse_recipe(kind, data | {"output": str(tmp_path)})
    earlier = functools.reduce(with_another, sorted(takes_effect), recipe_data(recipe))
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(earlier))
    mark(tmp_path)
    rules.run_folder(recipe).require_claimable(resume=True, overwrite=False)
    refused = sorted(set(leaves(kind)) - takes_effect)
    for key in refused[:: len(refused) // 6]:
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(with_another(earlier, key)))
        with pytest.raises(ValueError, match="of the recipe differs from") as raised:
            rules.run_folder(recipe).require_claimable(resume=True, overwrite=False)
        assert key.startswith(str(raised.value).split()[0])
