"""The reference of recipes: all keys are there, and each is explained."""

import re
from dataclasses import fields, is_dataclass
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from docs.site.recipe_pages import RECIPES, Reference, default, is_kind, meanings, members
from tercet.distill.losses import LogitMSELoss
from tercet.finetune.recipe import FineTuningRecipe
from tercet.pretraining.objectives.masked_language_modeling import MaskedLanguageModelingRecipe
from tercet.pretraining.recipe import CorpusRecipe, PretrainingRecipe


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return Reference().write()


def all_dataclasses() -> list[type]:
    """Find every dataclass that a recipe of any command contains."""
    found = [cls for _, cls, _ in RECIPES.values()]
    for cls in found:
        hints = get_type_hints(cls, include_extras=True)
        found += [part for entry in fields(cls) for part in members(hints[entry.name]) if part not in found]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("cls", all_dataclasses(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_every_key_is_explained(cls):
    """Below each field of a recipe stands what it means: the reference is made of it."""
    hints = get_type_hints(cls, include_extras=True)
    explained = meanings(cls)
    unexplained = [
        entry.name
        for entry in fields(cls)
        if not explained[entry.name] and not is_kind(entry, hints[entry.name])
    ]
    assert not unexplained


def test_every_dataclass_of_a_recipe_has_a_section(pages):
    reference = Reference()
    reference.write()
    assert set(reference.places) == set(all_dataclasses())
    for cls, place in reference.places.items():
        assert f"{{ #{place.anchor} }}" in pages[f"reference/{place.page}.md"], cls


def test_an_example_is_a_recipe_with_a_key_that_it_has(pages):
    assert "`tercet finetune text-classification training.epochs=2`." in pages["reference/finetune.md"]
    with pytest.raises(ValueError, match=r"training.steps = 100: unknown key"):
        Reference().page("finetune", "Keys", FineTuningRecipe, "text-classification training.steps=100")


def test_links_between_keys_lead_to_sections(pages):
    for path, text in pages.items():
        for page, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", text):
            target = f"reference/{page}" if page else path
            assert f"{{ #{anchor} }}" in pages[target]


def test_row_says_type_default_and_meaning(pages):
    row = (
        "| `corpus.sequence_length` | integer, at least 8 | `128` | Maximum length of a training sequence in"
    )
    assert row in pages["reference/pretrain.md"]


def test_objectives_are_sections_by_kind(pages):
    assert "## `objective.kind: masked_language_modeling` {" in pages["reference/pretrain.md"]
    assert "| `objective.mlm_probability` |" in pages["reference/pretrain.md"]


def test_key_that_has_no_default_is_required():
    by_name = {entry.name: default(entry) for entry in fields(CorpusRecipe)}
    assert by_name["train"] == "required"
    assert by_name["text_column"] == "`text`"
    assert by_name["cache"] == "`null`"
    assert {entry.name: default(entry) for entry in fields(PretrainingRecipe)}["tokenizer"] == (
        "the defaults of its keys"
    )


def test_meaning_can_stand_below_the_type_of_a_field():
    assert meanings(LogitMSELoss)["weight"].startswith("Weight of a term in the loss")


def test_meaning_can_stand_in_the_abstract_class():
    hint = get_type_hints(MaskedLanguageModelingRecipe)["kind"]
    assert get_origin(hint) is Literal
    assert get_args(hint) == ("masked_language_modeling",)
    assert meanings(MaskedLanguageModelingRecipe)["kind"] == "Which objective this is."
    assert is_dataclass(MaskedLanguageModelingRecipe)
