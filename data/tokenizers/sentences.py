"""Where sentences end: a small, conservative rule for prose.

A full stop ends a sentence only if what follows looks like a beginning and what precedes does not look like
an abbreviation, an initial or a number in a list. The rule rather misses a boundary than invents one: a
missed one makes a long sentence, an invented one makes two that are none.

A sentence keeps the white space before it, so that the sentences of a text, joined, are the text again.
"""

import re
from itertools import pairwise

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
    begins = sentence_begins(text)
    return [text[begin:end] for begin, end in pairwise([*begins, len(text)]) if begin < end]


def sentence_begins(text: str) -> list[int]:
    """Find the character with which each sentence of a text begins, or the white space before it; first 0."""
    cuts = [0]
    for match in BOUNDARY.finditer(text):
        if match["line"] is not None:
            if match.end() < len(text):
                cuts.append(match.start())
        elif match["space"] is None:
            cuts.append(match.end())
        elif _ends_sentence(text, cuts[-1], match):
            cuts.append(match.end("closing"))
    return cuts


def _ends_sentence(text: str, sentence_start: int, match: re.Match[str]) -> bool:
    # Whether the next word can begin a sentence, and the last one end it.
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
