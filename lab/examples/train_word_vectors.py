"""Make a folder of static word vectors, which taggers read as features: from text, or from a file of vectors.

    python lab/examples/train_word_vectors.py corpora/pretrain_en/train runs/word-vectors/model
    python lab/examples/train_word_vectors.py glove.6B.100d.txt runs/glove/model --ready

Texts are those that `tercet pretrain` reads: skip-grams with sub-words are trained on them by gensim
(`pip install 'tercet[vectors]'`). With --ready, the source has a word and its numbers in every line. Prints
the nearest neighbours of some words at the end.
"""

import argparse
import re
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn import functional as F

from tercet import TercetWordVectorsModel
from tercet.data.documents import open_documents
from tercet.tools.convert.static_vectors import read_word_vectors, save_word_vectors, train_word_vectors

WORD = re.compile(r"[^\W_]+(?:[.,'\u2019-][^\W_]+)*|\S")
"""A word with what joins its parts, a number, or any other character."""


class Sentences:
    """The words of each line of a text, as in a recipe's `corpus.train`, that can be read again and again."""

    def __init__(self, source: str):
        self.documents = open_documents(source)

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the words of each line that has some."""
        for text in self.documents:
            yield from filter(None, map(WORD.findall, text.split("\n")))


@torch.no_grad()
def neighbours(model: TercetWordVectorsModel, word: str, count: int = 6) -> list[str] | None:
    """Name the known words, at most `count`, whose vectors point most nearly in the direction of a word's.

    `None` if the word has no vector: it is unknown, and no n-grams stand in for it.
    """
    words, vector = [*model.words.entries], model.vectors_of([word])[0]
    if not vector.any():
        return None
    cosines = F.normalize(model.word_vectors.weight, dim=-1) @ F.normalize(vector, dim=-1)
    nearest = cosines.topk(min(count + 1, len(words))).indices.tolist()
    return [words[row] for row in nearest if words[row] != word][:count]


def main() -> None:
    """Train or read vectors, and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("source", help="text, or with --ready a file of vectors")
    parser.add_argument("folder", type=Path, help="receives the model")
    parser.add_argument("--ready", action="store_true", help="the source has vectors")
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1, help="more are faster, and never the same twice")
    options = parser.parse_args()
    if options.ready:
        model = read_word_vectors(Path(options.source))
    else:
        sizes = {"width": options.width, "epochs": options.epochs, "workers": options.workers}
        model = train_word_vectors(Sentences(options.source), **sizes)
    save_word_vectors(model, options.folder)
    print(f"{model.config.num_words:,} words, {model.config.hidden_size} numbers each: {options.folder}")
    for word in ("bank", "Paris", "walking", "unhappyish"):
        near = neighbours(model, word)
        print(f"  {word}: {'unknown, it has no vector' if near is None else ', '.join(near)}")


if __name__ == "__main__":
    main()
