"""A sentence of a megabyte: cut between two words, where the tokenizer says that it makes no difference.

A text without marks or line ends is one sentence, however long. Encoded at once it takes more than a hundred
times its size, so it is cut before the space of a word, like any sentence. Tokenizers that cut at spaces
anyway give the same tokens; others are tried at each cut. Text without such a place (no spaces at all, or a
tokenizer that joins words) stays whole, and takes what it takes: `corpus.largest_record` bounds it.
"""

import re
from collections.abc import Iterator

from tokenizers import Tokenizer

LONGEST_PIECE = 100_000
"""Characters of a sentence beyond which a place for a cut is looked for."""
AROUND = 200
"""Characters on either side of a cut that the tokenizer is tried on."""
TRIED = 20
"""Places that are tried before the next piece is gone through without a cut."""
PLACE = re.compile(r"(?<=[^\W_])(?= [^\W_])")


def pieces_of(sentence: str, backend: Tokenizer | None = None) -> Iterator[str]:
    """Cut a sentence into pieces whose tokens, joined, are its own; a short one is its only piece.

    Args:
        sentence: Or any text without special tokens.
        backend: The tokenizer to ask; none if it is known to cut before the space of a word.
    """
    start, after = 0, LONGEST_PIECE
    while len(sentence) > after:
        cut = _cut(sentence, after, backend)
        if cut is None:
            after += LONGEST_PIECE
            continue
        yield sentence[start:cut]
        start, after = cut, cut + LONGEST_PIECE
    yield sentence[start:]


def _cut(sentence: str, after: int, backend: Tokenizer | None) -> int | None:
    """Find the first place behind `after` at which a cut changes nothing, of those that are tried."""
    places = PLACE.finditer(sentence, after, min(after + LONGEST_PIECE, len(sentence)))
    for match, _ in zip(places, range(TRIED), strict=False):
        cut = match.start()
        if backend is None:
            return cut
        before, behind = sentence[cut - AROUND : cut], sentence[cut : cut + AROUND]
        whole, *parts = (
            encoding.ids
            for encoding in backend.encode_batch([before + behind, before, behind], add_special_tokens=False)
        )
        if whole == parts[0] + parts[1]:
            return cut
    return None
