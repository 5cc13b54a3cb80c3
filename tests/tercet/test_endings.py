"""What commands say at their end, and how warnings look on the way."""

import json
import shlex
import subprocess
import sys
import warnings

import pytest
from tqdm import tqdm

from tercet.__main__ import say, warnings_in_lines
from tercet.finetune.tasks.multiple_choice import MultipleChoiceRecipe
from tercet.finetune.tasks.question_answering import QuestionAnsweringRecipe
from tercet.finetune.tasks.tagging import TaggingRecipe
from tercet.finetune.typed_rows import example_texts
from tercet.reports.distill import summary as distillation
from tercet.reports.fewshot import summary as prompting
from tercet.reports.finetune import summary as finetuning
from tercet.reports.next_steps import after_learning_a_task, after_pretraining, as_data
from tercet.reports.pretraining import report as pretraining
from tercet.reports.pretraining.report import can_classify_texts, verdicts
from tercet.reports.scores import as_data as scores_as_data
from tercet.results import Result, Score, number

KINDS = {
    "pretrain": pretraining,
    "finetune": finetuning,
    "distill": distillation,
    "fewshot": prompting,
}
"""Command -> the module that lists the scores of its runs, and tells them."""

NOTHING = {"without_context": {}, "trigram": {}, "lost_by_tokenizer": []}

VERDICTS = [{"text": "Better than a guess.", "outcome": "better"}]


@pytest.fixture
def end(tmp_path):
    """Return the lines with which a command ends that has written something."""

    def end(command, data):
        kind = KINDS[command]
        found = {"scores": scores_as_data(kind.scores_of(data)), "told": [*kind.told(data)]}
        (tmp_path / "scores.json").write_text(json.dumps({"verdicts": VERDICTS} | data | found))
        return [*Result(command, tmp_path).ending()]

    return end


def test_commands_that_go_on_can_be_pasted():
    play, own_rows, *_ = after_pretraining("odd name/model", can_classify=True)
    assert shlex.split(play.command) == ["tercet", "play", "odd name/model"]
    assert "model.path=odd name/model" in shlex.split(own_rows.command)
    texts = example_texts(MultipleChoiceRecipe("multiple_choice"))
    predict, *_ = after_learning_a_task("m", texts, ["query", "choices"])
    assert shlex.split(predict.command) == ["tercet", "predict", "m", "the query", '["one", "another"]']


def test_a_model_that_reads_a_text_is_first_given_one():
    predict, rows, *_ = after_learning_a_task("m", example_texts(TaggingRecipe("tagging")), ["tokens"])
    assert predict.command == 'tercet predict m "a text"'
    assert (rows.note, rows.command) == (
        "with rows of tokens",
        "tercet predict m FILE --output predictions.jsonl",
    )
    pair = example_texts(QuestionAnsweringRecipe("question_answering"))
    assert pair == ["the question", "the context"]


@pytest.mark.parametrize(
    ("model", "can_classify"),
    [
        ("TercetCharacterLanguageModel", False),
        ("TercetRecurrentSeq2SeqForConditionalGeneration", False),
        ("FSDPTercetCharacterLanguageModel", False),
        ("TercetElmoForLanguageModeling", True),
        ("FSDPTercetDecoderForCausalLM", True),
        ("Other", True),
    ],
)
def test_members_with_heads_of_tasks_are_to_be_finetuned(model, can_classify):
    assert can_classify_texts(model) == can_classify


def test_scores_come_first_then_what_they_show_then_the_report_then_what_is_next(end, tmp_path):
    scores = {
        "loss": 7.03,
        "mlm/loss": 6.3,
        "mlm/perplexity": 567.89,
        "mlm/accuracy": 0.1168,
        "mlm/targets": 9,
    }
    steps = as_data(after_pretraining("m", can_classify=True, export=" --onnx"))
    data = {"scores": scores | {"nsp/accuracy": 0.512}, "next_steps": steps}
    lines = end("pretrain", NOTHING | data)
    assert lines == [
        "on held-out text: mlm: perplexity 568, accuracy 0.117; nsp: accuracy 0.512",
        "Better than a guess.",
        f"report: {(tmp_path / 'report.html').as_uri()}",
        "next: tercet play m",
        "with rows of text and label: tercet finetune text-classification model.path=m data.train=FILE",
        "to use it without Tercet's code: tercet export m FOLDER --onnx",
    ]


def test_scores_of_pretraining_have_their_intervals(end):
    scores = {"loss": 4.4, "clm/loss": 4.4, "clm/loss/interval": [4.3, 4.5], "clm/perplexity": 81.45}
    scores |= {"clm/perplexity/interval": [73.7, 90.02], "clm/bits_per_byte": 1.5}
    assert end("pretrain", NOTHING | {"scores": scores})[0] == (
        "on held-out text: clm: perplexity 81.5 [73.7, 90], bits_per_byte 1.5"
    )


def test_bits_per_byte_of_text_that_has_lost_its_case_are_said_to_be_too_low(end):
    shots = {"0": {"mean": 1.0, "rows": 3, "interval": None, "scores": {"bits_per_byte": 1.0}}}
    for lost, told in (([], []), (["case"], ["case"]), (["case", "accents"], ["case and accents"])):
        line = "bits per byte are too low: the tokenizer takes {} out of the text, but not out of its bytes"
        expected = [line.format(what) for what in told]
        data = NOTHING | {"scores": {"loss": 4.4, "clm/bits_per_byte": 1.5}, "lost_by_tokenizer": lost}
        assert end("pretrain", data)[1 : 1 + len(told)] == expected
        assert any("too low" in each for each in end("pretrain", data)) == bool(lost)
        models = [{"name": "gpt2", "shots": shots, "lost_by_tokenizer": lost}]
        results = {"criterion": "bits_per_byte", "models": models, "baselines": {}}
        assert [each for each in end("fewshot", results) if "too low" in each] == [
            f"gpt2: {each}" for each in expected
        ]
    data |= {"scores": {"loss": 4.4, "mlm/perplexity": 81.45}}  # which has none
    assert not any("too low" in each for each in end("pretrain", data))


@pytest.mark.parametrize("loss", [None, float("nan"), float("inf")])
def test_a_model_that_failed_is_of_no_use(loss):
    first, *_ = verdicts({"scores": {"loss": loss}, "without_context": {}, "trigram": {}}, [])
    assert first.text.startswith("The loss on held-out text is not finite, so the model is of no use: lower")


def test_fine_tuning_ends_with_score_interval_and_baselines(end):
    summary = {
        "split": "test",
        "kind": "classification",
        "criterion": "accuracy",
        "seeds": {"7": {"test": {"accuracy": 0.853}}},
        "best_seed": 7,
        "rows": {"train": 1600, "test": 1},
        "interval": [0.83, 0.87],
        "baselines": {"majority class": {"accuracy": 0.5}, "before this run": {"accuracy": None}},
    }
    score, verdict, report = end("finetune", summary)
    assert score == (
        "accuracy 0.853 on 1 test row (95 % interval 0.83 to 0.87; "
        "majority class 0.5, before this run undefined)"
    )
    assert report.startswith("report: file:///")
    assert report.endswith("/report.html")
    assert verdict == "Better than a guess."


def test_few_rows_end_without_an_interval(end, tmp_path):
    summary = {
        "split": "test",
        "kind": "classification",
        "criterion": "accuracy",
        "seeds": {"0": {"test": {"accuracy": 1.0}}},
        "best_seed": 0,
        "rows": {"test": 3},
        "drawn": {"number": 3, "unit": "rows"},
        "interval": None,
        "baselines": {"majority class": {"accuracy": 0.5}},
    }
    assert end("finetune", summary)[0] == (
        "accuracy 1 on 3 test rows (no interval: fewer than 10 rows; majority class 0.5)"
    )
    guess = {"majority class": 0.5}
    assert Result("finetune", tmp_path).scores == {"accuracy": Score("accuracy", 1.0, None, guess, 3, "test")}
    shots = {"0": {"mean": 1.0, "rows": 3, "interval": None, "scores": {"accuracy": 1.0}}}
    models = [{"name": "gpt2", "shots": shots, "lost_by_tokenizer": ["case"]}]
    results = {"criterion": "accuracy", "models": models, "baselines": {}}
    assert end("fewshot", results)[0] == "gpt2, K = 0: accuracy 1 (no interval: fewer than 10 rows)"


def test_of_several_seeds_score_and_interval_are_the_kept_ones(end, tmp_path):
    summary = {
        "split": "test",
        "kind": "classification",
        "criterion": "accuracy",
        "seeds": {"0": {"test": {"f1": 0.4, "accuracy": 0.5}}, "1": {"test": {"f1": 0.8, "accuracy": 0.9}}},
        "best_seed": 1,
        "mean": {"test": {"f1": 0.6, "accuracy": 0.7}},
        "rows": {"test": 50},
        "interval": [0.88, 0.92],
        "baselines": {"majority class": {"accuracy": 0.5}},
    }
    assert end("finetune", summary)[0] == (
        "accuracy of the best seed 0.9 on 50 test rows "
        "(95 % interval 0.88 to 0.92; mean of 2 seeds 0.7, majority class 0.5)"
    )
    assert Result("finetune", tmp_path).scores == {
        name: Score(name, value, interval, baseline, 50, "test")
        for name, value, interval, baseline in (
            ("accuracy", 0.9, (0.88, 0.92), {"majority class": 0.5}),
            ("accuracy, mean of 2 seeds", 0.7, None, {}),
            ("f1", 0.8, None, {}),
            ("f1, mean of 2 seeds", 0.6, None, {}),
        )
    }


def test_distillation_ends_with_student_and_teacher(end):
    scores = {"student": {"score": 0.9}, "without-teacher": {"score": 0.8}, "teacher": {"score": 0.95}}
    told, *_ = end("distill", {"task": {"kind": "classification", "criterion": "f1", "scores": scores}})
    assert told == "teacher f1 0.95; without-teacher f1 0.8; student f1 0.9"
    scores = {"student": {"accuracy": {"score": 0.3}, "evaluation": {"loss": 4}}, "teacher": {}}
    told, *_ = end("distill", {"general": {"scores": scores}})
    assert told.endswith("student accuracy 0.3")


def test_prompting_ends_with_a_score_for_every_number_of_demonstrations(end):
    shots = {str(k): {"mean": 0.5 + k / 10, "interval": [0.4, 0.7], "scores": {}} for k in (0, 1)}
    results = {
        "kind": "classification",
        "criterion": "accuracy",
        "models": [{"name": "gpt2", "shots": shots, "lost_by_tokenizer": []}],
        "baselines": {"majority": 0.25},
    }
    zero, one, baselines, verdict, report = end("fewshot", results)
    assert zero == "gpt2, K = 0: accuracy 0.5 (0.4 to 0.7)"
    assert one == "gpt2, K = 1: accuracy 0.6 (0.4 to 0.7)"
    assert baselines.startswith("baselines of all rows: majority 0.25")
    assert "report.html" in report
    assert verdict == "Better than a guess."
    _, _, about, *_ = end("fewshot", results | {"baselines": {}})
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


def test_a_command_ends_as_python_does_but_for_the_teardown():
    program = (
        "import atexit, sys, time\n"
        "from threading import Thread\n"
        "from tercet.__main__ import main\n"
        "atexit.register(lambda: print('exit handlers ran'))\n"
        "Thread(target=lambda: [time.sleep(0.5), print('a thread ended')]).start()\n"
        "sys.argv = ['tercet', 'recipes', 'no-such-recipe']\n"
        "main()\n"
        "print('the interpreter goes on')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "a thread ended\nexit handlers ran\n"), done.stderr
