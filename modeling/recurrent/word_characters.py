"""Words as the codes of their characters, as ELMo reads them (Peters et al., 2018, section 3.4).

A character is a byte of UTF-8. The codes, and the longest word, are those of the paper's implementation:

    0                what a position without a word consists of
    1 to 256         the bytes
    257, 258         the only character of the "word" that begins, or ends, a sequence
    259, 260         before and behind the characters of every word
    261              fills a word up to the longest

    cat  ->  259 100 98 117 260 261 261 ... 261

Shapes: B batch, W words of the longest sequence, L codes of a word.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

NO_WORD = 0
FIRST_CHARACTER = 1
BEGIN_OF_SEQUENCE, END_OF_SEQUENCE = 257, 258
BEGIN_OF_WORD, END_OF_WORD = 259, 260
FILLER = 261
NUM_CODES = 262


def codes_of(word: str) -> list[int]:
    """Return the codes of the bytes of a word, as many as it has."""
    return [FIRST_CHARACTER + byte for byte in word.encode(errors="surrogatepass")]


def framed(codes: Sequence[int], longest: int) -> list[int]:
    """Mark begin and end of a word and fill it up to `longest` codes; what is too long is cut at its end."""
    kept = list(codes)[: longest - 2]
    return [BEGIN_OF_WORD, *kept, END_OF_WORD] + [FILLER] * (longest - 2 - len(kept))


def encode_words(sentences: Sequence[Sequence[str]], longest: int = 50) -> dict[str, Tensor]:
    """Encode sentences that are cut into words, any words, between the codes that begin and end a sequence.

    Args:
        sentences: Words of each sentence.
        longest: Codes of a word, `max_characters_per_word` of the model.

    Returns:
        `character_ids` (B, W, L), padded on the right, and `attention_mask` (B, W), for a model's `forward`.

    Raises:
        ValueError: There is no sentence, a sentence is a string, or a word is empty.
    """
    if not sentences:
        raise ValueError("there are no sentences: give a list of lists of words")
    rows = [framed_sentence(sentence, longest) for sentence in sentences]
    width = max(map(len, rows))
    empty = [NO_WORD] * longest
    return {
        "character_ids": torch.tensor([row + [empty] * (width - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]),
    }


def framed_sentence(words: Sequence[str], longest: int) -> list[list[int]]:
    """Return the codes of each word, and those of the begin and the end of the sentence around them."""
    if isinstance(words, str):
        raise ValueError(f"a sentence is {words!r}: give a list of words, such as {words.split()}")
    if not all(words):
        raise ValueError(f"a word of {list(words)} is empty: leave it out")
    codes = [[BEGIN_OF_SEQUENCE], *map(codes_of, words), [END_OF_SEQUENCE]]
    return [framed(each, longest) for each in codes]
