"""A label is the same however a file writes it, and what is none is told with its row."""

import warnings

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from tercet.configs.recipe import parse_recipe
from tercet.data.files.rows import read_file
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.tasks.labels import Labels, find_labels
from tercet.finetune.tasks.tagging import Tagging, TaggingRecipe
from tercet.finetune.tasks.texts import Classification, ClassificationRecipe, MultiLabel, MultiLabelRecipe

from .conftest import found_task, write_rows

pytestmark = pytest.mark.filterwarnings("ignore:column 'label' has labels")


def column(values, feature=None):
    features = None if feature is None else Features({"label": feature})
    return Dataset.from_dict({"label": values}, features=features)


def found(values, names=(), feature=None):
    """The labels of a column: their names, and the numbers in the rows."""
    rows = column(values, feature)
    labels = find_labels(rows, "label", names)
    return labels.names, labels.numbers_of(rows, "label").tolist()


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        (["pos", "neg", "pos"], ["neg", "pos"], [1, 0, 1]),
        (["b", "B", "ä", "a", "🌍"], ["B", "a", "b", "ä", "🌍"], [2, 0, 3, 1, 4]),
        ([1, 0, 1], ["0", "1"], [1, 0, 1]),
        ([5, 1, 10, 1], ["1", "5", "10"], [1, 0, 2, 0]),
        ([-1, 1, -1], ["-1", "1"], [0, 1, 0]),
        (["10", "9", "0"], ["0", "9", "10"], [2, 1, 0]),
        ([1.0, 0.0, 1.0], ["0", "1"], [1, 0, 1]),
        ([True, False], ["False", "True"], [1, 0]),
        (["true", "false"], ["false", "true"], [1, 0]),
        (["NA", "null", "nan"], ["NA", "nan", "null"], [0, 2, 1]),
        (["007", "7"], ["007", "7"], [0, 1]),
        (["1", "one"], ["1", "one"], [0, 1]),
        (["1.0", "1.5", "2.0"], ["1.0", "1.5", "2.0"], [0, 1, 2]),
        (["1", "1.0", "one"], ["1", "1.0", "one"], [0, 1, 2]),
        (["1", "1.0", "2."], ["1", "2"], [0, 0, 1]),
        ([" a", "a\t", "a\u00a0", "b"], ["a", "b"], [0, 0, 0, 1]),
        (["very  good", "very good", "bad"], ["bad", "very good"], [1, 1, 0]),
        (["x\u200b", "x", "\ufeffx", "y"], ["x", "y"], [0, 0, 0, 1]),
        (["caf\u00e9", "cafe\u0301", "bar"], ["bar", "caf\u00e9"], [1, 1, 0]),
    ],
)
def test_labels_are_called_what_they_are(values, names, numbers):
    assert found(values) == (names, numbers)


@pytest.mark.parametrize(
    "values",
    [["bad", "good", "good"], [0, 1, 1], [0.0, 1.0, 1.0], ["0", "1", "1"], [False, True, True],
     ["False", "True", "True"], ["bad", "1", "True"]],
)  # fmt: skip
def test_a_label_is_the_same_however_it_is_written(values):
    assert found(values, names=("bad", "good")) == (["bad", "good"], [0, 1, 1])
    rows = column(values)
    assert Labels(["bad", "good"]).numbers_of(rows, "label").tolist() == [0, 1, 1]


def test_truths_stand_for_two_labels_only():
    assert found([2, 0, 1], names=("a", "b", "c"))[1] == [2, 0, 1]
    with pytest.raises(
        ValueError, match=r"row 1 has the label True in column 'label', which is none of \(a, b, c\)"
    ):
        Labels(["a", "b", "c"]).number(True, 0, "label")


def test_names_come_from_the_recipe_then_from_the_data_set():
    feature = ClassLabel(names=["no", "yes"])
    assert found([1, 0, 1], feature=feature) == (["no", "yes"], [1, 0, 1])
    assert found([1, 0, 1], names=("bad", "good"), feature=feature) == (["bad", "good"], [1, 0, 1])
    three = ClassLabel(names=["a", "b", "c"])
    assert found([2, 0], feature=three) == (["a", "b", "c"], [2, 0]), "one that no row has is one, too"


def test_each_column_is_read_by_the_names_of_its_own_numbers():
    """Splits that are encoded one by one number the same names otherwise."""
    labels = find_labels(column([0, 1, 2], ClassLabel(names=["A", "B", "P"])), "label")
    others = column([0, 1], ClassLabel(names=["A ", "P"]))
    assert labels.numbers_of(others, "label").tolist() == [0, 2]
    for found_labels in (find_labels(column(["A", "P"]), "label"), Labels(["A", "P"])):
        assert found_labels.numbers_of(others, "label").tolist() == [0, 1]
    whole = find_labels(column([5, 1]), "label")
    assert whole.numbers_of(column([1, 0], ClassLabel(names=["1", "5"])), "label").tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"row 2 has the label 'Q' .* which is none of \(A, B, P\)"):
        labels.numbers_of(column([0, 1], ClassLabel(names=["A", "Q"])), "label")
    with pytest.raises(ValueError, match=r"row 1 has the label -1 .* which is none of"):
        labels.numbers_of(column([-1], ClassLabel(names=["A", "B", "P"])), "label")


def test_names_of_the_recipe_in_another_order_are_the_same_labels():
    feature = ClassLabel(names=["neg", "pos"])
    with pytest.warns(
        UserWarning, match=r"as \(neg, pos\), task.label_names as \(pos, neg\): they are read by"
    ):
        assert found([0, 0, 1], ("pos", "neg"), feature) == (["pos", "neg"], [1, 1, 0])
    with pytest.raises(
        ValueError, match=r"\(pos, other\) and .* \(neg, pos\) have labels in common, in other"
    ):
        found([0, 1], ("pos", "other"), feature)
    with pytest.raises(ValueError, match=r"some labels have the same name \(a, a\): use each name once"):
        found([0, 1], ("pos", "neg"), ClassLabel(names=["a", "a "]))


def test_names_of_the_recipe_stand_for_those_of_the_training_rows():
    """Also of numbers, which look like those of other labels."""
    rows = column([0, 1, 2], ClassLabel(names=["1", "2", "3"]))
    labels = find_labels(rows, "label", ("one", "two", "three"))
    labels = Labels.of(labels.facts)
    assert labels.numbers_of(rows, "label").tolist() == [0, 1, 2]
    assert labels.numbers_of(column([0, 1], ClassLabel(names=["1", "3"])), "label").tolist() == [0, 2]
    assert labels.numbers_of(column([3, 1]), "label").tolist() == [2, 0]


def test_tags_and_sets_of_labels_are_read_by_the_names_of_their_column():
    def tags(numbers, names):
        features = Features({"tokens": List(Value("string")), "tags": List(ClassLabel(names=names))})
        return Dataset.from_dict({"tokens": [["a", "b"]] * len(numbers), "tags": numbers}, features=features)

    tagging = Tagging(TaggingRecipe(kind="tagging"))
    task = Tagging(tagging.recipe, tagging.find(tags([[0, 1], [0, 2]], ["O", "B-X", "B-Y"])))
    assert task.references(tags([[0, 1]], ["O", "B-Y"])) == [["O", "B-Y"]]
    with pytest.raises(ValueError, match="has the label 'B-Z' in column 'tags', which is none of"):
        task.references(tags([[0, 1]], ["O", "B-Z"]))
    permuted = TaggingRecipe(kind="tagging", label_names=("B-X", "I-X", "O"))
    broken = tags([[0, 2]], ["O", "B-X", "I-X"])
    assert Tagging(permuted).repair(broken, 0) == {"tags": [0, 1]}

    several = MultiLabel(MultiLabelRecipe(kind="multi_label"))
    facts = several.find(
        column([[0], [1, 2]], List(ClassLabel(names=["A", "B", "C"]))).rename_column("label", "labels")
    )
    other = column([[0, 1]], List(ClassLabel(names=["A", "C"]))).rename_column("label", "labels")
    several.require_labels(other)
    assert MultiLabel(several.recipe, facts).references(other).tolist() == [[1, 0, 1]]


def test_names_that_are_numbers_are_those_of_their_own():
    assert found([1, 0], feature=ClassLabel(names=["0", "1"])) == (["0", "1"], [1, 0])
    with pytest.raises(ValueError, match="label 0 has the name '1', which looks like another number"):
        find_labels(column([0, 4], ClassLabel(names=list("12345"))), "label")


def test_the_numbers_of_one_column_are_no_numbers_of_another_ones_names():
    """1, 2 and 5 are labels 0, 1 and 2: the 0 of an evaluation is none of them."""
    labels = find_labels(column([1, 2, 5]), "label")
    assert labels.numbers_of(column([5, 1]), "label").tolist() == [2, 0]
    for unknown in (0, 3, "0", 0.0):
        with pytest.raises(ValueError, match=r"row 1 has the label .* which is none of \(1, 2, 5\)"):
            labels.numbers_of(column([unknown]), "label")


def test_white_space_in_labels_is_left_out_and_told():
    rows = column(["good", "good ", "good ", "bad\u00a0", "bad"])
    with pytest.warns(UserWarning, match=r"'label' has labels with white space or .*: 'good ' in 2, 'bad"):
        labels = find_labels(rows, "label")
    assert labels.numbers_of(column([" good", "bad\t"]), "label").tolist() == [1, 0]
    assert found(["a ", "b"], names=("b", "a"))[1] == [1, 0]
    assert found([0, 1], feature=ClassLabel(names=["no ", "yes"])) == (["no", "yes"], [0, 1])
    tags = column([["B-X", "I-X "], ["O", "B-X"]])
    assert find_labels(tags, "label", are_lists=True).names == ["B-X", "I-X", "O"]


def test_whole_numbers_in_another_form_are_told():
    with pytest.warns(UserWarning, match=r"or whole numbers in another form, as 1: '1.0' in 2, '2.' in 1"):
        labels = find_labels(column(["1", "1.0", "1.0", "2."]), "label")
    assert labels.numbers_of(column(["2.00", "1"]), "label").tolist() == [1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = find_labels(column(["1.0", "1.5"]), "label")
        find_labels(column(["1.0", "0.0"]), "label", ("bad", "good"))
    with pytest.raises(ValueError, match=r"row 1 has the label '1' .* none of \(1.0, 1.5\)"):
        labels.numbers_of(column(["1"]), "label")


def tell_of(rows, tmp_path, **task):
    """Find the task of rows in a file."""
    file = write_rows(tmp_path / "rows.jsonl", rows)
    data = {"train": str(file), "validation": str(file)}
    about = {"model": {"path": "x"}, "task": {"kind": "classification"} | task, "output": "x", "data": data}
    recipe = parse_recipe(FineTuningRecipe, about)
    found_task(recipe)


def test_labels_that_may_be_mistyped_are_told_in_one_line(tmp_path):
    rows = [{"text": "t", "label": "positive" if row % 2 else "negative"} for row in range(1200)]
    for row, label in ((7, "positve"), (9, "NEGATIVE"), (11, "odd")):
        rows[row]["label"] = label
    with pytest.warns(UserWarning, match="labels that few rows have, or nearly another") as caught:
        tell_of(rows, tmp_path)
    (warning,) = caught
    assert str(warning.message).endswith(
        f": 'NEGATIVE' in 1 (first {tmp_path}/rows.jsonl, line 10; nearly 'negative' in 600), 'odd' in 1 "
        f"(first {tmp_path}/rows.jsonl, line 12), 'positve' in 1 (first {tmp_path}/rows.jsonl, line 8; "
        "nearly 'positive' in 597): correct mistyped ones"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_of([{"text": "t", "label": f"class {row % 4}"} for row in range(20)], tmp_path)
        tell_of(rows, tmp_path, label_names=["negative", "positive", "positve", "NEGATIVE", "odd"])
    tags = [{"tokens": ["a", "b"], "tags": ["B-PER", "I-PER"]} for _ in range(20)]
    tags[3]["tags"] = ["B-PER", "B-pER"]
    with pytest.warns(UserWarning, match=r": 'pER' in 1 \(first .*, line 4; nearly 'PER' in 20\): correct"):
        tell_of(tags, tmp_path, kind="tagging")


def test_labels_in_lists_are_found():
    rows = column([["b", "a"], [], ["c"]])
    assert find_labels(rows, "label", are_lists=True).names == ["a", "b", "c"]
    rows = column([[1, 0], [2]], List(ClassLabel(names=["O", "B-X", "I-X"])))
    assert find_labels(rows, "label", are_lists=True).names == ["O", "B-X", "I-X"]
    rows = column([["1", "0"], ["10"]])
    assert find_labels(rows, "label", are_lists=True).names == ["0", "1", "10"]


def test_balanced_labels_weigh_alike_and_training_rows_one_on_average():
    """A label that is only named weighs one: it had the weight of a thousand million rows."""
    recipe = ClassificationRecipe(
        kind="classification", class_weights="balanced", label_names=("a", "b", "c")
    )
    task = Classification(recipe, Classification(recipe).find(column(["a", "a", "a", "b"])))
    assert task.objective().weights_of_labels.tolist() == pytest.approx([2 / 3, 2, 1])


def test_a_configuration_knows_the_names():
    labels = Labels(["neg", "pos"])
    assert len(labels) == 2
    assert labels.config_fields == {"id2label": {0: "neg", 1: "pos"}, "label2id": {"neg": 0, "pos": 1}}
    assert Labels(labels.names).spellings == labels.spellings


def test_labels_are_the_same_in_all_files(tmp_path):
    (tmp_path / "rows.csv").write_text("label\n1\n0\n")
    (tmp_path / "gaps.csv").write_text("label\n1.0\n0.0\n")
    (tmp_path / "rows.jsonl").write_text('{"label": "1"}\n{"label": "0"}\n')
    column([1, 0]).to_parquet(tmp_path / "rows.parquet")
    for file in tmp_path.iterdir():
        rows = read_file(str(file), ["label"])
        labels = find_labels(rows, "label")
        assert (labels.names, labels.numbers_of(rows, "label").tolist()) == (["0", "1"], [1, 0]), file.name


@pytest.mark.parametrize(
    ("values", "names", "complaint"),
    [
        (["a", "a"], (), "all labels are 'a': there is nothing to learn; add rows with others"),
        ([1, 1], (), "all labels are '1': there is nothing"),
        ([1, 1], ("no", "yes"), "all labels are 'yes': there is nothing"),
        (["1.0", "yes"], ("no", "yes"), "all labels are 'yes': there is nothing"),
        ([[], []], (), "there are no labels: name a column that has some"),
        ([[], []], ("a", "b"), "there are no labels"),
        (["a", None], (), "row 2 has nothing in column 'label': take it out, or fill it in"),
        (["a", ""], (), "row 2 has nothing in column 'label'"),
        ([["a"], ["b", None]], (),
         "row 2 has None in column 'label', which is no label: labels are names or"),
        ([["a"], ["b", ""]], (), "row 2 has '' in column 'label', which is no label"),
        ([0.0, 0.5], (), "row 2 has 0.5 in column 'label', which is no label: labels are names or whole num"),
        ([0.0, float("nan")], (), "row 2 has nan in column 'label', which is no label"),
        ([0.0, float("inf")], (), "row 2 has inf in column 'label', which is no label"),
        ([{"x": 1}, {"x": 2}], (), r"row 1 has \{'x': 1\} in column 'label', which is no label"),
        ([0, 2], ("no", "yes"),
         r"column 'label' has '2', which is none of the 2 names \(no, yes\): name all in"),
        (["no", "perhaps"], ("no", "yes"),
         r"has 'perhaps', which is none of the 2 names \(no, yes\): name all"),
        ([0, -1], ("no", "yes"), "has '-1', which is none of the 2 names"),
        ([0, 1], ("no", "no"), r"some labels have the same name \(no, no\): use each name once"),
        ([0, 1], ("yes",), r"column 'label' has '1', which is none of the 1 names \(yes\)"),
        (["a", "a "], (), "all labels are 'a': there is nothing to learn; add rows with others"),
        ([0, 1], ("2", "3"), "label 0 has the name '2', which looks like another number: set"),
    ],
)  # fmt: skip
def test_what_cannot_be_labels_is_said_in_one_line(values, names, complaint):
    with pytest.raises(ValueError, match=complaint) as caught:
        find_labels(column(values), "label", names, are_lists=isinstance(values[0], list))
    assert "\n" not in str(caught.value)


def test_a_label_that_training_did_not_have_is_told():
    labels = Labels([f"name {number}" for number in range(30)])
    complaint = (
        r"row 3 has the label 'x' in column 'label', which is none of \(name 0, .*, \.\.\.\): correct it, or"
    )
    with pytest.raises(ValueError, match=complaint) as caught:
        labels.numbers_of(column(["name 0", "name 29", "x"]), "label")
    assert len(str(caught.value)) < 250


def test_numbers_are_64_bits_wide():
    assert Labels(["a", "b"]).numbers_of(column(["b", "a"]), "label").dtype == np.int64
    rows = Dataset.from_dict({"label": [1, 0]}, features=Features({"label": Value("int8")}))
    assert find_labels(rows, "label").names == ["0", "1"]


def test_names_found_in_a_column_have_no_numbers_that_another_column_could_write():
    labels = find_labels(column(["neg", "pos"]), "label")
    with pytest.raises(ValueError, match=r"row 1 has the label 1 .* none of \(neg, pos\)"):
        labels.numbers_of(column([1, 0]), "label")
    assert Labels.of(labels.facts).spellings == labels.spellings
    assert Labels.of(Labels(["neg", "pos"]).facts).numbers_of(column([1, 0]), "label").tolist() == [1, 0]


@pytest.mark.parametrize(
    "values", [["bad", "good"], [1, 5], ["1", "5"], ["0", "x"], [False, True], ["False", "True"]], ids=repr
)
def test_predictions_have_labels_of_the_kind_that_rows_have(values):
    labels = Labels.of(find_labels(column(values), "label").facts)
    found, names = [labels.value(number) for number in range(2)], labels.names
    assert found == values
    assert [*map(type, found)] == [*map(type, values)]
    recipe = ClassificationRecipe(kind="classification")
    task = Classification(recipe, labels.facts | {"shares": [0.5, 0.5]})
    prediction = task.prediction(np.array([0.25, 0.75]))
    assert prediction == {"label": values[1], "score": 0.75, "scores": {names[0]: 0.25, names[1]: 0.75}}
    assert task.found([prediction]).tolist() == [1]
    assert task.format_prediction(prediction) == f"{names[1]} (75%)"
    several = MultiLabel(MultiLabelRecipe(kind="multi_label"), labels.facts)
    assert several.prediction(np.array([0.6, 0.7]))["labels"] == values


def test_tags_are_of_the_kind_that_rows_have():
    rows = Dataset.from_dict({"tokens": [["a", "b"], ["c"]], "tags": [[3, 4], [4]]})
    recipe = TaggingRecipe(kind="tagging", scheme="none")
    task = Tagging(recipe, Tagging(recipe).find(rows))
    found = task.predictions([np.array([[0, 0]]), np.array([[0, 1]])], rows)
    assert [each["tags"] for each in found] == [[3, 4], [4]]
    assert task.score(found, task.references(rows)) == {"accuracy": 1.0}


def test_whole_numbers_of_a_table_are_integers(tmp_path):
    """Its cells are texts of no kind, as which no program reads numbers."""
    for name, kind in (("rows.csv", int), ("rows.jsonl", str)):
        rows = [{"text": "t", "label": label} for label in "15" * 10]
        if kind is int:
            pd.DataFrame(rows).to_csv(tmp_path / name, index=False)
        else:
            write_rows(tmp_path / name, rows)
        about = {"model": {"path": "x"}, "task": {"kind": "classification"}, "output": "x"}
        recipe = parse_recipe(FineTuningRecipe, about | {"data": {"train": str(tmp_path / name)}})
        task = found_task(recipe)
        assert isinstance(task.prediction(np.array([0.5, 0.5]))["label"], kind)
