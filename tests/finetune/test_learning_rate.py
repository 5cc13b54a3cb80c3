"""The learning rate that a run chooses, by what learns and how large it is, where nobody names one."""

import json

import pytest
import yaml
from transformers import BertConfig

from tercet import TercetEncoderConfig
from tercet.finetune import learning, learning_rate
from tercet.finetune.inputs import find_inputs
from tercet.finetune.learning_rate import count_parameters, in_recipes, rate_of_size
from tercet.finetune.run import explain

from ..reported import finetune

MILLION = 10**6


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        (3.2 * MILLION, 5e-4, 5e-4),  # what the shipped recipes were measured with
        (10.8 * MILLION, 2e-4, 8e-4),  # all-MiniLM-L6-v2, docs/finetuning.md
        (43 * MILLION, 5e-5, 5e-5),  # DistilBERT
        (85 * MILLION, 2e-5, 5e-5),  # Devlin et al., 2019, section A.3
        (302 * MILLION, 1e-5, 3e-5),  # Liu et al., 2019, table 10
        (10**4, 1e-3, 1e-3),
        (10**11, 1e-5, 1e-5),
    ],
)
def test_rates_of_sizes_are_those_that_were_measured_or_published(count, low, high):
    assert low <= rate_of_size(int(count)).value <= high


def test_larger_models_take_no_larger_rates():
    rates = [rate_of_size(10**power).value for power in range(2, 12)]
    assert rates == sorted(rates, reverse=True)
    assert [float(in_recipes(rate)) for rate in rates] == rates


def test_adapters_take_larger_rates_than_the_model_that_they_change():
    for power in range(7, 11):
        assert rate_of_size(10**power, has_adapters=True).value > rate_of_size(10**power).value
    assert rate_of_size(10**4, has_adapters=True).value == 1e-3
    assert 4e-4 <= rate_of_size(85 * MILLION, has_adapters=True).value <= 5e-4  # Hu et al., 2022, table 9


@pytest.mark.parametrize("config", [TercetEncoderConfig, BertConfig])
def test_the_vocabulary_does_not_count(config):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    counts = {count_parameters(config(**sizes, vocab_size=size)) for size in (100, 5000)}
    assert len(counts) == 1


def rates_of(recipe):
    return [setting.rate for setting in find_inputs(recipe).settings]


def test_a_value_of_the_user_is_left_alone(recipe_of):
    grid = {"training.learning_rate": [1e-7, 1e-6]}
    assert rates_of(recipe_of("classification", training={"learning_rate": 1e-7})) == [None]
    assert rates_of(recipe_of("classification", grid=grid)) == [None, None]
    assert None not in rates_of(recipe_of("classification", grid={"training.epochs": [1]}))


def test_heads_alone_and_taggers_have_rates_of_their_own(recipe_of):
    (frozen,) = rates_of(recipe_of("classification", training={"frozen_layers": -1}))
    (tagger,) = rates_of(recipe_of("tagging", model={"tagger": {}}))
    assert frozen is not None
    assert "head alone" in frozen.reason
    assert tagger is not None
    assert tagger.value == 2e-3


def test_what_is_chosen_is_said_and_written_and_what_a_run_goes_on_with(recipe_of, capsys, monkeypatch):
    recipe = recipe_of("classification", training={"epochs": 1})
    seen = {}
    monkeypatch.setattr(learning, "learn_all", keeping(seen, learning.learn_all))
    told = explain(recipe)
    capsys.readouterr()
    finetune(recipe)
    block, output = told.rsplit("\n", 1)
    printed = capsys.readouterr().err
    assert printed.count(block) == 1  # the run begins with what --explain shows
    assert output.split() == ["output", str(recipe.output)]
    assert [line.split()[0] for line in block.splitlines()] == [
        *("model", "labels", "train", "validation", "steps", "runs", "rate", "device", "score")
    ]
    size = "0.0 million parameters outside the embeddings"
    line = f"training.learning_rate = 1.0e-3, chosen for a model with {size}"
    assert line in told
    assert line in printed
    assert seen["rate"] == 1e-3
    assert yaml.safe_load((recipe.folder / "recipe.yaml").read_text())["training"]["learning_rate"] == 1e-3
    assert json.loads((recipe.folder / "scores.json").read_text())["learning_rate"]["value"] == 1e-3
    assert "Peak learning rate 1.0e-3, chosen for a model" in (recipe.folder / "report.md").read_text()
    finetune(recipe, resume=True)  # the choice is the same, so this is the same recipe


def test_a_grid_over_what_decides_the_rate_tries_each_setting_with_its_own(recipe_of, monkeypatch):
    monkeypatch.setattr(learning_rate, "count_parameters", lambda config: 85 * MILLION)
    frozen, adapted = {"training.frozen_layers": [0, -1]}, {"lora.rank": [4, 8]}
    inputs = find_inputs(recipe_of("classification", grid=frozen))
    assert inputs.recipe.training.learning_rate is None
    assert [each.training.learning_rate for each in inputs.settings] == [3e-5, 1e-3]
    assert [each.values["training.learning_rate"] for each in inputs.settings] == [3e-5, 1e-3]
    assert [each.rate and each.rate.value for each in inputs.settings] == [3e-5, 1e-3]
    inputs = find_inputs(recipe_of("classification", grid=adapted))
    assert {each.training.learning_rate for each in (inputs.recipe, *inputs.settings)} == {4e-4}
    grid = frozen | {"training.learning_rate": [1e-7]}
    assert {
        each.training.learning_rate for each in find_inputs(recipe_of("classification", grid=grid)).settings
    } == {1e-7}


def test_each_setting_of_a_grid_shows_its_own_rate(recipe_of, monkeypatch):
    monkeypatch.setattr(learning_rate, "count_parameters", lambda config: 85 * MILLION)
    recipe = recipe_of("classification", training={"epochs": 1}, grid={"training.frozen_layers": [0, -1]})
    (told,) = (line for line in explain(recipe).splitlines() if line.startswith("rate"))
    assert "= 3.0e-5, chosen for a model" in told
    assert told.endswith("; training.learning_rate = 1.0e-3, that of a head alone: all layers are frozen")
    finetune(recipe)
    report = (recipe.folder / "report.md").read_text().replace("\\", "")
    assert "frozen_layers=0, learning_rate=3e-05" in report
    assert "frozen_layers=-1, learning_rate=0.001" in report
    scores = json.loads((recipe.folder / "scores.json").read_text())
    best = min(scores["grid"], key=lambda each: each["shortfall"])["values"]
    assert scores["learning_rate"]["value"] == best["training.learning_rate"]
    assert ("head alone" in scores["learning_rate"]["reason"]) == (best["training.frozen_layers"] == -1)
    finetune(recipe, resume=True)


def keeping(seen, learn_all):
    """Note the rate of a setting before its runs are carried out."""

    def learn(setting, *arguments, **options):
        seen["rate"] = setting.training.learning_rate
        return learn_all(setting, *arguments, **options)

    return learn
