"""What the finished models do with texts, for people to read, by the abilities that `tercet play` offers.

Whatever is shown is chosen by a rule and never by success: first texts that are the same in every
demonstration, written before any model saw them, then held-out texts that stand evenly spaced.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..play.loaded_model import load_model
from ..play.sessions import abilities_of
from ..reporting.blocks import Bar, Block, Example, Examples, Line, Prose, Ranking, Run
from ..text.documentation import Document
from ..text.sentences import split_sentences
from .tasks import evenly_spaced

GAPS = (
    ("The function returns a ", "list", " of all files in the directory."),
    ("Raise an ", "error", " if the value is not a number."),
)
"""What stands before a hidden word, the word that the author had in mind, and what stands behind it."""

BEGINNINGS = (
    "Return a list of",
    "If the file does not exist,",
)
"""What a decoder goes on from."""

TELEGRAMS = (
    "convert string list integers",
    "raise error when file cannot opened",
)
"""What a sequence-to-sequence model writes out."""

PARAGRAPHS = (
    "Draw a horizontal line across the axes, with the given colour and width, and add it to the legend.",
    "Compute the gradient of the loss with respect to all parameters that require one, and add it to theirs.",
)
"""What a fine-tuned encoder places."""

MADE_UP = "First some texts that are the same in every demo, written before any model saw them:"
SPACED = "Then held-out texts, evenly spaced, not selected by outcome:"

NUM_SHOWN = 2
NUM_GUESSES = 3
PROMPT_WORDS = 14
"""Words of a paragraph that a decoder reads; as many behind them are shown."""
LENGTH = 32
"""Tokens that are written."""
LONG_WORD = re.compile(r"\b[A-Za-z]{5,}\b")
"""A word that is worth hiding: shorter ones are mostly grammar."""


def filled_gaps(model: Path, held_out: Sequence[Document]) -> Iterator[Block]:
    """Show which words an encoder expects in a gap."""
    ask = asking(model, "fill")

    def shown(before: str, truth: str, after: str) -> Example:
        _, ranking = ask(f"{before}___{after}", top=NUM_GUESSES)
        return Example(
            [Line("sentence", [Run(before), Run(truth, "truth"), Run(after)])], bars(ranking, truth)
        )

    hidden = (hide_word(each) for text in paragraphs(held_out) for each in split_sentences(text))
    yield from made_up_first(shown, GAPS, [gap for gap in hidden if gap], are_narrow=True)


def hide_word(sentence: str) -> tuple[str, str, str] | None:
    """Cut a sentence of 10 to 30 words around the word of five letters or more that is nearest its middle.

    >>> from tercet.demo.samples import hide_word
    >>> hide_word("Return the number of rows that a table with this name has.")
    ('Return the number of rows that a ', 'table', ' with this name has.')
    """
    sentence = sentence.strip()
    words = [*LONG_WORD.finditer(sentence)]
    if not words or len(sentence.split()) not in range(10, 31) or "__" in sentence:  # a gap of its own
        return None
    word = min(words, key=lambda each: abs(each.start() + each.end() - len(sentence)))
    return sentence[: word.start()], word[0], sentence[word.end() :]


def continuations(model: Path, held_out: Sequence[Document]) -> Iterator[Block]:
    """Show how a decoder goes on from a text, by its best guesses and by chance."""
    ask = asking(model, "continue")

    def shown(prompt: str, truth: str = "") -> Example:
        lines = [("prompt", prompt), *([("original", f"… {truth}")] if truth else [])]
        for name, temperature in (("greedy", 0), ("sampled", 0.8)):
            passage, _ = ask(prompt, temperature=temperature, length=LENGTH)
            written = passage.pieces[1].text.lstrip("\n").partition("\n")[0]
            lines.append((name, f"… {written.strip()}"))
        return Example([Line(name, [Run(text)]) for name, text in lines])

    texts = [words for text in paragraphs(held_out) if len(words := text.split()) >= 2 * PROMPT_WORDS]
    halves = [(words[:PROMPT_WORDS], words[PROMPT_WORDS : 2 * PROMPT_WORDS]) for words in texts]
    cut = [(" ".join(read), " ".join(continued)) for read, continued in halves]
    yield from made_up_first(shown, [(text,) for text in BEGINNINGS], cut)


def telegrams(model: Path, rows: Path) -> Iterator[Block]:
    """Show how a sequence-to-sequence model writes telegrams out."""
    ask = asking(model, "translate")

    def shown(telegram: str, sentence: str = "") -> Example:
        written = ask(telegram, length=2 * LENGTH)[1].entries[0].text
        truth = [Line("sentence", [Run(sentence, "truth")])] if sentence else []
        answer = Run(written, "right" if written == sentence else "plain")
        return Example([Line("telegram", [Run(telegram)]), *truth, Line("written", [answer])])

    held_out = [(row["telegram"], row["sentence"]) for row in lines_of(rows)]
    yield from made_up_first(shown, [(text,) for text in TELEGRAMS], held_out, are_narrow=True)


def labels(model: Path, rows: Path) -> Iterator[Block]:
    """Show which labels a fine-tuned encoder expects of paragraphs."""
    ask = asking(model, "classify")

    def shown(text: str, truth: str = "") -> Example:
        right = [Line("right", [Run(truth, "truth")])] if truth else []
        return Example([Line("paragraph", [Run(text)]), *right], bars(ask(text, top=3)[0], truth))

    held_out = [(row["text"], row["label"]) for row in lines_of(rows)]
    yield from made_up_first(shown, [(text,) for text in PARAGRAPHS], held_out, are_narrow=True)


def asking(model: Path, name: str) -> Callable[..., list[Any]]:
    """Load a model, and return the function that lets it answer a text by one of its abilities."""
    ability = abilities_of(load_model(str(model)))[name]
    return lambda text, **numbers: ability.answer([text], numbers)


def bars(ranking: Ranking, truth: str) -> list[Bar]:
    """Draw guesses, the right one to be looked at."""
    return [replace(bar, strong=bar.name.lower() == truth.lower()) for bar in ranking.bars]


def made_up_first(
    shown: Callable[..., Example],
    made_up: Sequence[tuple[str, ...]],
    held_out: Sequence[tuple[str, ...]],
    *,
    are_narrow: bool = False,
) -> Iterator[Block]:
    """Lay out what a model does: with made-up texts, then with some of the held-out ones."""
    for rule, texts in ((MADE_UP, made_up), (SPACED, evenly_spaced(held_out, NUM_SHOWN))):
        yield Prose(rule)
        yield Examples([shown(*each) for each in texts], are_narrow)


def paragraphs(documents: Sequence[Document]) -> list[str]:
    """List the paragraphs of modules."""
    return [text for _, docstrings in documents for each in docstrings for text in each.paragraphs]


def lines_of(file: Path) -> list[Mapping[str, Any]]:
    """Read rows."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
