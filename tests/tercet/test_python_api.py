"""The commands as functions: the same runs as the command line's, on rows in memory, with results."""

import gc
import inspect
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from datasets import ClassLabel, Dataset, DatasetDict

import tercet
from tercet import runs
from tercet.__main__ import main
from tercet.calls import collecting_no_garbage
from tercet.configs.recipe import load_recipe, read_overrides, written
from tercet.data.files.rows import read_file
from tercet.finetune.tasks.recipes import TaskRecipe
from tercet.finetune.typed_rows import rows_of_texts
from tercet.kinds import KINDS
from tercet.rows_in_memory import as_dataset, keep, texts_in

from ..finetune.conftest import bases, classification_rows, tagging_rows  # noqa: F401

RECIPE = "text-classification"
FAST = {"training__epochs": 1, "training__num_workers": 0}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERCET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def frame() -> pandas.DataFrame:
    return pandas.DataFrame(classification_rows(120, seed=0))


@pytest.fixture(scope="module")
def tuned(bases, frame, tmp_path_factory):  # noqa: F811
    """Fine-tune a tiny model on a DataFrame, after a call that failed."""
    output = tmp_path_factory.mktemp("runs") / "tuned"
    with pytest.raises(ValueError, match="some labels have the same name"):
        tercet.finetune(
            RECIPE, rows=frame, model=bases / "encoder", output=output, task__label_names=["x", "x"]
        )
    return tercet.finetune(RECIPE, rows=frame, model=bases / "encoder", output=output, **FAST)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -3, 1e-5, 2.5, "", "null", "1e-5", "a: b # c", "'", '"', "[", "two\nlines\t"),
        *(
            "é",
            "\U0001f600",
            "\x7f\u2028",
            [],
            [1, "2"],
            {"kind": "adamw", "learning_rate": 1e-5},
            [{"a": None}],
        ),
    ],
    ids=repr,
)
def test_a_keyword_is_the_override_that_the_command_line_would_read(value):
    assert read_overrides([f"part.key={written(value)}"]) == {"part": {"key": value}}


def test_paths_tuples_and_numbers_of_numpy_are_plain():
    value = {"a": Path("b"), "c": (1, 2), "d": np.float32(0.5), "e": np.arange(2)}
    assert json.loads(written(value)) == {"a": "b", "c": [1, 2], "d": 0.5, "e": [0, 1]}


def test_a_recipe_is_the_same_by_name_path_dictionary_and_object(tmp_path):
    expected = load_recipe(KINDS["pretrain"].recipe, "decoder-demo", ["training.steps=7"])
    by_name = tercet.load_recipe("decoder-demo", "training.steps=9", training__steps=7)
    from tercet.configs.recipe import recipe_data

    data = recipe_data(expected)
    (tmp_path / "mine.yaml").write_text(json.dumps(data))
    others = [tercet.load_recipe(source) for source in (by_name, data, tmp_path / "mine.yaml")]
    assert [by_name, *others] == [expected] * 4
    assert data == recipe_data(expected)


@pytest.mark.parametrize(
    ("name", "command"), [("sst2", "finetune"), ("copa", "fewshot"), ("two-step", "distill")]
)
def test_the_kind_of_a_recipe_is_found(name, command):
    recipe = tercet.load_recipe(name)
    assert type(recipe) is KINDS[command].recipe
    assert tercet.load_recipe(recipe, "output=elsewhere").output == "elsewhere"


OF_FINE_TUNING: Any = {"rows": [], "model": "m", "output": "nowhere"}
REFUSED = [
    (lambda: tercet.load_recipe({"task": 1}), "has the keys task: say which with command="),
    (lambda: tercet.load_recipe("sst2", command="tune"), "command is 'tune': choose one of pretrain"),
    (lambda: tercet.load_recipe("decoder-demo", training__steps=object()),
     "^training.steps: .* is of type object: give a number"),
    (
        lambda: tercet.load_recipe("decoder-demo", {"training.steps": 100}),  # pyright: ignore[reportArgumentType]
        r"write a text, as in 'training\.steps=100', or a keyword",
    ),
    (lambda: tercet.pretrain(tercet.load_recipe("sst2")), "is a fine-tuning recipe: call tercet.finetune$"),
    (lambda: tercet.pretrain(3), "is of type int: give a name, a path, a dictionary or a recipe"),
    (lambda: tercet.pretrain("decoder-demo", overwrit=True), "did you mean overwrite"),
    (lambda: tercet.finetune(RECIPE, row=[]),
     r"row is neither an argument of tercet.finetune .* did you mean rows\?"),
    (lambda: tercet.finetune(RECIPE, **OF_FINE_TUNING), r"data.train \(a list\) has no rows: give some"),
    (lambda: tercet.finetune(RECIPE, **OF_FINE_TUNING | {"rows": {"trian": []}}),
     "rows has 'trian': give one table, or several called train, validation, test"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_calls_that_mean_nothing_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("pretrain r a.b=1 --resume", lambda: tercet.pretrain("r", "a.b=1", resume=True)),
        ("finetune r a.b=1 --overwrite", lambda: tercet.finetune("r", "a.b=1", overwrite=True)),
        ("distill r", lambda: tercet.distill("r")),
        ("fewshot r --model m --model n", lambda: tercet.fewshot("r", models=["m", "n"])),
        ("fewshot r --trust-remote-code", lambda: tercet.fewshot("r", trust_remote_code=True)),
    ],
)
def test_the_command_line_calls_the_functions(line, call, monkeypatch):
    calls = []

    class EndedError(Exception):
        pass

    def run_recipe(*arguments, **options):
        calls.append((arguments, options))
        raise EndedError

    monkeypatch.setattr(runs, "run_recipe", run_recipe)
    assert main(line.split()) == 1
    with pytest.raises(EndedError):
        call()
    assert calls[0] == calls[1]


def test_folders_of_the_package_that_are_called_are_still_imported_from():
    import tercet.finetune.run as module

    folder: Any = tercet.finetune
    assert folder.run is module is sys.modules["tercet.finetune.run"]
    assert "rows" in inspect.signature(tercet.finetune).parameters
    assert {"pretrain", "finetune", "load_recipe", "Result"} <= set(dir(tercet))
    with pytest.raises(AttributeError, match="module 'tercet' has no attribute 'fine_tune'"):
        tercet.fine_tune  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_rows_of_all_kinds_are_the_rows_of_a_file(frame, tmp_path):
    rows = frame.to_dict("records")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = read_file(str(tmp_path / "rows.jsonl"), ["text", "label"])
    given = [frame, rows, pyarrow.Table.from_pandas(frame), Dataset.from_list(rows)]
    shuffled = Dataset.from_list(rows[::-1]).select(range(len(rows) - 1, -1, -1))
    files = {keep(each, "rows") for each in [*given, shuffled]}
    assert len(files) == 1  # a digest of the contents is its name
    (file,) = files
    assert Path(file).name == "120-rows.parquet"
    assert read_file(file, ["text", "label"]).to_list() == expected.to_list()
    assert keep(frame[:-1], "rows") not in files


def test_missing_values_and_names_of_labels_are_kept():
    odd = pandas.DataFrame(
        {"a.b": ["x", None], "n": [1.5, float("nan")], 7: pandas.array([1, pandas.NA], "Int64")}
    )
    file = keep(odd, "rows")
    assert read_file(file, ["a.b", "n", "7"]).to_list() == [
        {"a.b": "x", "n": 1.5, "7": 1},
        {"a.b": None, "n": None, "7": None},
    ]
    labelled = Dataset.from_dict({"label": [1, 0]}).cast_column("label", ClassLabel(names=["bad", "good"]))
    assert read_file(keep(labelled, "rows"), ["label"]).features == labelled.features


def test_values_of_numpy_and_names_that_are_numbers_are_read_as_pythons():
    rows = [{"x": np.float32("nan"), 1: "a"}, {"x": np.float32(2), 1: "b"}]
    assert as_dataset(rows, "rows").to_list() == [{"x": None, "1": "a"}, {"x": 2.0, "1": "b"}]


def test_a_dataset_is_what_it_holds_however_it_is_shown():
    rows = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    assert as_dataset(rows.with_format("torch", columns=["label"]), "rows")[:] == rows[:]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"x": np.bool_(True)}, {"x": 3}], "has 3 in column 'x'"),
        ([{1: "a", "1": "b"}], "several columns '1'"),
        (pandas.DataFrame([["a", "b"]], columns=["text", "text"]), "has several columns 'text'"),
        (
            Dataset.from_dict({"text": ["a"]}).with_transform(lambda batch: batch),
            "rows has a transform .*apply it to all of them with map",
        ),
        (pandas.Series(["a", None]), "rows is of type Series: give a DataFrame"),
        ({1}, "rows is of type set: give a DataFrame"),
        (7, "rows is of type int: give a DataFrame"),
    ],
)
def test_what_holds_no_rows_is_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        as_dataset(rows, "rows")


def broken(name: str, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Break some rows in one way."""
    frame = frame.astype(object).copy()
    if name == "no label":
        frame.loc[6, "label"] = float("nan")
    elif name == "other kind":
        frame.loc[6, "label"] = 3
    elif name == "no text":
        frame.loc[6, "text"] = None
    else:
        frame = frame.rename(columns={"label": "lable"})
    return frame


@pytest.mark.parametrize("name", ["no label", "other kind", "no text", "no column"])
def test_bad_rows_in_memory_are_refused_in_the_words_that_files_are(name, frame, bases, tmp_path):  # noqa: F811
    bad = broken(name, frame)
    file = tmp_path / "rows.jsonl"
    rows = [
        {key: None if value != value else value for key, value in row.items()}
        for row in bad.to_dict("records")
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = []
    for given in (bad, file):
        with pytest.raises(ValueError, match=r"label|text") as error:
            tercet.finetune(RECIPE, rows=given, model=bases / "encoder", output=tmp_path / "run")
        said.append(str(error.value))
    place = f"{file}, line 7" if "line 7" in said[1] else str(file)
    end = ", or leave such rows out with data.on_bad_row=skip"
    assert said[0].removesuffix(end) == said[1].replace(place, "data.train (a DataFrame)").removesuffix(end)
    assert not (tmp_path / "run").exists()


def test_a_result_has_what_the_run_has_written(tuned, frame):
    written_scores = json.loads((tuned.folder / "scores.json").read_text())
    accuracy = tuned.scores["accuracy"]
    assert accuracy.value == written_scores["mean"]["validation"]["accuracy"]
    assert list(accuracy.interval) == written_scores["interval"]
    assert tuned.baselines["majority class"] == written_scores["baselines"]["majority class"]["accuracy"]
    assert tuned.verdicts == [verdict["text"] for verdict in written_scores["verdicts"]]
    assert tuned.report.is_file()
    assert repr(tuned).startswith(f"<finetune in {tuned.folder}: accuracy {accuracy}, ")
    assert "<td>accuracy</td>" in tuned._repr_html_()
    assert pickle.loads(pickle.dumps(tuned)) == tuned
    assert type(tuned.model()) is tercet.TercetEncoderForSequenceClassification
    assert (
        tuned.tokenizer().decode(tuned.tokenizer()("the cat")["input_ids"], skip_special_tokens=True)
        == "the cat"
    )


def test_rows_in_memory_are_in_the_record_of_the_run(tuned, frame, bases):  # noqa: F811
    (entry,) = json.loads((tuned.folder / "texts.json").read_text())["train"]
    assert entry["name"] == "120-rows.parquet"
    assert len(entry["sha256"]) == 64
    again = tercet.finetune(
        RECIPE,
        rows=frame.to_dict("records"),
        model=bases / "encoder",
        output=tuned.folder,
        resume=True,
        **FAST,
    )
    assert again == tuned
    with pytest.raises(ValueError, match="data of the recipe differs"):
        tercet.finetune(
            RECIPE, rows=frame[::-1], model=bases / "encoder", output=tuned.folder, resume=True, **FAST
        )


def test_splits_are_given_by_their_names(monkeypatch, frame):
    given = []
    monkeypatch.setattr(runs, "run_recipe", lambda *arguments, **_: given.append(arguments[3]))
    table = Dataset.from_pandas(frame)
    tercet.finetune(RECIPE, rows=DatasetDict(train=table, test=table), training__epochs=2)
    tercet.distill("task-distilled", rows="rows.csv")
    assert given[0] == {"data__train": table, "data__test": table, "training__epochs": 2}
    assert given[1] == {"task__data__train": "rows.csv"}


def test_predictions_are_the_same_of_texts_tables_and_files(tuned, frame, tmp_path, capsys):
    texts = frame["text"][:3].tolist()
    expected = tercet.predict(tuned, texts)
    assert [*expected[0]] == ["label", "score", "scores"]
    assert tercet.predict(str(tuned.model_path), frame[:3]) == expected
    assert tercet.predict(tuned, frame["text"][:3]) == expected
    assert tercet.predict(tuned, pyarrow.chunked_array([texts])) == expected
    assert tercet.predict(tuned, []) == []
    assert tercet.predict(tuned.model_path, [{"text": text} for text in texts]) == expected
    frame[:3].to_csv(tmp_path / "rows.csv", index=False)
    assert tercet.predict(tuned, tmp_path / "rows.csv") == expected
    assert tercet.predict(tuned, texts[1])[0]["label"] == expected[1]["label"]
    capsys.readouterr()
    output = tmp_path / "out.jsonl"
    assert main(["predict", str(tuned.model_path), str(tmp_path / "rows.csv"), "--output", str(output)]) == 0
    assert f"3 rows answered: {output} has the columns of" in capsys.readouterr().err
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    assert main(["predict", str(tuned.model_path), texts[1]]) == 0
    assert json.loads(capsys.readouterr().out) == tercet.predict(tuned, texts[1])[0]


def test_a_text_that_names_a_file_is_told(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text\nthe cat\n")
    with pytest.warns(UserWarning, match=r"rows.csv' is read as a text, but .* give Path\('.*rows.csv'\)"):
        assert texts_in(str(file)) == [str(file)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("no file.csv", "word " * 9999, "a\0b", str(tmp_path)):
            assert texts_in(text) == [text]


def test_vectors_are_the_same_of_texts_tables_and_files(tuned, frame, tmp_path):
    texts = frame["text"][:3].tolist()
    expected = tercet.embed(tuned, texts)
    assert expected.shape == (3, tuned.model().config.hidden_size)
    assert (tercet.embed(tuned, frame[:3]) == expected).all()
    frame[:3].to_csv(tmp_path / "rows.csv", index=False)
    assert (tercet.embed(tuned, tmp_path / "rows.csv") == expected).all()
    rows, output = str(tmp_path / "rows.csv"), str(tmp_path / "vectors.npy")
    assert main(["embed", str(tuned.model_path), rows, "--output", output]) == 0
    assert (np.load(output) == expected).all()
    assert tercet.embed(tuned, []).shape == (0, expected.shape[1])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda run: tercet.embed(run, ["a", None]), r"row 2 has no text \(None\)"),
        (lambda run: tercet.embed(run, [{"text": "a"}, None]), r"row 2 has no text \(None\)"),
        (lambda run: tercet.embed(run, [None]), r"row 1 has no text \(None\): take it out, or fill it in"),
        (lambda run: tercet.embed(run, ["a", float("nan")]), r"row 2 has no text \(nan\)"),
        (lambda run: tercet.embed(run, ["a", 7]), r"row 2 has no text \(7\)"),
        (lambda run: tercet.embed(run, ["a", "b" + chr(0xD800)]), r"row 2 holds U\+D800"),
        (lambda run: tercet.embed(run, [{"text": "a"}], column="title"),
         "no column 'title': name one of its columns .* in column"),
        (lambda run: tercet.embed(run, [{"text": "a"}, {"text": None}]),
         "texts: row 2 has no text in column 'text'"),
        (lambda run: tercet.predict(run, [{"label": "cat"}]),
         "rows has no column 'text': give one of its columns"),
        (lambda run: tercet.predict(run, pandas.DataFrame({"text": ["the cat", None]})),
         r"rows: row 2 has no text in column 'text' \(None\)"),
        (lambda run: tercet.predict(run, [("the cat", "the dog")]),
         "reads the column text, and this is 2 texts: give one for each"),
        (lambda run: tercet.predict(run, 3), "rows is of type int: give a DataFrame"),
        (lambda run: run.scores["acuracy"], "there is no score 'acuracy': did you mean 'accuracy'"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_answer_is_refused(ask, message, tuned):
    with pytest.raises((ValueError, KeyError), match=message):
        ask(tuned)


def test_what_the_command_cannot_predict_is_refused(tuned, capsys):
    assert main(["predict", str(tuned.model_path), "the cat", "--overwrite"]) == 2
    assert "the prediction of a text is printed" in capsys.readouterr().err
    assert main(["predict", str(tuned.model_path), "rows.cvs"]) == 2
    assert "rows.cvs does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "texts", "row"),
    [
        ({"kind": "classification"}, "Good.", {"text": "Good."}),
        ({"kind": "classification", "texts": ["a", "b"]}, ("x", "y"), {"a": "x", "b": "y"}),
        ({"kind": "multi_label"}, "Good.", {"text": "Good."}),
        ({"kind": "regression"}, "Good.", {"text": "Good."}),
        ({"kind": "tagging"}, "Curie's in Paris.", {"tokens": ["Curie's", "in", "Paris", "."]}),
        ({"kind": "question_answering"}, ("Who?", "She."), {"question": "Who?", "context": "She."}),
        (
            {"kind": "multiple_choice"},
            ("Is it?", '["yes", "no"]'),
            {"query": "Is it?", "choices": ["yes", "no"]},
        ),
        ({"kind": "multiple_choice"}, ("Is it?", ["yes"]), {"query": "Is it?", "choices": ["yes"]}),
        ({"kind": "ranking"}, "a query", {"query": "a query"}),
        ({"kind": "generation"}, "a source", {"source": "a source"}),
        ({"kind": "chat"}, "Hello", {"messages": [{"role": "user", "content": "Hello"}]}),
        ({"kind": "chat", "prompt": "p"}, "Hello", {"p": "Hello"}),
    ],
)
def test_texts_are_rows_of_every_task(task, texts, row):
    from pydantic import TypeAdapter

    recipe = TypeAdapter(TaskRecipe).validate_python(task)
    assert rows_of_texts(recipe, [texts], "model") == [row]


def test_choices_that_are_no_list_are_refused():
    from tercet.finetune.tasks.multiple_choice import MultipleChoiceRecipe

    with pytest.raises(ValueError, match="choices is 'yes or no': write a list of texts as JSON"):
        rows_of_texts(MultipleChoiceRecipe("multiple_choice"), [("Is it?", "yes or no")], "model")


def test_a_tagger_is_asked_with_a_text(bases, tmp_path):  # noqa: F811
    recipe = {"model": {"path": bases / "encoder"}, "task": {"kind": "tagging"}, "data": {"train": ""}}
    run = tercet.finetune(recipe | {"output": str(tmp_path / "run")}, rows=tagging_rows(60, seed=0), **FAST)
    (prediction,) = tercet.predict(run, "the cat sat.")
    assert len(prediction["tags"]) == 4


def test_a_plan_is_what_the_command_prints(capsys):
    plan = tercet.plan("decoder-demo", device="a100", devices=2, training__steps=100)
    assert main(["plan", "decoder-demo", "device=a100", "devices=2", "training.steps=100"]) == 0
    assert capsys.readouterr().out == f"{plan}\n"
    assert plan._repr_markdown_() == str(plan)
    assert repr(plan).startswith("<plan of decoder-tiny on 2 x a100: ")


SCRIPT = """
import sys
import tercet
base, output = sys.argv[1:]
rows = [{"text": f"the {animal} sat", "label": animal} for animal in ("cat", "dog") * 30]
common = {"training__epochs": 1, "training__num_workers": 1}
teacher = tercet.finetune("text-classification", rows=rows, model=base, output=f"{output}/teacher", **common)
student = tercet.distill(
    "task-distilled", "report.random=false", "report.without_teacher=false",
    "task.training.epochs=1", rows=rows, task__teacher=teacher, output=f"{output}/student",
)
print("scores", sorted(student.scores), tercet.predict(student, "the cat sat")[0]["label"])
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_runs_once(bases, tmp_path):  # noqa: F811
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(bases / "encoder"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("scores") == 1
    assert "'student'" in done.stdout


def test_prompting_has_a_score_for_each_model_and_number(bases, frame, tmp_path):  # noqa: F811
    recipe = {
        "task": {
            "kind": "multiple_choice",
            "context": "{{ text }}",
            "choices": ["cat", "dog"],
            "labels": ["cat", "dog"],
            "target": "label",
        },
        "data": {"test": ""},
        "output": str(tmp_path / "run"),
    }
    chosen = frame[frame["label"].isin(["cat", "dog"])][:12]
    run = tercet.fewshot(recipe, rows=chosen, models=bases / "decoder", prompting__num_fewshot=[0, 1])
    assert [*run.scores] == [f"{bases / 'decoder'}, K = {shots}" for shots in (0, 1)]
    for score in run.scores.values():
        assert score.interval is not None
        assert score.value is not None
        assert score.interval[0] <= score.value <= score.interval[1]
    assert run.baselines
    with pytest.raises(ValueError, match="fewshot evaluates models and makes none"):
        run.model()


def test_pretraining_reads_texts_in_memory(tmp_path):
    texts = Dataset.from_dict({"text": ["the cat sat under a tree " * 20] * 30})
    run = tercet.pretrain(
        "decoder-demo",
        corpus__train=texts,
        corpus__validation=[{"text": f"the dog ran {number} " * 20} for number in range(30)],
        corpus__sequence_length=64,
        tokenizer__vocab_size=300,
        model__overrides={"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1},
        training__steps=2,
        training__num_workers=0,
        training__measure_utilization=False,
        output=tmp_path / "run",
    )
    perplexity = run.scores["clm/perplexity"]
    assert perplexity.value is not None
    assert perplexity.interval is not None
    assert 1 < perplexity.interval[0] <= perplexity.value <= perplexity.interval[1]
    assert not {name for name in run.scores if name.endswith(("/targets", "/interval"))}
    assert f"clm/perplexity {perplexity}" in repr(run)
    assert "<td>clm/perplexity</td>" in run._repr_html_()
    assert run.model().num_parameters() > 0


@pytest.mark.parametrize("stay", [False, True])
def test_what_a_command_imports_is_looked_through_no_more(stay, monkeypatch):
    monkeypatch.setattr("tercet.calls.imports_stay", stay)
    gc.unfreeze()
    with collecting_no_garbage():
        pass
    assert (gc.get_freeze_count() > 0) is stay
    gc.unfreeze()


def test_imports_leave_the_garbage_collector_as_they_found_it():
    with collecting_no_garbage():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collecting_no_garbage():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
