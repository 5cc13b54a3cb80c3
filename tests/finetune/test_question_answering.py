"""Answers are found again in every window that holds them, and are what the model says of the windows."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.testing import assert_close

from tercet.finetune.answers import ask, judge, predict
from tercet.finetune.encoding import TextEncoder
from tercet.finetune.question_answering import QuestionAnswering
from tercet.finetune.question_answering_objective import best_spans
from tercet.finetune.splits import encoder_of
from tercet.finetune.study import Study, prepare
from tercet.finetune.task_recipes import QuestionAnsweringRecipe
from tercet.finetune.windows import NO_CHARACTER, encode_windows
from tercet.pretraining.tokenizer import train_tokenizer
from tercet.training.batches import StepDataset

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
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
MODEL_INPUTS = ("input_ids", "token_type_ids", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k")
TOKENIZERS = {
    "wordpiece": {},
    "wordpiece without accents": {"lowercase": True},
    "byte_bpe": {},
    "unigram": {"lowercase": True},
    "characters": {},
}

every_member = pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])


@pytest.fixture(scope="session")
def tokenizers():
    """Train a tokenizer of every kind on what the tests read."""
    return {
        kind: train_tokenizer(list(TEXTS.values()) * 5, kind.split()[0], 420, **options)
        for kind, options in TOKENIZERS.items()
    }


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
    return QuestionAnswering(recipe, QuestionAnswering.find(recipe, rows))


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


LENGTHS = {"encoder": 9, "decoder": 9, "seq2seq": 24}
STRIDES = {"encoder": 2, "decoder": 2, "seq2seq": 8}
"""Of windows that are shorter than most texts; the last tokenizer cuts words into letters."""


@pytest.fixture
def study_of(recipe_of):
    """Prepare a tiny model of a member for the task, whose windows hold few tokens."""

    def study_of(member: str, **task: Any) -> Study:
        return prepare(
            recipe_of(
                "question_answering",
                member,
                count=5,
                model={"overrides": {"dropout": 0.0}},
                task={"stride": STRIDES[member]} | task,
                data={"max_length": LENGTHS[member]},
            )
        )

    return study_of


def whole_batch(study: Study) -> dict[str, Any]:
    """Collate all windows of the training rows."""
    examples = study.splits["train"].examples
    return study.task.objective().collate(examples.pack(np.arange(len(examples))), np.random.default_rng(0))


@every_member
def test_scores_and_loss_are_those_of_each_window_alone(member, study_of):
    study = study_of(member)
    model, objective, batch = study.beginning.model.eval(), study.task.objective(), whole_batch(study)
    outputs = objective.outputs(model, batch)
    examples = study.splits["train"].examples
    surprise = []
    for scores, window in zip(outputs, (examples[index] for index in range(len(examples))), strict=True):
        inputs = {name: torch.from_numpy(window[name])[None] for name in window if name in MODEL_INPUTS}
        found = model(**inputs)
        alone = torch.stack((found.start_logits[0], found.end_logits[0]), dim=-1)
        assert_close(scores[: len(alone)], alone, **CLOSE)
        assert (scores[len(alone) :] == -torch.inf).all()
        surprise += [-alone.log_softmax(0)[place, side] / 2 for side, place in enumerate(window["labels"])]
    assert len(examples) > len(study.splits["train"].rows)
    assert_close(objective.loss(outputs, batch), torch.stack(surprise).sum(), **CLOSE)


def test_the_loss_is_that_of_the_models_themselves(study_of):
    study = study_of("encoder")
    model, objective, batch = study.beginning.model.eval(), study.task.objective(), whole_batch(study)
    inputs = {name: value for name, value in batch.items() if name in MODEL_INPUTS}
    starts, ends = batch["labels"][:, 0].unbind(-1)
    expected = model(**inputs, start_positions=starts, end_positions=ends, reduction="sum").loss
    assert_close(objective.loss(objective.outputs(model, batch), batch), expected, **CLOSE)


def test_micro_batches_have_the_loss_of_the_step(study_of):
    study = study_of("encoder")
    model, objective = study.beginning.model.eval(), study.task.objective()
    examples = study.splits["train"].examples
    losses = []
    for limit in (10**6, 30):
        total = int(examples.lengths.sum())
        options = {"tokens_per_step": total, "tokens_per_micro_batch": limit, "seed": 0}
        parts = StepDataset(examples, objective, **options)[0, 0].micro_batches(torch.device("cpu"))
        losses.append(sum(objective.losses(model, part)["answer"] for part in parts))
    assert len(parts) > 1
    assert_close(losses[1], losses[0], **CLOSE)


@pytest.mark.parametrize("longest", [1, 3, 50])
def test_the_best_span_is_the_best_of_all(longest):
    start, end = torch.randn(2, 40, 7, generator=torch.Generator().manual_seed(0))
    start[:, 5] = end[:, 2] = -torch.inf
    found = [column.tolist() for column in best_spans(start, end, longest)]
    for row, (best, first, last) in enumerate(zip(*found, strict=True)):
        spans = [(a, b) for a in range(7) for b in range(a, min(a + longest, 7))]
        expected = max(spans, key=lambda span: float(start[row, span[0]] + end[row, span[1]]))
        assert (first, last) == expected
        assert best == pytest.approx(float(start[row, first] + end[row, last]))


@every_member
@torch.no_grad()
def test_predictions_are_the_best_of_all_windows_of_a_row(member, study_of):
    study = study_of(member, longest_answer=3)
    task, split, model = study.task, study.splits["train"], study.beginning.model.eval()
    encoder = encoder_of(model, study.beginning.tokenizer, LENGTHS[member])
    found = predict(model, task, split.rows.remove_columns("answers"), encoder, tokens_at_once=40)
    best: dict[int, tuple[float, str]] = {}
    none: dict[int, float] = {}
    for window in (split.examples[index] for index in range(len(split.examples))):
        inputs = {name: torch.from_numpy(window[name])[None] for name in window if name in MODEL_INPUTS}
        outputs, row = model(**inputs), int(window["rows"][0])
        start, end = (scores[0].softmax(0).numpy() for scores in (outputs.start_logits, outputs.end_logits))
        nowhere = int(window["nowhere"][0])
        none[row] = min(none.get(row, 1.0), float(start[nowhere] * end[nowhere]))
        for first in np.flatnonzero(window["begins"] >= 0):
            for last in range(first, min(first + 3, len(start))):
                if window["begins"][last] >= 0:
                    text = split.rows[row]["context"][window["begins"][first] : window["ends"][last]]
                    span = float(start[first] * end[last]), text
                    best[row] = max(best.get(row, span), span)
    assert task.facts["has_unanswerable"]
    for row, prediction in enumerate(found):
        score, text = best[row]
        assert prediction["no_answer_score"] == pytest.approx(none[row], abs=2e-5)
        assert prediction["score"] == pytest.approx(max(score, none[row]), abs=2e-5)
        assert prediction["answer"] == (text if score >= none[row] else "")
    task.facts["has_unanswerable"] = False
    answers, _ = ask(model, task.objective(), split.examples, 40)
    assert [each["answer"] for each in task.predictions(answers, split.rows)] == [
        best[row][1] for row in range(len(found))
    ]


def test_scores_are_those_of_squad(study_of):
    study = study_of("encoder")
    task, split = study.task, study.splits["train"]
    judged = judge(study.beginning.model.eval(), task, split.rows, split.examples)
    assert set(judged.scores) == set(task.metrics)
    references = task.references(split.rows)
    right = [{"answer": (own or [""])[0], "score": 1.0, "no_answer_score": 0.0} for own in references]
    assert task.score(right, references)["f1"] == task.score(right, references)["exact_match"] == 1
    assert (task.wrongness(right, references) == 0).all()
    assert task.interval(right, references) == (1.0, 1.0)
    assert task.guess(split.rows, split.rows)[0]["answer"] == task.facts["most_frequent"]
    assert (task.said({"answer": "a", "score": 0.5}), task.wanted(["a", "b", "a"])) == ("a (50%)", "a / b")
    assert (task.said({"answer": "", "score": 0.5}), task.wanted([])) == ("(no answer) (50%)", "(no answer)")


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
        (
            {"answers": {"text": ["cat"], "answer_start": [3]}},
            r"row 2 has the answer 'cat' at 3, where ' ca' stands; it stands at 4: correct answer_start",
        ),
        (
            {"answers": {"text": ["dog"], "answer_start": [-2]}},
            r"row 2 has the answer 'dog' at -2, where 't' stands; it stands nowhere: correct it",
        ),
        (
            {"answers": {"text": ["cat"], "answer_start": [4, 5]}},
            r"row 2 has .* in column 'answers', neither \{text: \[...\], answer_start: \[...\]\} nor a list",
        ),
        ({"question": "the cat sat " * 9}, "row 2 has a question that leaves none of 16 tokens to the text"),
        ({"question": ""}, "row 2 has no text in column 'question'"),
    ],
)
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
    with pytest.warns(UserWarning, match="2 of 2 answers lie in no window as a whole"):
        task_of(rows, stride=2).examples(rows, encoder_with(tokenizers["wordpiece without accents"], 16))
