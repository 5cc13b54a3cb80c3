"""What is asked of a saved model: rows of mixed lengths, and how others than Tercet ask it.

Shapes: T tokens of a window, K choices.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    pipeline,
)

from .conftest import ROWS

Row = dict[str, Any]

LENGTHS = {"question_answering": 24}
"""Kind of a task -> `data.max_length`, which the longer rows exceed."""
LENGTH = 16

TASKS: dict[str, dict[str, Any]] = {
    "classification": {},
    "pairs": {"kind": "classification", "texts": ["text", "other"]},
    "multi_label": {},
    "regression": {},
    "alike": {"kind": "regression", "texts": ["text", "other"]},
    "tagging": {},
    "question_answering": {"stride": 3, "longest_answer": 4},
    "multiple_choice": {},
    "ranking": {},
    "generation": {"longest_target": 10},
    "chat": {"generate": True, "longest_answer": 9},
}
"""What a task is called here -> the recipe's part."""


def rows_of(name: str, count: int, seed: int) -> list[Row]:
    """Make rows for a task; of three, one is too long and one is of another length."""
    kind = TASKS[name].get("kind", name)
    texts = ROWS["ranking"](count, seed)
    if name == "generation":
        made = [{"source": row["query"], "target": row["positive"]} for row in texts]
    elif name == "chat":
        made = [dialogue(row["query"], row["positive"].split()[0]) for row in texts]
    else:
        made = ROWS[kind](count, seed)
    rows = [longer(row, 4 * (place % 3)) for place, row in enumerate(made)]
    return [row | {"other": text["query"]} for row, text in zip(rows, texts, strict=True)]


def dialogue(question: str, answer: str) -> Row:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def longer(row: Row, times: int) -> Row:
    """Repeat what a model reads of a row; of a dialogue, which must fit, only a little."""
    if "messages" in row:
        question, answer = (message["content"] for message in row["messages"])
        return dialogue(" ".join(question.split()[: 1 + times // 4]), answer)
    grown = {
        name: row[name] + " " * bool(times) + " ".join([row[name]] * times)
        for name in ("text", "context", "query", "positive", "source")
        if name in row
    }
    lists = {name: row[name] * (1 + times) for name in ("tokens", "tags") if name in row}
    return row | grown | lists


def ask_classifier(folder: Path, rows: Sequence[Row], recipe: dict[str, Any], **options: Any) -> list[Any]:
    """Ask a pipeline for the scores of all labels."""
    ask = pipeline("text-classification", str(folder), top_k=None)
    columns = recipe.get("texts", ["text"])
    names = ("text", "text_pair")
    inputs = [dict(zip(names, (row[column] for column in columns), strict=False)) for row in rows]
    found: Any = ask(inputs, truncation=True, **options)
    return [{each["label"]: each["score"] for each in own} for own in found]


def ask_tagger(folder: Path, rows: Sequence[Row], recipe: dict[str, Any]) -> list[Any]:
    """Ask a pipeline for the labels of the tokens; a word has that of its first."""
    ask = pipeline("token-classification", str(folder), ignore_labels=[])
    return [labels_of_words(row["tokens"], ask(" ".join(row["tokens"]))) for row in rows]


def labels_of_words(words: Sequence[str], tokens: Any) -> list[str | None]:
    """Return the label of each word, or nothing if no token is its own."""
    text, found = " ".join(words), dict[int, str]()
    for token in tokens:
        begin = token["start"] + (text[token["start"] : token["start"] + 1] == " ")
        found.setdefault(text.count(" ", 0, begin), token["entity"])
    return [found.get(word) for word in range(len(words))]


@torch.no_grad()
def ask_for_answers(folder: Path, rows: Sequence[Row], recipe: dict[str, Any]) -> list[Any]:
    """Find the probability of the best span of all windows that the tokenizer makes, or that of none."""
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer, found = AutoTokenizer.from_pretrained(folder), []
    for row in rows:
        windows = tokenizer(
            row["question"], row["context"], truncation="only_second", stride=recipe["stride"],
            return_overflowing_tokens=True, max_length=tokenizer.model_max_length,
        )  # fmt: skip
        names = [name for name in tokenizer.model_input_names if name != "attention_mask"]
        best, none = 0.0, 1.0
        for place, account in enumerate(windows.encodings):
            inputs = {name: torch.tensor(windows[name][place])[None] for name in names}
            outputs = model(**inputs)
            start, end = (each[0].softmax(0) for each in (outputs.start_logits, outputs.end_logits))
            is_text = torch.tensor([number == 1 for number in account.sequence_ids])
            is_first = (
                bool(tokenizer.num_special_tokens_to_add()) and "decoder" not in model.config.model_type
            )
            nowhere = 0 if is_first else -1
            spans = (start * is_text)[:, None] * (end * is_text)[None]
            best = max(best, float(spans.triu().tril(recipe["longest_answer"] - 1).max()))
            none = min(none, float(start[nowhere] * end[nowhere]))
        found.append({"score": max(best, none), "no_answer_score": none})
    return found


@torch.no_grad()
def ask_for_choices(folder: Path, rows: Sequence[Row], recipe: dict[str, Any]) -> list[Any]:
    """Return the probabilities of the choices, (K,)."""
    model = AutoModelForMultipleChoice.from_pretrained(folder).eval()
    tokenizer, found = AutoTokenizer.from_pretrained(folder), []
    for row in rows:
        texts = [row["query"]] * len(row["choices"])
        inputs = tokenizer(texts, row["choices"], truncation=True, padding=True, return_tensors="pt")
        logits = model(**{name: value[None] for name, value in inputs.items()}).logits[0]
        found.append({"scores": logits.softmax(-1).tolist()})
    return found


@torch.no_grad()
def ask_for_texts(folder: Path, rows: Sequence[Row], recipe: dict[str, Any]) -> list[Any]:
    """Let the model write, without a word about how."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer([row["source"] for row in rows], truncation=True, padding=True, return_tensors="pt")
    written = model.generate(**inputs)
    return [{"text": text} for text in tokenizer.batch_decode(written, skip_special_tokens=True)]


def ask_for_replies(folder: Path, rows: Sequence[Row], recipe: dict[str, Any]) -> list[Any]:
    """Ask a pipeline to go on with the dialogues."""
    ask = pipeline("text-generation", str(folder))
    found = []
    for row in rows:
        written: Any = ask(row["messages"][:1], do_sample=False, max_new_tokens=recipe["longest_answer"])
        found.append({"text": written[0]["generated_text"][-1]["content"].strip()})
    return found


@torch.no_grad()
def ask_for_vectors(folder: Path, rows: Sequence[Row], recipe: dict[str, Any]) -> list[Any]:
    """Return the vectors of the queries, by sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == LENGTH
    return [{"embedding": each.tolist()} for each in model.encode([row["query"] for row in rows])]


ASKED: dict[str, Callable[..., list[Any]]] = {
    **dict.fromkeys(("classification", "pairs", "multi_label", "regression", "alike"), ask_classifier),
    "tagging": ask_tagger,
    "question_answering": ask_for_answers,
    "multiple_choice": ask_for_choices,
    "ranking": ask_for_vectors,
    "generation": ask_for_texts,
    "chat": ask_for_replies,
}
"""What a task is called here -> how others ask a model for it."""
