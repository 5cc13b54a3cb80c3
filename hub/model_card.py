"""The model card: what a finished model is and how it came about, from the facts that its run left.

Nothing is asked and nothing invented. What a run cannot know (licence, language) comes from a `README.md` in
the model's folder: one that consists of metadata alone completes the card, one with a text replaces it.
"""

from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from yaml import YAMLError

from ..ground.stored_weights import StoredWeights
from ..storage.finished_run import FinishedRun
from ..storage.scores import evaluation_results
from .card_sections import sections
from .usage import usage_of

CARD = "README.md"


def build_card(run: FinishedRun, weights: StoredWeights, repo: str) -> ModelCard:
    """Write the card of a finished model for a repository.

    Raises:
        ValueError: The folder's own `README.md` has metadata that cannot be read.
    """
    own = read_own_card(run)
    if own is not None and own.text.strip():
        return own
    usage = usage_of(run)
    metadata: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": usage.pipeline,
        "tags": ["tercet", *([run.config["model_type"], "custom_code"] if usage.needs_code else [])],
        "datasets": [text["dataset"] for text in run.texts.get("train", []) if "dataset" in text] or None,
        "model_name": repo.partition("/")[2],
        "eval_results": evaluation_results(run),
    }
    if own is not None:
        metadata |= own.data.to_dict()
    if not metadata["eval_results"]:
        del metadata["eval_results"]
    body = "\n\n".join(sections(run, weights, usage, repo))
    data = ModelCardData(ignore_metadata_errors=False, **metadata)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{body}\n", ignore_metadata_errors=False)


def read_own_card(run: FinishedRun) -> ModelCard | None:
    """Read the `README.md` that someone put beside the model.

    Raises:
        ValueError: Its metadata cannot be read.
    """
    file = run.model / CARD
    if not file.exists():
        return None
    try:
        return ModelCard(file.read_text(encoding="utf-8"), ignore_metadata_errors=False)
    except (ValueError, YAMLError) as error:
        raise ValueError(f"the metadata of {file} cannot be read ({error}): correct it") from error


def what_is_missing(run: FinishedRun, card: ModelCard) -> list[str]:
    """List what the card could say and does not, each with a remedy."""
    data = card.data.to_dict()
    add = f"write `{{}}` between two lines `---` into {run.model / CARD}"
    run_tells = {
        "the recipe (no recipe.yaml)": run.recipe,
        "the texts and their hashes (no texts.json)": run.texts,
        "scores (no evaluation.json)": run.evaluation.get("scores"),
        "a plot of the losses (no curves.png)": run.plots,
    }
    has_flops = run.flops or run.task is not None  # which fine-tuning does not count
    flops = "the FLOPs of the training: pretrain with training.measure_utilization=true"
    return [
        *(
            f"{key}: {add.format(example)}"
            for key, example in (("license", "license: apache-2.0"), ("language", "language: en"))
            if key not in data
        ),
        *(f"{name}: push the folder of a run, which has it" for name, fact in run_tells.items() if not fact),
        *([] if has_flops else [flops]),
    ]
