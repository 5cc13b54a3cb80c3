"""Control tokens in a run: what the text holds is what the model learns, and what its user sends."""

import pytest
from transformers import AutoTokenizer

from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.pretraining.run import pretrain
from tercet.pretraining.text import open_text

from ..pretraining_parts import reader_of, tokenizer_of
from .conftest import changed

NAMES = ("<|title|>", "<|body|>")
TEXTS = [f"<|title|>Tale {number}<|body|>The ferry left at noon. It says [MASK]." for number in range(30)]


@pytest.fixture
def recipe(recipe_of, tmp_path):
    for split in ("train", "validation"):
        (tmp_path / f"{split}.txt").write_text("\n\n".join(TEXTS))
    return recipe_of("causal_language_modeling", tmp_path, tmp_path / "run")


def test_a_new_tokenizer_has_those_that_the_recipe_names(recipe, capsys):
    pretrain(changed(recipe, control_tokens=NAMES))
    assert "control tokens <|title|> 30, <|body|> 30" in capsys.readouterr().err
    tokenizer = AutoTokenizer.from_pretrained(recipe.folder / "model")
    ids = tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    assert [name for name in tokenizer.convert_ids_to_tokens(ids) if name in NAMES] == list(NAMES)


@pytest.mark.parametrize(("names", "expected"), [("own", 2), (("<|body|>",), 1), ((), 0)])
def test_those_of_a_tokenizer_are_found_in_the_text(recipe, tmp_path, names, expected):
    train_tokenizer(TEXTS, "byte_bpe", 400, special_tokens=NAMES).save_pretrained(tmp_path / "tokenizer")
    recipe = changed(changed(recipe, control_tokens=names), "tokenizer", path=str(tmp_path / "tokenizer"))
    tokenizer = tokenizer_of(recipe)
    corpus = reader_of(recipe, tokenizer).tokenize(open_text(recipe.corpus, recipe.objective, "train"))
    found = corpus.document(0).tolist()
    assert sum(idx in tokenizer.all_special_ids for idx in found) == expected
    assert tokenizer.decode(found) == TEXTS[0]


def test_a_name_that_the_tokenizer_lacks_is_refused(recipe, tmp_path):
    train_tokenizer(TEXTS, "byte_bpe", 400).save_pretrained(tmp_path / "tokenizer")
    recipe = changed(changed(recipe, control_tokens=NAMES), "tokenizer", path=str(tmp_path / "tokenizer"))
    with pytest.raises(ValueError, match=r"control_tokens: the tokenizer has no special token '<\|title"):
        pretrain(recipe)
