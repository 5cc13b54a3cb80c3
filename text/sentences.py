"""Where sentences end: a small, conservative rule for prose.

A full stop ends a sentence only if what follows looks like a beginning and what precedes does not look like
an abbreviation, an initial or a number in a list. The rule rather misses a boundary than invents one: a
missed one makes a long sentence, an invented one makes two that are none.

A sentence keeps the white space before it, so that the sentences of a text, joined, are the text again, and a
tokenizer that treats a space as part of the next word sees the same in a sentence as in its text.

A text without marks or line ends is one sentence, however long. Encoded at once it takes more than a hundred
times its size, so `pieces_of` cuts it before the space of a word. Tokenizers that cut at spaces anyway give
the same tokens; others are tried at each cut. Text without such a place (no spaces at all, or a tokenizer
that joins words) stays whole, and takes what it takes: `corpus.largest_record` bounds it.
"""

import re
from collections.abc import Iterator

from tokenizers import Tokenizer

ABBREVIATIONS = frozenset({
    "mr", "mrs", "ms", "messrs", "dr", "prof", "rev", "hon", "gen", "col", "maj", "capt", "cmdr", "lt",
    "sgt", "pres", "gov", "sen", "rep", "st", "ste", "sr", "jr", "mt", "ft", "vs", "etc", "cf", "al",
    "viz", "approx", "resp", "incl", "esp", "ca", "no", "nos", "vol", "vols", "ed", "eds", "fig",
    "figs", "eq", "eqs", "sec", "secs", "ch", "chap", "app", "pp", "p", "par", "inc", "ltd", "co",
    "corp", "bros", "dept", "univ", "assn", "est", "ave", "blvd", "rd", "jan", "feb", "mar", "apr",
    "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "mon", "tue", "tues", "wed", "thu", "thur",
    "thurs", "fri", "sat", "sun", "z", "bzw", "usw", "ggf", "evtl", "nr", "str", "hr", "fr", "bspw",
    "vgl", "abb",
})  # fmt: skip
"""Words, in lower case, after which a full stop ends nothing."""

CLOSING = r"[\"'\u201d\u2019»)\]]{0,3}"
OPENING = r"[\"'\u201c\u2018«(\[¿¡]{0,2}"
FULL_WIDTH_STOP = r"\u3002\uff01\uff1f"
FULL_WIDTH_CLOSING = r"\u300d\u300f\u201d\u2019\uff09"
BOUNDARY = re.compile(
    rf"""
    (?P<line> (?<!\s) \s*\n\s* )                                        # a line ends, whatever is on it
    | (?<= [.!?…] ) (?P<closing> {CLOSING} ) (?P<space> [^\S\n]+ )      # a mark, then a space ...
      (?= {OPENING} (?P<next> \w ) )                                    # ... and a word
    | (?<= [{FULL_WIDTH_STOP}] ) [{FULL_WIDTH_CLOSING}]{{0,2}}          # Chinese and Japanese need no space
      (?= [^\s{FULL_WIDTH_STOP}{FULL_WIDTH_CLOSING}] )
    """,
    re.VERBOSE,
)
WORD_BEFORE = re.compile(r"([\w.]*)[.]$")


def split_sentences(text: str) -> list[str]:
    """Cut a text into its sentences; joined, they are the text.

    >>> split_sentences("Dr. A. Smith paid $3.50. He left at 5 p.m. for the U.S. embassy! Why?")
    ['Dr. A. Smith paid $3.50.', ' He left at 5 p.m. for the U.S. embassy!', ' Why?']
    """
    cuts = [0]
    for match in BOUNDARY.finditer(text):
        if match["line"] is not None:
            cuts.append(match.start())
        elif match["space"] is None:
            cuts.append(match.end())
        elif _ends_sentence(text, cuts[-1], match):
            cuts.append(match.end("closing"))
    return [
        text[start:stop] for start, stop in zip(cuts, [*cuts[1:], len(text)], strict=True) if start < stop
    ]


def _ends_sentence(text: str, sentence_start: int, match: re.Match[str]) -> bool:
    """Judge a mark and a space: whether the next word can begin a sentence and the last one end it."""
    follower = match["next"]
    if follower.islower() or follower == "_":
        return False
    window = max(sentence_start, match.start() - 24)
    before = WORD_BEFORE.search(text[window : match.start()])
    if before is None or match["closing"]:
        return True
    word = before[1].lower()
    is_initial = len(word) == 1 and word.isalpha() and word != "i"
    is_dotted = "." in word and not word[0].isdigit()  # "e.g", "u.s", an ellipsis, but not "3.50"
    is_list_number = word.isdigit() and not text[sentence_start : match.start() - len(word) - 1].strip()
    return not (word in ABBREVIATIONS or is_initial or is_dotted or is_list_number)


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
