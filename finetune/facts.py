"""What a run of fine-tuning leaves beside its seeds: which rows it has read, its best model, and its scores.

`reports/finetune/report.py` makes the report of these, and adds the interval to the scores in
`evaluation.json`.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from ..configs.messages import counted
from ..data.files.atomic_writes import replace_text
from ..data.files.bad_rows import in_words
from ..data.identities import keep_texts
from ..data.tokenizers.special_tokens import UNKNOWN, share_of_unknown, tell_of_unknown, tell_of_unwritable
from ..training.run_folder import EVALUATION, MODEL, RECIPE, TEXTS, delete
from ..training.tracking import as_json
from .inputs import Setting
from .output import GRID, PREDICTIONS, SEED, seed_folder
from .prepared import Prepared, Results
from .recipe import DataRecipe
from .splits import identify


def keep_rows(folder: Path, data: DataRecipe, prepared: Prepared) -> None:
    """Write which rows a run reads into its folder, before it learns from them.

    Bad rows are told of, rows that are learned from and measured on, and tokens that are unknown.
    """
    texts = identify(data, {name: split.rows for name, split in prepared.splits.items()})
    rows = {name: len(split.rows) for name, split in prepared.splits.items()}
    for line in (in_words(prepared.bad_rows), *shared_in_words(prepared.shared_rows, rows)):
        if line:
            print(line, file=sys.stderr, flush=True)
    for name in prepared.measured:
        tell_of_unknown(unknown_in(prepared, name), f"the {name} rows")
        if "chrf" in prepared.task.metrics:
            references = prepared.task.references(prepared.splits[name].rows)
            tell_of_unwritable(references, prepared.pretrained.tokenizer, f"the {name} rows")
    finished = (f"{SEED}*", f"*/{SEED}*", f"{GRID}/*")
    goes_on = any(any(folder.glob(pattern)) for pattern in finished)
    keep_texts(folder / TEXTS, texts, goes_on=goes_on, may_change=False)


def shared_in_words(shared: Mapping[str, int], rows: Mapping[str, int]) -> list[str]:
    """Return of each split how many of its rows are learned from, if any are."""
    return [
        f"{number:,} of the {counted(rows[split], f'{split} row')} "
        f"{'is' if number == 1 else 'are'} equal to a training row: the model's score on "
        f"{'it' if number == 1 else 'these'} shows memorization"
        for split, number in shared.items()
        if number
    ]


def unknown_in(prepared: Prepared, split: str) -> float:
    """Return the share of a split's tokens that the tokenizer does not know."""
    ids = prepared.splits[split].examples.fields["input_ids"].values
    return share_of_unknown([ids], prepared.pretrained.tokenizer)


def keep_best(folder: Path, prepared: Prepared, results: Results, setting: Setting) -> None:
    """Put the best seed's model and predictions where they are looked for, and write what they are worth."""
    split, rate = prepared.measured[-1], setting.rate
    best_seed = min(results, key=lambda seed: prepared.task.minimized_metric(results[seed]["validation"]))
    chosen, best = seed_folder(folder, best_seed), results[best_seed]
    delete(folder / MODEL)
    shutil.copytree(chosen / MODEL, folder / MODEL, dirs_exist_ok=True)
    shutil.copy(folder / RECIPE, folder / MODEL)
    shutil.copy(chosen / PREDICTIONS, folder / PREDICTIONS)
    facts = {
        "scores": {f"{prepared.task.recipe.kind}/{name}": value for name, value in best[split].items()},
        "split": split,
        "held_out": {UNKNOWN: unknown_in(prepared, split)},
        "seconds": best["seconds"],
        "step": best["steps"],
        "trained_on": best["trained_on"],
        "best_seed": best_seed,
        "begins_with": setting.start.model.name,
        "learning_rate": {
            "value": setting.training.learning_rate,
            "reason": rate.reason if rate else "as the recipe or its grid says",
        },
    }
    replace_text(folder / EVALUATION, json.dumps(as_json(facts), indent=2) + "\n")
