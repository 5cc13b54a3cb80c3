"""Answers are found again in every window that holds them, whatever text, tokenizer and length."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.finetune.encoding import TextEncoder
from tercet.finetune.frames import end_pairs
from tercet.finetune.tasks.question_answering import (
    NO_CHARACTER,
    QuestionAnswering,
    QuestionAnsweringRecipe,
    encode_windows,
)

TEXTS = {
    "plain": "The quick brown fox (a male) jumps over the lazy dog, twice; nobody knows why.",
    "spaces": "  One\ttwo \n\n three    four\u00a0five \u3000 six\r\nseven ",
    "emoji": "We saw a 👩‍👩‍👧 family, a 🏳️‍🌈 flag and 👍🏽 from Ann 😀😀 in Rome.",
    "combining": "cafe\u0301 re\u0301sume\u0301 na\u0131\u0308ve Vie\u0323\u0302t Nam a\u030a\u0323 d\u0301",
    "zero width": "in\u200bvis\u200dible \u200bmarks\ufeff and \u2060joiners\u00ad soft-hy\u00adphen",
    "right to left": "שָׁלוֹם עֲלֵיכֶם \u200fאמר הילד\u200e ثم قال: مَرْحَبًا بِكُم في بيتنا",
    "chinese": "《战国无双3》是由光荣和ω-force开发的、本作以三大故事为主轴。𠮷野家在東京。",
    "ligatures": "The ﬁrst eﬃcient ½ of Å and ㎏, ǅ and İstanbul, ﷺ too",
}
TOKENIZERS = {
    "wordpiece": {},
    "wordpiece without accents": {"lowercase": True},
    "byte_bpe": {},
    "unigram": {"lowercase": True},
    "characters": {},
}


@pytest.fixture(scope="session")
def tokenizers():
    """Train a tokenizer of every kind on what the tests read."""
    found = {
        kind: train_tokenizer(list(TEXTS.values()) * 5, kind.split()[0], 420, **options)
        for kind, options in TOKENIZERS.items()
    }
    for tokenizer in found.values():
        end_pairs(tokenizer)
    return found


def encoder_with(tokenizer, max_length: int, **fields: Any) -> TextEncoder:
    return TextEncoder(tokenizer, max_length, **{"has_token_types": True} | fields)


def words_in(text: str) -> list[tuple[str, int]]:
    """Find the words of a text, and stretches of several; in Chinese, of several characters."""
    edges = [match.span() for match in re.finditer(r"[\u3000-\u9fff\U00020000-\U0002ffff]|\S+", text)]
    edges = [edge for edge in edges if text[slice(*edge)].strip()]
    spans = [(a, b) for a, _ in edges for _, b in edges if a < b][:: max(1, len(edges) // 6)]
    return [(text[a:b], a) for a, b in spans]


def rows_of(text: str, question: str = "who?") -> Dataset:
    """Ask for every word of a text."""
    answers = [{"text": [word], "answer_start": [begin]} for word, begin in words_in(text)]
    return Dataset.from_list([{"question": question, "context": text, "answers": each} for each in answers])


def task_of(rows: Dataset, **changes: Any) -> QuestionAnswering:
    recipe = QuestionAnsweringRecipe(kind="question_answering", **changes)
    return QuestionAnswering(recipe, QuestionAnswering(recipe).find(rows))


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("name", TEXTS)
def test_answers_survive_tokens(name, kind, tokenizers):
    rows, encoder = rows_of(TEXTS[name]), encoder_with(tokenizers[kind], 512)
    examples = task_of(rows).examples(rows, encoder)
    assert len(examples) == len(rows)
    for row, window in zip(rows, (examples[index] for index in range(len(rows))), strict=True):
        first, last = window["labels"]
        begin, end, answer = window["begins"][first], window["ends"][last], row["answers"]["text"][0]
        own = row["answers"]["answer_start"][0]
        assert first <= last
        assert row["context"][begin:end] == answer or name == "chinese"
        can_begin = np.flatnonzero(window["begins"] == own)
        can_end = np.flatnonzero(window["ends"] == own + len(answer))
        if len(can_begin) and len(can_end) and can_begin[0] <= can_end[-1]:
            assert (begin, end) == (own, own + len(answer))
        assert begin <= own
        assert own + len(answer) <= end


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("name", TEXTS)
def test_an_answer_is_in_every_window_that_holds_it(name, kind, tokenizers):
    rows, encoder = rows_of(TEXTS[name]), encoder_with(tokenizers[kind], 24)
    task, held = task_of(rows, stride=8), set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = task.examples(rows, encoder_with(tokenizers[kind], 512))
        examples = task.examples(rows, encoder)
    assert examples.lengths.max() <= 24
    for window in (examples[index] for index in range(len(examples))):
        row = int(window["rows"][0])
        alone, (first, last) = whole[row], window["labels"]
        begin, end = alone["begins"][alone["labels"][0]], alone["ends"][alone["labels"][1]]
        if first == last == window["nowhere"]:
            assert begin < window["begins"][window["begins"] >= 0][0] or end > window["ends"].max()
        else:
            held.add(row)
            assert (window["begins"][first], window["ends"][last]) == (begin, end)
    short = {row for row in range(len(rows)) if np.diff(whole[row]["labels"]) < 8}
    assert short <= held


@pytest.mark.parametrize("max_length", [20, 27, 40])
@pytest.mark.parametrize("stride", [0, 1, 5])
def test_windows_are_those_of_the_tokenizer(max_length, stride, tokenizers):
    tokenizer, texts = tokenizers["wordpiece without accents"], list(TEXTS.values())
    fields = encode_windows(encoder_with(tokenizer, max_length), ["who?"] * len(texts), texts, stride)
    expected = tokenizer(
        ["who?"] * len(texts),
        texts,
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_token_type_ids=True,
    )
    for name in ("input_ids", "token_type_ids"):
        assert [window.tolist() for window in fields[name]] == expected[name]
    assert fields["rows"].values.tolist() == expected["overflow_to_sample_mapping"]


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_no_answer_is_the_first_token_or_the_last_which_belong_to_no_text(kind, is_causal, tokenizers):
    tokenizer = tokenizers[kind]
    encoder = encoder_with(tokenizer, 24, is_causal=is_causal)
    rows = Dataset.from_list(
        [{"question": "who?", "context": TEXTS["plain"], "answers": {"text": [], "answer_start": []}}]
    )
    examples = task_of(rows, stride=8).examples(rows, encoder)
    assert len(examples) > 1
    for window in (examples[index] for index in range(len(examples))):
        is_first = kind == "wordpiece" and not is_causal
        place = 0 if is_first else len(window["input_ids"]) - 1
        assert window["nowhere"] == place
        assert window["labels"].tolist() == [place, place]
        assert window["begins"][place] == window["ends"][place] == NO_CHARACTER
        closing = tokenizer.sep_token_id if kind == "wordpiece" else tokenizer.eos_token_id
        assert window["input_ids"][place] == (tokenizer.cls_token_id if is_first else closing)


def test_answers_come_in_two_forms_and_without_the_spaces_around_them():
    context, texts, starts = "the cat sat", [" cat ", "", "the"], [3, 0, 0]
    forms = [
        {"text": texts, "answer_start": starts},
        [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)],
    ]
    for form in forms:
        rows = Dataset.from_list([{"question": "who?", "context": context, "answers": form}])
        task = task_of(rows)
        assert task.answers_in(rows) == [[("cat", 4), ("the", 0)]]
        assert not task.facts["has_unanswerable"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": {"text": ["cat"], "answer_start": [3]}},
         r"row 2 has the answer 'cat' at 3, where ' ca' stands; it stands at 4: correct answer_start"),
        ({"answers": {"text": ["dog"], "answer_start": [-2]}},
         r"row 2 has the answer 'dog' at -2, where 't' stands; it stands nowhere: correct it"),
        ({"answers": {"text": ["cat"], "answer_start": [4, 5]}},
         r"row 2 has .* in column 'answers', neither \{text: \[...\], answer_start: \[...\]\} nor a list"),
        ({"question": "the cat sat " * 9}, "row 2 has a question that leaves none of 16 tokens to the text"),
        ({"question": ""}, "row 2 has no text in column 'question'"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_named(change, message, tokenizers):
    good = {"question": "who?", "context": "the cat sat", "answers": {"text": ["cat"], "answer_start": [4]}}
    rows = Dataset.from_list([good, good | change])
    with pytest.raises(ValueError, match=message):
        task_of(rows).examples(rows, encoder_with(tokenizers["wordpiece without accents"], 16))


def test_answers_that_no_window_holds_are_counted(tokenizers):
    text = TEXTS["plain"]
    rows = Dataset.from_list(
        [{"question": "who?", "context": text, "answers": {"text": [text], "answer_start": [0]}}] * 2
    )
    with pytest.warns(UserWarning, match="2 of 2 answers do not fit into any window"):
        task_of(rows, stride=2).examples(rows, encoder_with(tokenizers["wordpiece without accents"], 16))
