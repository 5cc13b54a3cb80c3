"""No tokenizer of others makes a text so long that no memory holds it."""

import json

import pytest

from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer
from tercet.modeling.saved.model_folder import find_folder


def replace(content, **pattern):
    return {"type": "Replace", "pattern": pattern, "content": content}


LONGER = replace("e" * 100, String="e")
TEXT, TOKEN = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[CLS]", "type_id": 0}}


def template(*pieces, ids=1):
    token = {"id": "[CLS]", "ids": [2] * ids, "tokens": ["[CLS]"] * ids}
    return {
        "type": "TemplateProcessing",
        "single": pieces,
        "pair": [TEXT],
        "special_tokens": {"[CLS]": token},
    }


@pytest.fixture
def folder(tmp_path):
    train_tokenizer(["a b c ab bc abc", "the cat sat on the mat"] * 3, "wordpiece", 90).save_pretrained(
        tmp_path
    )
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    return tmp_path


def change(folder, part, value):
    facts = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(facts | {part: value}))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": [LONGER] * 2}),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [LONGER] * 2}]},
        ),
        ("normalizer", replace("e" * 5000, Regex="")),
        ("normalizer", {"type": "Prepend", "prepend": "e" * 5000}),
        ("decoder", {"type": "Sequence", "decoders": [LONGER] * 2}),
        ("post_processor", template(*[TEXT] * 5000)),
        ("post_processor", template(TOKEN, TEXT, ids=5000)),
        ("post_processor", template(*[TOKEN] * 100, TEXT, ids=50)),
    ],
)
def test_a_tokenizer_that_makes_texts_far_longer_is_refused(part, value, folder):
    change(folder, part, value)
    for read in (find_folder, load_tokenizer):
        with pytest.raises(
            ValueError, match=rf"{part} of .*tokenizer.json may make a text [\d,]+ times as long"
        ):
            read(str(folder))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": [replace(" ", Regex=" {2,}"), LONGER]}),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [replace("▁", String=" "), {"type": "NFKC"}] * 99},
        ),
        ("normalizer", {"type": "Prepend", "prepend": "▁"}),
        ("post_processor", template(TOKEN, TEXT, TOKEN)),
    ],
)
def test_others_are_read(part, value, folder):
    change(folder, part, value)
    assert len(load_tokenizer(str(folder))("the cat")["input_ids"]) < 1000
