"""What commands say at their end, and how warnings look on the way."""

import json
import shlex
import sys
import warnings

import pytest
from tqdm import tqdm

from tercet.__main__ import say, warnings_in_lines
from tercet.endings import (
    distillation_ending,
    finetuning_ending,
    number,
    pretraining_ending,
    prompting_ending,
)

VERDICTS = [{"text": "Better than a guess.", "outcome": "better"}]


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        (tmp_path / name).write_text(json.dumps(data))
        return tmp_path

    return write


def test_the_next_command_can_be_pasted(tmp_path):
    folder = tmp_path / "odd name"
    folder.mkdir()
    (folder / "evaluation.json").write_text(json.dumps({"scores": {"loss": 1.0}, "verdicts": []}))
    _, _, following = pretraining_ending(folder)
    assert f"model.path={folder / 'model'}" in shlex.split(following)


@pytest.mark.parametrize(
    "model",
    [
        "TercetCharacterLanguageModel",
        "TercetRecurrentSeq2SeqForConditionalGeneration",
        "FSDPTercetCharacterLanguageModel",
    ],
)
def test_a_member_without_heads_of_tasks_is_not_to_be_finetuned(write, model):
    folder = write("evaluation.json", {"scores": {"loss": 1.0}, "models": {"model": model}, "verdicts": []})
    assert [*pretraining_ending(folder)][2] == f"next: tercet play {folder / 'model'}"


@pytest.mark.parametrize("model", ["TercetElmoForLanguageModeling", "FSDPTercetDecoderForCausalLM", "Other"])
def test_a_member_with_heads_of_tasks_is_to_be_finetuned(write, model):
    folder = write("evaluation.json", {"scores": {"loss": 1.0}, "models": {"model": model}, "verdicts": []})
    assert [*pretraining_ending(folder)][2].startswith("next: tercet finetune text-classification")


def test_pretraining_ends_with_the_scores_of_each_term(write):
    scores = {
        "loss": 7.03,
        "mlm/loss": 6.3,
        "mlm/perplexity": 567.89,
        "mlm/accuracy": 0.1168,
        "mlm/targets": 9,
    }
    folder = write("evaluation.json", {"scores": scores | {"nsp/accuracy": 0.512}, "verdicts": VERDICTS})
    held_out, report, following, verdict = pretraining_ending(folder)
    assert held_out == "on held-out text: mlm: perplexity 568, accuracy 0.117; nsp: accuracy 0.512"
    assert report == f"report: {(folder / 'report.html').as_uri()}"
    assert verdict == "Better than a guess."
    assert f"model.path={folder / 'model'}" in following


def test_pretraining_of_characters_names_what_such_a_model_can_do(write):
    models = {"model": "TercetCharacterLanguageModel"}
    folder = write("evaluation.json", {"scores": {"loss": 3.1}, "models": models, "verdicts": []})
    assert [*pretraining_ending(folder)][-1] == f"next: tercet play {folder / 'model'}"


@pytest.mark.parametrize("loss", [None, float("nan"), float("inf")])
def test_a_model_that_failed_is_recommended_for_nothing(write, loss):
    folder = write("evaluation.json", {"scores": {"loss": loss}, "verdicts": VERDICTS})
    *_, last = pretraining_ending(folder)
    assert last.startswith("the loss on held-out text is not finite, so the model is of no use: lower")
    assert not any("next:" in line for line in pretraining_ending(folder))


def test_fine_tuning_ends_with_score_interval_and_baselines(write):
    summary = {
        "split": "test",
        "criterion": "accuracy",
        "mean": {"test": {"accuracy": 0.853}},
        "rows": {"train": 1600, "test": 1},
        "interval": [0.83, 0.87],
        "baselines": {"majority class": {"accuracy": 0.5}, "untrained": {"accuracy": None}},
        "verdicts": VERDICTS,
    }
    score, report, following, verdict = finetuning_ending(write("scores.json", summary))
    assert score == (
        "accuracy 0.853 on 1 test row (95 % interval 0.83 to 0.87; majority class 0.5, untrained undefined)"
    )
    assert report.startswith("report: file:///")
    assert report.endswith("/report.html")
    assert following.startswith("next: tercet predict ")
    assert verdict == "Better than a guess."


def test_distillation_ends_with_student_and_teacher(write):
    scores = {"student": {"score": 0.9}, "without-teacher": {"score": 0.8}, "teacher": {"score": 0.95}}
    told, report = distillation_ending(
        write("scores.json", {"task": {"criterion": "f1", "scores": scores}, "verdicts": []})
    )
    assert told == "teacher f1 0.95; without-teacher f1 0.8; student f1 0.9"
    assert "report.html" in report
    scores = {"student": {"accuracy": {"score": 0.3}, "evaluation": {"loss": 4}}, "teacher": {}}
    told, _ = distillation_ending(write("scores.json", {"general": {"scores": scores}, "verdicts": []}))
    assert told.endswith("student accuracy 0.3")


def test_prompting_ends_with_a_score_for_every_number_of_demonstrations(write):
    shots = {str(k): {"mean": 0.5 + k / 10, "interval": [0.4, 0.7]} for k in (0, 1)}
    results = {
        "criterion": "accuracy",
        "models": [{"name": "gpt2", "shots": shots}],
        "baselines": {"majority": 0.25},
        "verdicts": VERDICTS,
    }
    zero, one, baselines, report, verdict = prompting_ending(write("results.json", results))
    assert zero == "gpt2, K = 0: accuracy 0.5 (0.4 to 0.7)"
    assert one == "gpt2, K = 1: accuracy 0.6 (0.4 to 0.7)"
    assert baselines.startswith("baselines: majority 0.25")
    assert "report.html" in report
    assert verdict == "Better than a guess."
    _, _, about, *_ = prompting_ending(write("results.json", results | {"baselines": {}}))
    assert about == "K demonstrations in a prompt, 95 % intervals"


@pytest.mark.parametrize(
    ("value", "written"), [(0.85349, "0.853"), (12345.6, "12,346"), (None, "undefined"), (0, "0")]
)
def test_scores_have_three_digits(value, written):
    assert number(value) == written


@pytest.mark.filterwarnings("always")
def test_a_warning_is_one_line_and_said_once(capsys):
    with warnings_in_lines("pretrain"):
        for _ in range(2):
            warnings.warn("two of\n  three rows", stacklevel=1)
        warnings.warn("another", stacklevel=1)
    assert capsys.readouterr().err == (
        "tercet pretrain: warning: two of three rows\ntercet pretrain: warning: another\n"
    )


class ChangingBars:
    """Progress bars that another thread opens and closes while they are listed."""

    def __iter__(self):
        raise RuntimeError("Set changed size during iteration")


def test_bars_that_change_meanwhile_do_not_break_a_warning(capsys, monkeypatch):
    monkeypatch.setattr(tqdm, "_instances", ChangingBars())
    say("a line", sys.stderr)
    monkeypatch.undo()
    assert capsys.readouterr().err == "a line\n"
    say("another", sys.stderr)  # tqdm's lock is free again
    assert capsys.readouterr().err == "another\n"


def test_warnings_look_as_before_afterwards():
    before = warnings.showwarning
    with warnings_in_lines("pretrain"):
        assert warnings.showwarning is not before
    assert warnings.showwarning is before
    assert sys.stderr is not None
