"""A program whose processes ask for windows of a stream, and note what they tokenize and get."""

import json
import os
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path

from accelerate import Accelerator
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tercet.data.corpus import ARRAYS, TokenizedCorpus
from tercet.data.documents import open_documents
from tercet.data.streaming import TokenizedStream
from tercet.data.tokenizers.tokenization import tokenize

ASKED = (0, 3, 0, 4, 5, 9)
"""Windows, as a run asks for them that resumes in the middle, goes on, and reaches another stage."""


def write_documents(folder: Path, count: int = 600) -> None:
    """Write numbered documents of very different lengths."""
    texts = [f"{number} " + "a tree. " * (number * number % 97) for number in range(count)]
    (folder / "stream.txt").write_text("\n\n".join(texts))


def tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer that spells."""
    vocabulary = {character: idx for idx, character in enumerate("?0123456789 aetr.")}
    spelling = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    spelling.pre_tokenizer = pre_tokenizers.Split("", "isolated")  # pyright: ignore[reportAttributeAccessIssue]
    return PreTrainedTokenizerFast(tokenizer_object=spelling, unk_token="?")


def digest(corpus: TokenizedCorpus) -> str:
    """Hash all of a corpus: values and types."""
    arrays = [getattr(corpus, name) for name in ARRAYS]
    return sha256(b"".join(repr(array.dtype).encode() + array.tobytes() for array in arrays)).hexdigest()


def windows(folder: Path, window_documents: int, num_workers: int, rank: int) -> list[str]:
    """Ask for windows and hash them; note in a file which documents are tokenized, by number and length."""

    def noting(documents, tokenizer):
        lines = [f"{os.getpid()} {text.split()[0]} {len(text)}\n" for text in documents]
        with (folder / f"tokenized-{rank}").open("a") as file:
            file.write("".join(lines))
        return tokenize(documents, tokenizer)

    documents = open_documents(folder / "stream.txt")
    stream = TokenizedStream(documents, partial(noting, tokenizer=tokenizer()), window_documents)
    found = [digest(stream.window(ASKED[0]))]
    stream.share_with(num_workers)
    return found + [digest(stream.window(number)) for number in ASKED[1:]]


def main() -> None:
    """Note what a process of a launch gets: `FOLDER WINDOW_DOCUMENTS NUM_WORKERS`."""
    folder, rank = Path(sys.argv[1]), Accelerator(cpu=True).process_index
    found = windows(folder, *map(int, sys.argv[2:]), rank)
    (folder / f"windows-{rank}.json").write_text(json.dumps(found))
