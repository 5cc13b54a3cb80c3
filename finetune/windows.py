"""Windows: a question with a part of a text, which may be longer than what a model reads.

    [CLS] question [SEP] the text from its beginning ... [SEP]
    [CLS] question [SEP] ... the text again, from the last `stride` tokens of the window before ... [SEP]

That there is no answer is a place, too: the first token, which is [CLS] in BERT (Devlin et al., 2019, section
4.3). But the first token of a causal model has seen nothing, and where a tokenizer opens no text it is the
question's: there it is the last token, which ends the text (`frames.end_pairs`).

Shapes: T tokens of a window, or of a question with a whole text.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

import numpy as np
from tokenizers import Encoding

from ..objectives.question_answering import NO_CHARACTER
from ..text.bad_records import RowError
from ..training.packing import Ragged, ragged
from .encoding import TextEncoder

ROWS_AT_ONCE = 512
"""Rows of which the tokenizer's own account is in memory at once."""

Pair = dict[str, np.ndarray]
"""A question with a whole text: `input_ids`, ... (T,), and which tokens are the text's, `is_text` (T,)."""


def encode_windows(
    encoder: TextEncoder, questions: Sequence[str], texts: Sequence[str], stride: int
) -> dict[str, Ragged]:
    """Encode questions and the texts that answer them, each in as many windows as it needs.

    Every window has `input_ids` (T,) and, if the model reads them, `token_type_ids` (T,); `begins` and `ends`
    (T,), from and up to which character of the text an answer goes whose first or last token it is, -1 where
    it can be neither; `rows`, the number of its row; and `nowhere`, the token that says that there is none.

    Raises:
        ValueError: A question leaves no room for the text, or the tokenizer leaves nothing of a text.
    """
    fields: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for first in range(0, len(questions), ROWS_AT_ONCE):
        chosen = slice(first, first + ROWS_AT_ONCE)
        for row, pair in enumerate(encode_pairs(encoder, questions[chosen], texts[chosen]), first):
            for places in window_places(pair.pop("is_text"), encoder.max_length, stride, row):
                for name, values in pair.items():
                    fields[name].append(values[places])
                fields["rows"].append(np.array([row]))
                fields["nowhere"].append(np.array([nowhere(encoder, len(places))]))
    if not encoder.has_token_types:
        del fields["token_type_ids"]
    return {name: ragged(arrays) for name, arrays in fields.items()}


def nowhere(encoder: TextEncoder, num_tokens: int) -> int:
    """Say which token of a window says that there is no answer."""
    return 0 if encoder.frames and not encoder.is_causal else num_tokens - 1


def window_places(is_text: np.ndarray, max_length: int, stride: int, row: int) -> list[np.ndarray]:
    """Give the places of each window's tokens: those of a part of the text, and all that are not the text's.

    Windows overlap by half of what the question leaves to the text at most, or there would be very many.

    >>> [places.tolist() for places in window_places(np.array([0, 0, 1, 1, 1, 1, 1, 0]), 7, 2, row=0)]
    [[0, 1, 2, 3, 4, 5, 7], [0, 1, 4, 5, 6, 7]]
    """
    places = np.flatnonzero(is_text)
    if not len(places):
        raise RowError(row, "has a text of which the tokenizer leaves nothing: take it out")
    before, behind = np.arange(places[0]), np.arange(places[-1] + 1, len(is_text))
    room = max_length - len(before) - len(behind)
    if room < 1:
        raise RowError(
            row,
            f"has a question that leaves none of {max_length} tokens to the text: shorten it, or take it out",
        )
    overlap = min(stride, room // 2)
    starts = range(0, max(len(places) - overlap, 1), room - overlap)
    return [np.concatenate((before, places[start : start + room], behind)) for start in starts]


def encode_pairs(encoder: TextEncoder, questions: Sequence[str], texts: Sequence[str]) -> list[Pair]:
    """Encode each question with its whole text."""
    encoded = encoder.tokenizer(list(questions), list(texts), verbose=False)
    account = cast(list[Encoding], encoded.encodings)
    return [pair_of(each, text) for each, text in zip(account, texts, strict=True)]


def pair_of(encoding: Encoding, text: str) -> Pair:
    """Turn the tokenizer's account of a pair into arrays."""
    is_text = np.array([number == 1 for number in encoding.sequence_ids])
    offsets = np.full((len(is_text), 2), NO_CHARACTER)
    offsets[is_text] = characters(text, np.array(encoding.offsets)[is_text])
    begins, ends = offsets.T
    return {
        "input_ids": np.array(encoding.ids),
        "token_type_ids": np.array(encoding.type_ids),
        "begins": begins,
        "ends": ends,
        "is_text": is_text,
    }


def characters(text: str, offsets: np.ndarray) -> np.ndarray:
    r"""Say from where to where tokens stand for a text, without the spaces around them: (T, 2) to (T, 2).

    What the tokenizer has dropped between two tokens, an accent or a mark of direction, goes with what it
    touches. Tokens of nothing but spaces stand for no character.

    >>> characters("a b\u0301!", np.array([[0, 1], [1, 3], [4, 5]])).tolist()
    [[0, 1], [2, 4], [4, 5]]
    """
    is_space = np.array([letter.isspace() for letter in text])
    edges = np.concatenate(([-1], np.flatnonzero(is_space), [len(text)]))
    begins, ends = offsets.T
    following = np.append(begins[1:], len(text))
    ends = np.maximum(ends, np.minimum(following, edges[np.searchsorted(edges, ends)]))
    preceding = np.append(0, ends[:-1])
    begins = np.minimum(begins, np.maximum(preceding, edges[np.searchsorted(edges, begins) - 1] + 1))
    letters = np.flatnonzero(~is_space)
    first, behind = np.searchsorted(letters, begins), np.searchsorted(letters, ends)
    spans = np.stack((letters.take(first, mode="clip"), letters.take(behind - 1, mode="clip") + 1), axis=1)
    return np.where((first < behind)[:, None], spans, NO_CHARACTER)
