"""A run says so if it measures on text that it learns from."""

import gzip
import warnings
from pathlib import Path

import pytest

from tercet.configs.recipe import parse_recipe, recipe_data
from tercet.data.documents import open_documents
from tercet.data.held_out_documents import shared_files, warn_of_shared_documents
from tercet.data.tokenizers.tokenization import tokenize
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.pretraining.prepared import find_inputs
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.text import tell_of_whole_files

from ..pretraining_parts import documents_of
from .conftest import changed


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_files_are_shared_by_place_and_by_contents(tmp_path):
    learned = [
        write(tmp_path / "train", name, text) for name, text in (("a", "One."), ("b", "Two."), ("c", "3"))
    ]
    link = tmp_path / "link"
    link.symlink_to(learned[0])
    copy, other = write(tmp_path, "copy", "Two."), write(tmp_path, "other", "Six.")
    measured = [link, copy, other, learned[2], write(tmp_path, "longer", "Seven.")]
    assert shared_files(learned, measured, tmp_path / "cache") == [link, copy, learned[2]]


def test_only_files_of_equal_size_are_read(tmp_path, monkeypatch):
    learned, measured = write(tmp_path, "a", "One."), write(tmp_path, "b", "Twenty.")
    monkeypatch.setattr("tercet.data.held_out_documents.identify_file", None)
    assert shared_files([learned], [measured, learned], tmp_path / "cache") == [learned]


@pytest.fixture
def recipe_reading(recipe_of, texts, tmp_path):
    def build(train, validation):
        recipe = recipe_of("masked_language_modeling", texts, tmp_path / "run")
        return changed(recipe, train=train, validation=validation, cache=str(tmp_path / "cache"))

    return build


def test_validation_on_training_text_is_told(recipe_reading, tmp_path):
    train = write(tmp_path / "train", "a.txt", "One.").parent
    copy, other = write(tmp_path, "copy.txt", "One."), write(tmp_path, "other.txt", "Six.")
    told = r"^1 of 1 files of corpus.validation are also in corpus.train \(.*a.txt\), so that scores"
    with pytest.warns(UserWarning, match=told):
        find_inputs(recipe_reading(str(train), str(train)))
    with pytest.warns(UserWarning, match=r"^1 of 2 files of .*copy.txt\), .* choose other files$"):
        find_inputs(recipe_reading(str(train), [str(copy), str(other)]))


def test_held_out_text_is_not_warned_of(recipe_reading, tmp_path):
    train, other = write(tmp_path / "train", "a.txt", "One."), write(tmp_path, "other.txt", "Six.")
    packed = tmp_path / "other.txt.gz"
    packed.write_bytes(gzip.compress(b"Six."))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find_inputs(recipe_reading(str(train), [str(other), str(packed)]))


@pytest.mark.parametrize("as_train", [lambda text: text, lambda text: [text], lambda text: [{"path": text}]])
def test_the_embedded_corpus_is_no_held_out_text_of_another(
    recipe_of, texts, tmp_path, as_train, monkeypatch
):
    embedded = write(tmp_path, "embedded.txt", (texts / "train.txt").read_text())
    monkeypatch.setattr("tercet.data.embedded_corpus.documentation_file", lambda split, cache: embedded)
    data = recipe_data(recipe_of("masked_language_modeling", texts, tmp_path / "run"))
    text = str(texts / "train.txt")
    data["corpus"]["train"] = as_train(text)
    data["corpus"]["validation"] = "documentation"
    with pytest.warns(UserWarning, match="corpus.validation is documentation, the embedded corpus"):
        find_inputs(parse_recipe(PretrainingRecipe, data))
    data["corpus"]["train"] = [{"path": text}, {"path": "documentation"}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", message=".*files of corpus.validation are also")
        find_inputs(parse_recipe(PretrainingRecipe, data))


def test_without_held_out_text_a_part_is_held_out_that_is_not_learned(recipe_of, texts, tmp_path):
    data = recipe_data(recipe_of("masked_language_modeling", texts, tmp_path / "run"))
    documents = [f"the cat number {number} sat" for number in range(200)]
    text = write(tmp_path, "mine.txt", "\n\n".join(documents))
    del data["corpus"]["validation"]
    for train in (str(text), [{"path": str(text), "name": "mine"}]):
        data["corpus"]["train"] = train
        found = documents_of(parse_recipe(PretrainingRecipe, data))
        learned, held_out = ({*found[split][0]} for split in ("train", "validation"))
        assert learned | held_out == {*documents}
        assert not learned & held_out
        assert len(held_out) < 30
    data["corpus"] |= {"train": str(text), "streaming": True}
    with pytest.raises(ValueError, match=r"no part can be held out: name held-out text with corpus.valid"):
        documents_of(parse_recipe(PretrainingRecipe, data))


def test_the_embedded_corpus_has_a_held_out_part_of_its_own(recipe_of, texts, tmp_path, monkeypatch):
    files = {split: write(tmp_path, f"{split}.txt", split) for split in ("train", "validation")}
    monkeypatch.setattr("tercet.data.embedded_corpus.documentation_file", lambda split, cache: files[split])
    data = recipe_data(recipe_of("masked_language_modeling", texts, tmp_path / "run"))
    data["corpus"] |= {"train": "documentation", "validation": None}
    found = documents_of(parse_recipe(PretrainingRecipe, data))
    assert {split: [*documents[0]] for split, documents in found.items()} == {
        "train": ["train"],
        "validation": ["validation"],
    }


def test_held_out_documents_that_are_learned_from_are_told_of(tmp_path):
    learned = open_documents(str(write(tmp_path, "a.txt", "One.\n\nTwo.\n\nThree.")))
    for text, number in (("Two. \n\nFour.\n\nTwo.", 2), ("Four.", 0)):
        measured = open_documents(str(write(tmp_path, "b.txt", text)))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            warn_of_shared_documents(learned, measured, tmp_path)
        assert len(told) == (number > 0)
        assert all(f"{number} of 3 documents" in str(each.message) for each in told)


def test_lines_without_blank_ones_between_are_told_to_be_one_document(tmp_path, capsys):
    tokenizer = train_tokenizer(["A line."] * 3, "characters", 40)
    lines = ["A line."] * 400
    for text, ending, told in (
        ("\n".join(lines), "txt", "1 document, 3,199 tokens in all (blank lines separate documents)"),
        ("\n\n".join(lines), "txt", ""),
        ("\n".join(lines), "md", ""),
    ):
        documents = open_documents(str(write(tmp_path, f"lines.{ending}", text)))
        tell_of_whole_files(documents, tokenize(documents, tokenizer))
        assert told in capsys.readouterr().err if told else capsys.readouterr().err == ""


def test_what_is_held_out_of_one_text_with_a_share_is_learned_from_in_no_other(recipe_reading, tmp_path):
    documents = [f"the cat number {number} sat" for number in range(400)]
    small = write(tmp_path, "small.txt", "\n\n".join(documents[:3]))  # none is of the lowest twentieth
    (held_out,) = documents_of(recipe_reading(str(small), None))["validation"][0]
    large = write(tmp_path, "large.txt", "\n\n".join([held_out, *documents[3:]]))
    data = recipe_data(recipe_reading("x.txt", None))
    data["corpus"]["train"] = [{"path": str(path), "share": 1} for path in (small, large)]
    learned, measured = (
        {*texts[0]} for texts in documents_of(parse_recipe(PretrainingRecipe, data)).values()
    )
    assert held_out in measured
    assert not learned & measured
    assert learned | measured == {*documents}
