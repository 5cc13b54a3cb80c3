"""Whatever a corpus holds, it is read without loss and learned from, or refused in one line that names it."""

import csv
import gzip
import io
import json
import math
import random
import re
import warnings
from collections.abc import Callable
from itertools import count, groupby
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from tercet.data.documents import open_documents
from tercet.data.tokenizers.tokenization import tokenize
from tercet.data.tokenizers.tokenizer import KINDS, train_tokenizer
from tercet.pretraining.run import pretrain
from tercet.training.tracking import LOG, read_log

from .conftest import changed

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}

PLANES = [chr(plane << 16 | 0x1F00) for plane in range(17)]
"""A character of every plane of Unicode; most are not assigned."""

STRANGE = [
    *PLANES,
    *"\t\v\f\x1c\x1f\x7f\x85\xa0\xad\u200b\u200f\u2028\u3000\ufeff\ufffd",
    "e\u0301",
    "\U0010ffff",
]
WORDS = [
    "the cat sat",
    " on a mat",
    ". It ran",
    "! Why?",
    "<unk>",
    "[MASK]",
    "</s>",
    '"',
    "'",
    ",",
    "家。",
    "😀",
]
FRAGMENT = st.sampled_from(WORDS) | st.sampled_from(STRANGE) | st.characters(exclude_characters="\0")
TEXT = st.lists(FRAGMENT | st.sampled_from(["\n", "\r\n", "\r", " \n"]), max_size=12).map("".join)
SOUND = st.lists(TEXT.filter(lambda text: not re.search("[\ud800-\udfff]", text)), max_size=6)


def as_lines(texts: list[str]) -> bytes:
    return "\n\n".join(texts).encode()


def as_objects(texts: list[str]) -> bytes:
    return "\n".join(
        json.dumps({"n": 1, "text": text}, ensure_ascii=len(text) % 2 == 0) for text in texts
    ).encode()


def as_fields(texts: list[str], delimiter: str) -> bytes:
    table = io.StringIO(newline="")
    csv.writer(table, delimiter=delimiter).writerows([["n", "text"], *(["1", text] for text in texts)])
    return table.getvalue().encode()


def as_columns(texts: list[str]) -> bytes:
    file = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array(texts, pyarrow.string())}), file)
    return file.getvalue().to_pybytes()


WRITERS: dict[str, Callable[[list[str]], bytes]] = {
    ".txt": as_lines,
    ".jsonl": as_objects,
    ".csv": lambda texts: as_fields(texts, ","),
    ".tsv": lambda texts: as_fields(texts, "\t"),
    ".parquet": as_columns,
}
ENDINGS = st.tuples(st.sampled_from(list(WRITERS)), st.sampled_from(list(PACK)))


def documents_in(texts: list[str], ending: str) -> list[str]:
    """Say what a file of texts holds: of a `.txt` file, what blank lines leave together."""
    if ending == ".txt":
        lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", "\n\n".join(texts).removeprefix("\ufeff"))
        lines = [re.sub(r"\r\n?$", "\n", line) for line in lines]
        texts = [
            "".join(group) for has_text, group in groupby(lines, lambda line: bool(line.strip())) if has_text
        ]
    return [text.strip() for text in texts if text.strip()]


def reading(file: Path, **options) -> tuple[list[str], str]:
    """Read a file's documents; instead of them, the line in which they are refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(open_documents(file, **options)), ""
    except ValueError as error:
        assert str(file) in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
        return [], str(error)


def test_any_texts_come_back_from_any_file(effort, tmp_path):
    @effort(150)
    @given(SOUND, ENDINGS)
    @example(["the cat sat\n\t"], (".tsv", ""))
    def holds(texts, ending):
        file = tmp_path / f"corpus{''.join(ending)}"
        file.write_bytes(PACK[ending[1]](WRITERS[ending[0]](texts)))
        documents, refusal = reading(file)
        if "lines together: each has the tabs of a row" in refusal:  # as of a quote that nobody closed
            assert ending[0] == ".tsv"
            assert any("\t" in text and len(text.splitlines()) > 1 for text in texts)
            return
        assert documents == documents_in(texts, ending[0])
        assert bool(documents) != ("has no text: give" in refusal)

    holds()


WOUNDS = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, 400), st.just(b"")),
    st.tuples(st.just("write"), st.integers(0, 400), st.binary(max_size=3)),
    st.tuples(st.just("insert"), st.integers(0, 400), st.binary(max_size=3)),
    st.tuples(st.just("instead"), st.just(0), st.binary() | st.just("Wrong.".encode("utf-16"))),
)


def wounded(content: bytes, wound: tuple[str, int, bytes]) -> bytes:
    """Damage a file's content."""
    kind, place, more = wound
    if kind == "instead":
        return more
    rest = b"" if kind == "cut" else content[place + (len(more) if kind == "write" else 0) :]
    return content[:place] + more + rest


def test_any_damage_is_refused_with_the_file_or_harms_nothing_else(effort, tmp_path):
    """Skipping what is bad gives at least what is good before it, and only text."""

    @effort(200)
    @given(SOUND, ENDINGS, WOUNDS, st.booleans())
    def holds(texts, ending, wound, is_inside):
        file = tmp_path / f"corpus{''.join(ending)}"
        content = WRITERS[ending[0]](texts)
        content = wounded(content, wound) if is_inside else content
        packed = PACK[ending[1]](content)
        file.write_bytes(packed if is_inside else wounded(packed, wound))
        documents, refusal = reading(file)
        others, _ = reading(file, skip_bad_records=True)
        assert bool(documents) != bool(refusal)
        assert others[: len(documents)] == documents
        assert not documents or others == documents
        for text in others:
            assert text.encode()
            assert text == text.strip()
            assert "\0" not in text

    holds()


LEARNED = ["the cat sat on a mat. It ran! Why?", "家。 😀", *(f"{word} <unk>" for word in "abcdefgh")]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return train_tokenizer(LEARNED, request.param, 600)


def test_any_texts_are_tokenized_without_loss(effort, tokenizer):
    """Every offset is in its place, no token is a sign, and where bytes are tokens, the text comes back."""
    signs = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}

    @effort(40)
    @given(SOUND.map(lambda texts: [text.strip() for text in texts if text.strip()]))
    def holds(texts):
        corpus = tokenize(texts, tokenizer)
        assert corpus.num_documents == len(texts)
        assert corpus.document_bytes.tolist() == [len(text.encode()) for text in texts]
        assert corpus.sentence_offsets[-1] == corpus.num_tokens == len(corpus.word_starts)
        assert (np.diff(corpus.sentence_offsets) > 0).all()
        assert corpus.document_offsets[-1] == corpus.num_sentences
        assert signs.isdisjoint(corpus.tokens.tolist())
        if tokenizer.unk_token is None:  # bytes
            assert [tokenizer.decode(corpus.document(index)) for index in range(len(texts))] == texts

    holds()


LONG_LINES = {
    "letters": lambda length: "a" * length,
    "words": lambda length: "the cat " * (length // 8),
    "stops": lambda length: ". " * (length // 2),
    "spaces": lambda length: "The" + " " * length + "end.",
    "planes": lambda length: "".join(PLANES) * (length // len(PLANES)),
}


@pytest.mark.parametrize("length", [2**18, pytest.param(2**20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LONG_LINES)
def test_a_very_long_line_is_text_like_any_other(tmp_path, tokenizer, name, length):
    line = LONG_LINES[name](length).strip()
    file = tmp_path / "long.txt"
    file.write_text(f"{line}\n\nThe end.", encoding="utf-8")
    documents = list(open_documents(file))
    assert documents == [line, "The end."]
    corpus = tokenize(documents, tokenizer)
    assert corpus.num_documents == 2
    if tokenizer.unk_token is None:  # bytes
        assert tokenizer.decode(corpus.document(0)) == line


@pytest.mark.parametrize(
    "kind", ["masked_language_modeling_with_next_sentence", "causal_language_modeling", "denoising"]
)
def test_any_corpus_is_learned_from_or_refused_in_one_line(effort, kind, texts, tmp_path, recipe_of):
    numbers, outcomes = count(), set()

    @effort(6)
    @given(SOUND, st.integers(0, 12), st.integers(0, 2**16))
    def holds(strange, plain, seed):
        draw = random.Random(seed)
        sentences = [" ".join(draw.choices(WORDS, k=12)) for _ in range(plain)]
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        (folder / "train.txt").write_bytes(as_lines([*strange, *sentences]))
        recipe = recipe_of(kind, texts, folder / "run", tokens_per_step=96, steps=1, log_every=1)
        sources = {name: str(folder / "train.txt") for name in ("train", "validation")}
        recipe = changed(recipe, **sources, cache=str(folder / "cache"))
        try:
            pretrain(recipe)
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017
            assert not (folder / "run").exists()
            outcomes.add("refused")
        else:
            losses = [record["loss"] for record in read_log(folder / "run" / LOG) if "loss" in record]
            assert losses
            assert all(map(math.isfinite, losses))
            outcomes.add("learned from")

    holds()
    assert outcomes == {"refused", "learned from"}
