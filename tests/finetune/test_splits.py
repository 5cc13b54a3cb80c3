"""What is learned from and what is measured on are never the same rows, and errors name theirs."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest

from tercet.configs.recipe import parse_recipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.splits import encode_splits, encoder_of, find_task
from tercet.modeling import TercetDecoderConfig, TercetDecoderModel, TercetEncoderConfig, TercetEncoderModel

from .conftest import splits_of

SMALL = {"vocab_size": 400, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
         "num_attention_heads": 1, "max_position_embeddings": 16}  # fmt: skip
ROWS = [{"text": f"the house {number}", "label": "odd" if number % 2 else "even"} for number in range(20)]


@pytest.fixture
def recipe(tmp_path):
    """Make a recipe on files of rows, given by their splits."""

    def recipe(task=None, share=None, **splits):
        data = {} if share is None else {"validation_share": share}
        for split, rows in splits.items():
            path = tmp_path / f"{split}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            data[split] = str(path)
        task = {"kind": "classification"} | (task or {})
        return parse_recipe(
            FineTuningRecipe, {"model": {"path": "x"}, "task": task, "data": data, "output": "x"}
        )

    return recipe


@pytest.fixture
def encoder(families):
    return encoder_of(TercetEncoderModel(TercetEncoderConfig(**SMALL)), families["wordpiece"], None)


def encode_all(made, encoder):
    rows = splits_of(made)
    return encode_splits(rows, find_task(made.task.build(), rows), encoder)


def texts(rows):
    return set(rows["text"][:])


def test_what_is_named_is_read(recipe):
    splits = splits_of(recipe(train=ROWS[:10], validation=ROWS[10:15], test=ROWS[15:]))
    assert list(splits) == ["train", "validation", "test"]
    assert [rows.to_list() for rows in splits.values()] == [ROWS[:10], ROWS[10:15], ROWS[15:]]


def test_without_rows_to_measure_on_some_are_held_out(recipe):
    splits = splits_of(recipe(train=ROWS, share=0.25))
    assert list(splits) == ["train", "validation"]
    assert len(splits["validation"]) == 5
    assert texts(splits["train"]) | texts(splits["validation"]) == {row["text"] for row in ROWS}
    assert texts(splits["train"]).isdisjoint(texts(splits["validation"]))


def test_the_test_comes_last_whatever_is_held_out(recipe):
    assert list(splits_of(recipe(train=ROWS, test=ROWS[:2]))) == ["train", "validation", "test"]


def test_every_split_needs_every_column(recipe):
    with pytest.raises(
        ValueError, match=r"test.jsonl has no column 'label': give one of its columns \(text\)"
    ):
        splits_of(recipe(train=ROWS, test=[{"text": "the house"}]))
    with pytest.raises(
        ValueError, match=r"train.jsonl has no column 'sentence': give one of its columns \(text, lab"
    ):
        splits_of(recipe(task={"texts": ["sentence"]}, train=ROWS))


def test_the_name_of_a_column_may_stand_alone(recipe):
    alone, listed = (recipe(task={"texts": texts}, train=ROWS) for texts in ("text", ["text"]))
    assert alone.task == listed.task


def test_a_label_that_was_held_out_of_the_training_rows_is_told_as_such(recipe, encoder):
    rows = [row | {"label": f"label {number}"} for number, row in enumerate(ROWS)]
    with pytest.raises(ValueError, match="this one was held out of the training rows at random"):
        encode_all(recipe(train=rows), encoder)


def test_splits_are_encoded_by_one_task(recipe, encoder):
    made = recipe(train=ROWS[:10], validation=ROWS[10:], test=ROWS[::-1])
    rows = splits_of(made)
    splits = encode_splits(rows, find_task(made.task.build(), rows), encoder)
    assert list(splits) == ["train", "validation", "test"]
    for name, split in splits.items():
        assert split.rows is rows[name]
        assert len(split.examples) == len(split.rows)
        labels = [int(split.examples[index]["labels"][0]) for index in range(len(split.rows))]
        assert labels == [["even", "odd"].index(label) for label in split.rows["label"]]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"text": "the house", "label": "prime"},
         r"test.jsonl, line 2: row 2 has the label 'prime' .* none of \(even, odd\)"),
        ({"text": " \n", "label": "odd"},
         r"test.jsonl, line 2: row 2 has no text in column 'text' \(' \\n'\): take it out"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_told_with_its_split(recipe, encoder, row, complaint):
    made = recipe(train=ROWS, validation=ROWS, test=[ROWS[0], row])
    with pytest.raises(ValueError, match=complaint):
        encode_all(made, encoder)


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_a_row_has_the_number_that_it_has_in_its_file_whatever_is_held_out(recipe, encoder, number):
    """A label that only a held-out row has is told when the rows are encoded, where it has another number."""
    made = recipe(train=[*ROWS[:number], ROWS[number] | {"label": "prime"}, *ROWS[number + 1 :]], share=0.25)
    rows = splits_of(made)
    if "prime" in rows["train"]["label"][:]:
        encode_all(made, encoder)
        return
    with pytest.raises(ValueError, match=rf"train.jsonl, line {number + 1}: row {number + 1} has the label"):
        encode_all(made, encoder)


@pytest.mark.parametrize(
    ("of_tokenizer", "asked", "longest"),
    [(64, None, 16), (9, None, 9), (64, 5, 5), (64, 16, 16), (9, 16, 16)],
)
def test_texts_are_as_long_as_model_tokenizer_and_recipe_allow(
    families, monkeypatch, of_tokenizer, asked, longest
):
    monkeypatch.setattr(families["wordpiece"], "model_max_length", of_tokenizer)
    model = TercetEncoderModel(TercetEncoderConfig(**SMALL))
    assert encoder_of(model, families["wordpiece"], asked).max_length == longest


def test_texts_longer_than_the_model_reads_are_refused(families):
    model = TercetEncoderModel(TercetEncoderConfig(**SMALL))
    with pytest.raises(
        ValueError, match=r"data.max_length is 17, but the model has a maximum length of 16 tokens: lower it"
    ):
        encoder_of(model, families["wordpiece"], 17)


def test_token_types_are_given_to_models_that_read_them(families):
    tokenizer = families["wordpiece"]
    for model, has in [
        (TercetEncoderModel(TercetEncoderConfig(**SMALL, type_vocab_size=2)), True),
        (TercetEncoderModel(TercetEncoderConfig(**SMALL, type_vocab_size=0)), False),
        (TercetEncoderModel(TercetEncoderConfig(**SMALL, type_vocab_size=1)), False),
        (TercetDecoderModel(TercetDecoderConfig(**SMALL)), False),
    ]:
        encoder = encoder_of(model, deepcopy(tokenizer), None)
        fields = encoder.encode(["the house"], ["its doors"])
        assert ("token_type_ids" in fields) is has
        assert ("token_type_ids" in encoder.settled().model_input_names) is has


def test_rows_of_a_group_are_on_one_side(recipe):
    """Near-copies on both sides would be known by heart, even with random labels."""
    rows = [row | {"source": number // 4} for number, row in enumerate(ROWS)]
    made = recipe(train=rows, share=0.3)
    grouped = splits_of(replace(made, data=replace(made.data, group="source")))
    sides = [set(grouped[split]["source"]) for split in ("train", "validation")]
    assert not sides[0] & sides[1]
    assert len(grouped["validation"]) == 4
    with pytest.raises(ValueError, match=r"has no column 'origin'.* in data.group"):
        splits_of(replace(made, data=replace(made.data, group="origin")))
    with pytest.raises(ValueError, match=r"group is source, .* validation names"):
        replace(made.data, group="source", validation="held.csv")
