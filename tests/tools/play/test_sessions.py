"""Which abilities models have, and what they answer side by side."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from tercet.__main__ import main
from tercet.finetune.tasks.texts import ClassificationRecipe
from tercet.tools.play.loaded_model import load_model
from tercet.tools.play.sessions import Session, abilities_of, open_session

from .conftest import LABELS

READING = ["tokens"]
COMMON = ["similar", *READING]


@contextmanager
def stateless(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Yield a model other weights for a while."""
    earlier = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    model.load_state_dict(weights, strict=False)
    try:
        yield
    finally:
        model.load_state_dict(earlier, strict=False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder", ["fill", *COMMON]),
        ("decoder", ["continue", *COMMON]),
        ("denoiser", ["restore", *COMMON]),
        ("spans", ["restore", *COMMON]),
        ("classifier", ["classify", *READING]),
        ("tagger", ["tag", *READING]),
        ("reader", ["answer", *READING]),
        ("chooser", ["choose", *READING]),
        ("searcher", ["similar", *READING]),
        ("writer", ["write", *READING]),
    ],
)
def test_abilities_follow_from_the_head_and_the_task(name, expected, load):
    assert list(abilities_of(load(name))) == expected


def test_every_example_of_every_ability_is_answered(load, folders):
    for folder in folders.iterdir():
        for ability in abilities_of(load(folder.name)).values():
            for example in ability.examples:
                assert ability.answer(example, {}), (folder.name, ability.name)


def test_models_answer_side_by_side(load):
    session = Session([load("encoder"), load("classifier"), load("decoder")])
    assert list(session.abilities) == ["classify", "fill", "continue", *COMMON]
    assert [model.title for model in session.able("similar")] == ["encoder", "decoder"]
    answered = dict(session.answers("similar", ["a cat", "the cat\nthe dog"], {}))
    for model, results in answered.items():
        assert results == abilities_of(model)["similar"].answer(["a cat", "the cat\nthe dog"], {})


def test_a_question_that_one_model_cannot_answer_is_a_message_beside_the_answer_of_the_other(load):
    session = Session([load("encoder"), load("spans")])
    text = "Two young men are walking on the street. " * 2
    answers = [answer for _, answer in session.answers("tokens", [text], {})]
    assert isinstance(answers[0], list)
    assert isinstance(answers[1], str)
    assert answers[1].startswith("The text has ")
    assert answers[1].endswith("spans reads at most 64: shorten the text")


def test_a_model_that_reads_another_number_of_texts_says_so(load, folders):
    one, two = load("classifier"), load_model(str(folders / "classifier" / "model"))
    two.title = "pairs"
    two.predictor.task = ClassificationRecipe("classification", texts=("premise", "hypothesis")).build(LABELS)
    session = Session([one, two])
    assert [field.name for field in session.fields("classify")] == ["text", "top"]
    (_, answer), (_, said) = session.answers("classify", ["The cat sat."], {})
    assert answer == abilities_of(one)["classify"].answer(["The cat sat."], {})
    assert said == "pairs reads Premise and Hypothesis: play with it by itself."
    assert len(Session([two, one]).fields("classify")) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a " * 1_000_000, "has 2,000,000 characters: write at most 100,000"),
        ("The ___ \udcff", r"has '\udcff', which is no character: write it anew"),
        ("The ___ \0", r"has '\x00', which is no character: write it anew"),
    ],
)
def test_what_is_too_long_or_no_text_is_refused_before_it_is_tokenized(text, said, load, monkeypatch):
    for name, ability in abilities_of(load("decoder")).items():
        with monkeypatch.context() as patch:
            session = Session([load("decoder")])
            patch.setattr(load("decoder"), "tokenizer", None)
            ((_, answer),) = session.answers(name, [text] * len(ability.examples[0]), {})
        assert said in answer


@pytest.mark.parametrize(
    "name", ["encoder", "decoder", "spans", "classifier", "tagger", "reader", "chooser", "searcher", "writer"]
)
def test_numbers_that_are_none_are_told_as_such(name, load):
    model = load(name)
    with torch.no_grad():
        damaged = {
            name: torch.full_like(weight, torch.nan) for name, weight in model.model.named_parameters()
        }
    for ability in abilities_of(model).values():
        if ability.name == "tokens" and name != "decoder":  # which the model need not read
            continue
        with pytest.raises(ValueError, match=r"no number"), stateless(model.model, damaged):
            ability.answer(ability.examples[0], {})


def test_a_model_that_raises_is_a_message(load, monkeypatch):
    def fail(*arguments, **options):
        raise IndexError("index out of range in self")

    monkeypatch.setattr(load("encoder"), "inputs", fail)
    ((_, answer),) = Session([load("encoder")]).answers("tokens", ["a cat"], {})
    assert answer == "encoder failed (IndexError: index out of range in self)."


def test_a_run_is_opened_by_its_folder(folders):
    assert load_model(str(folders / "encoder")).title == "encoder"


def test_models_of_the_same_name_have_their_whole_paths_as_titles(folders, tmp_path):
    shutil.copytree(folders / "encoder", tmp_path / "encoder")
    names = [str(folders / "encoder"), str(tmp_path / "encoder")]
    assert [model.title for model in open_session(names).models] == names


def test_a_model_is_not_compared_with_itself(folders):
    with pytest.raises(ValueError, match="names a model twice"):
        open_session([str(folders / "encoder")] * 2)


def test_a_model_without_a_tokenizer_is_refused(folders, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folders / "encoder" / "model" / name, tmp_path)
    with pytest.raises(ValueError, match="has no tokenizer"):
        load_model(str(tmp_path))


def test_without_gradio_the_command_says_what_to_install(folders, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["play", str(folders / "encoder")]) == 2
    assert "pip install 'tercet[play]'" in capsys.readouterr().err
