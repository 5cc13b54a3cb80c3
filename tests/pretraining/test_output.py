"""The folder of a run: an earlier run is safe in it."""

import pytest

from tercet.configs.recipe import load_recipe
from tercet.data.cache import made_once
from tercet.pretraining.output import run_folder
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.tokenizer import TokenizerSource
from tercet.training.run_folder import Run

from .conftest import unread_recipe


def recipe_for(folder, **changes) -> PretrainingRecipe:
    changes = {"training": {"steps": 10}, "output": str(folder)} | changes
    return unread_recipe("causal_language_modeling", {"preset": "decoder-tiny"}, **changes)


def claim_output(recipe, *, resume, overwrite):
    """Claim a recipe's folder, as a run that is killed afterwards."""
    output = run_folder(recipe)
    output.require_claimable(resume=resume, overwrite=overwrite)
    output.take(resume=resume, overwrite=overwrite)
    return recipe.folder


def visible(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".tercet.json")


def leave_run(folder) -> None:
    claim_output(recipe_for(folder), resume=False, overwrite=False)
    for name in ("tokenizer", "checkpoints", "model"):
        (folder / name).mkdir()
    (folder / "log.jsonl").write_text("{}\n")


def test_claimed_folder_holds_the_recipe_as_it_was(tmp_path):
    recipe = recipe_for(tmp_path / "new" / "run", training={"steps": 3, "optimizer": {"epsilon": 1e-9}})
    folder = claim_output(recipe, resume=False, overwrite=False)
    assert load_recipe(PretrainingRecipe, folder / "recipe.yaml") == recipe


def test_folder_in_use_is_refused_and_left_alone(tmp_path):
    leave_run(tmp_path)
    with pytest.raises(ValueError, match=r"earlier run \(checkpoints\).*--resume.*--overwrite"):
        claim_output(recipe_for(tmp_path), resume=False, overwrite=False)
    assert (tmp_path / "log.jsonl").read_text() == "{}\n"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_others_is_never_touched(tmp_path, resume, overwrite):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"thesis\.tex, which was not written by a run"):
        claim_output(recipe_for(tmp_path), resume=resume, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("leftover", [".recipe.yaml.partial", ".tokenizer.x1_.partial", ".log.jsonl.partial"])
@pytest.mark.parametrize("resume", [False, True])
def test_what_a_killed_run_was_writing_goes_and_hinders_nobody(leftover, resume, tmp_path):
    claim_output(recipe_for(tmp_path), resume=False, overwrite=False)
    (tmp_path / leftover).write_text("half of i")
    claim_output(recipe_for(tmp_path), resume=resume, overwrite=False)
    assert visible(tmp_path) == ["recipe.yaml"]


def test_unfinished_files_of_others_are_not_taken_for_ours(tmp_path):
    (tmp_path / ".thesis.partial").write_text("years of work")
    claim_output(recipe_for(tmp_path), resume=False, overwrite=False)
    assert (tmp_path / ".thesis.partial").exists()


MASKED = {"share": 1, "objective": {"kind": "masked_language_modeling"}}
ORDERED = {"share": 1, "objective": {"kind": "masked_language_modeling_with_sentence_order"}}


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("tokenizer", {"vocab_size": 99}),
        ("corpus.control_tokens", {"control_tokens": ["<|title|>"]}),
        ("corpus.largest_record", {"largest_record": 1000}),
        ("objective.objectives", {"kind": "mixture", "objectives": [MASKED, ORDERED]}),
    ],
)
def test_a_prepared_tokenizer_of_other_special_tokens_or_text_is_not_used(key, part, tmp_path):
    mixture = {"kind": "mixture", "objectives": [MASKED, MASKED | {"share": 2}]}
    parts = {"objective": mixture, "corpus": {"train": "x.txt", "validation": "x.txt"}, "tokenizer": {}}
    name = key.partition(".")[0]
    claim_output(recipe_for(tmp_path, **parts), resume=False, overwrite=False)
    (tmp_path / "tokenizer").mkdir()
    claim_output(recipe_for(tmp_path, **parts, training={"steps": 20}), resume=False, overwrite=False)
    parts[name] |= part
    with pytest.raises(ValueError, match=rf"{key} of the recipe differs from .*recipe.yaml"):
        claim_output(recipe_for(tmp_path, **parts), resume=False, overwrite=False)


def test_failed_attempt_does_not_occupy_the_folder(tmp_path):
    claim_output(recipe_for(tmp_path), resume=False, overwrite=False)
    other = {"train": "other.txt", "validation": "held-out.txt"}
    claim_output(recipe_for(tmp_path, corpus=other), resume=False, overwrite=False)


def test_resuming_may_train_longer_but_not_learn_something_else(tmp_path):
    leave_run(tmp_path)
    claim_output(recipe_for(tmp_path, training={"steps": 20}), resume=True, overwrite=False)
    with pytest.raises(ValueError, match="objective of the recipe differs from"):
        claim_output(recipe_for(tmp_path, objective={"kind": "denoising"}), resume=True, overwrite=False)


def test_a_half_written_tokenizer_is_written_anew(tmp_path):
    folder = claim_output(recipe_for(tmp_path), resume=False, overwrite=False)

    def write_half(path) -> None:
        (path / "tokenizer.json").write_text("{")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(folder / "tokenizer", write_half)
    recipe = recipe_for(tmp_path)
    source = TokenizerSource(recipe.tokenizer, "text", None, False, (), recipe.objective, (), None)
    assert source.found(Run(run_folder(recipe), resume=False, overwrite=False)) is None
    claim_output(recipe_for(tmp_path), resume=False, overwrite=False)
    made_once(folder / "tokenizer", lambda path: None)
    assert visible(tmp_path) == ["recipe.yaml", "tokenizer"]
