"""From docstrings to English: the paragraphs of a docstring that a reader would call prose.

Docstrings mix sentences with examples, tables of parameters, headings and markup (reStructuredText, Markdown,
the styles of NumPy and Google). What is not a sentence is dropped; what is one loses its markup. Rules are
rough on purpose: losing a paragraph costs nothing, learning a table as if it were English does.
"""

import inspect
import re
from collections.abc import Iterator

FENCED = re.compile(r"^[ \t]*(```|~~~).*?(^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)
TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|\[\[[^\]\n]*\]\]")
DIRECTIVE = re.compile(r"\s*\.\. (?!(?:note|warning|tip|important|caution|hint|attention)::)")
ADMONITION = re.compile(r"\s*\.\. \w+::\s*")
RULE = re.compile(r"\s*([=\-~^\"'#*+`_.:])\1{2,}\s*$")
BULLET = re.compile(r"\s*(?:[-*+•]|\(?\d{1,2}[.)]|#+)\s+")
NAME = r"`{0,2}\*{0,2}[\w.]+`{0,2}"
FIELD = re.compile(
    r"\s*(?::\w+[^:]*:"  # :param name:
    rf"|{NAME}(?:\s*,\s*{NAME})*\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*(?::|--?)(?=\s|$)"  # name (type):
    r")\s*"
)
LABEL = re.compile(r"\s*[\w*.,`'\" ]+ : .*$")  # NumPy's style: name : type, the description below it
MARKUP = [
    (re.compile(r"!?\[`?([^\[\]`]*)`?\]\([^()]*\)"), r"\1"),  # Markdown links
    (re.compile(r"\[`~?(?:[\w.]+\.)?([\w()]+)`\]"), r"\1"),  # links of transformers
    (re.compile(r":[\w:]+:`([^`<]+?)\s*<[^`>]*>`"), r"\1"),  # roles with a text of their own
    (re.compile(r":math:`[^`]*`"), "\\\\"),  # formulas, for the filter to see
    (re.compile(r":[\w:]+:`[~!]?(?:[\w.]+\.)?([^`.]+\.?)`"), r"\1"),  # roles
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?"), r"\1"),  # links
    (re.compile(r"\s?\[[\w#*]+\]_"), ""),  # footnotes
    (re.compile(r"`{1,2}([^`]*)`{1,2}_{0,2}"), r"\1"),  # code and references
    (re.compile(r"\*{1,3}(?=\S)([^*]+?)(?<=\S)\*{1,3}"), r"\1"),  # bold and emphasis
    (re.compile(r"<?https?://\S+?>?(?=[.,;)]?(\s|$))"), ""),
    (re.compile(r"\s+"), " "),
    (re.compile(r" (?=[.,;:!?)])"), ""),
]
FOREIGN = re.compile(r"[{}|\\=\[\]@#$^~_]|>>>|->|%\(|::|--|\(\)|\w/\w|[^\x00-\x7f\u2013-\u2026\xc0-\xff]")
"""Signs that prose has few of."""
QUOTE = r"\"'\u2018-\u201d"
WORD = re.compile(rf"[({QUOTE}]*[A-Za-z]+(?:['\u2019-][A-Za-z]+)*[){QUOTE}]*[.,;:!?]*[){QUOTE}]*")
GLUE = frozenset({
    "the", "a", "an", "of", "to", "in", "is", "are", "be", "for", "and", "or", "that", "this", "it",
    "with", "as", "by", "on", "if", "not", "from", "when", "which", "can", "will", "at", "has", "have",
    "was", "were", "you", "we", "they", "its", "their", "such", "may", "must", "should", "would", "but",
    "than", "then", "so", "only", "into", "used", "no", "any", "all",
})  # fmt: skip
"""Words that hold sentences together: labels and listings do without."""
FEWEST_WORDS = 5
WORD_SHARE = 0.72
GLUE_SHARE = 0.2
WORDS_PER_FOREIGN_SIGN = 8


def prose_paragraphs(docstring: str) -> list[str]:
    r"""Return the paragraphs of prose in a docstring, each on one line, without markup.

    >>> prose_paragraphs("Sums.\n\nThe sum of ``x`` is\nnot *kept*.\n\n>>> sum(2)\n2\n\nx : int\n    Number.")
    ['The sum of x is not kept.']
    """
    text = TAG.sub("", FENCED.sub("", inspect.cleandoc(docstring)))
    paragraphs = (clean(" ".join(lines)) for block in _text_blocks(text) for lines in _paragraphs(block))
    return [paragraph for paragraph in paragraphs if is_prose(paragraph)]


def clean(paragraph: str) -> str:
    """Take the markup out of a paragraph and let it begin with a capital."""
    for pattern, replacement in MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
    paragraph = paragraph.strip()
    return paragraph[:1].upper() + paragraph[1:]


def is_prose(paragraph: str) -> bool:
    """Judge whether a paragraph consists of English sentences: by its end, its signs and its words."""
    if not paragraph.endswith((".", "!", "?", '."', ".)")) or not paragraph[0].isalpha():
        return False
    if not paragraph.isprintable():  # docstrings show control characters as they are, NUL among them
        return False
    words = paragraph.split()
    if len(words) < FEWEST_WORDS or len(FOREIGN.findall(paragraph)) > len(words) // WORDS_PER_FOREIGN_SIGN:
        return False
    plain = sum(WORD.fullmatch(word) is not None for word in words)
    glue = sum(word.strip(",.;:()").lower() in GLUE for word in words)
    return plain >= WORD_SHARE * len(words) and glue >= GLUE_SHARE * len(words)


def _text_blocks(text: str) -> Iterator[list[str]]:
    """Find the blocks between blank lines that hold text: not those of a directive or an example."""
    skipped_below: int | None = None  # blocks that are indented further are skipped
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").split("\n")
        indent = _indent(lines[0])
        if skipped_below is not None and indent > skipped_below:
            continue
        skipped_below = None
        if DIRECTIVE.match(lines[0]):
            skipped_below = indent
        elif lines[-1].rstrip().endswith("::") and not ADMONITION.match(lines[-1]):
            skipped_below = _indent(lines[-1])
        else:
            yield lines


def _paragraphs(block: list[str]) -> Iterator[list[str]]:
    """Cut a block where a list's next item begins or the margin moves, and drop headings and examples."""
    paragraph: list[str] = []
    indent = 0
    for line, follower in zip(block, [*block[1:], ""], strict=True):
        if line.lstrip().startswith(">>>") or DIRECTIVE.match(line):
            break  # up to the next blank line, all is code and its output
        is_heading = RULE.match(line) or RULE.match(follower) or LABEL.match(line)
        opening = BULLET.match(line) or FIELD.match(line) or ADMONITION.match(line)
        if is_heading or opening or _indent(line) != indent:
            yield paragraph
            paragraph = []
        if not is_heading:
            paragraph.append((line[opening.end() :] if opening else line).strip())
        indent = _indent(follower) if opening else _indent(line)
    yield paragraph


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
