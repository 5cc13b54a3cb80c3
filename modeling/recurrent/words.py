"""Words: where those of a batch lie, as bytes, and as the codes of their characters.

A word is a token with those that continue it. Words of all sequences follow each other; for an LSTM each
sequence is a row, in the direction in which it reads, so that pads come last and reach no state.

    tokens  a ##b c . .      words  ab c d     rows  ab c      rows of the    c ab
            d .   . . .                              d  .      backward LSTM  d .

A tagger reads a sentence that is already cut into words as bytes. A token is then a byte of UTF-8, and spaces
separate words. So every word reaches the model as it is, and each of several kinds of word vectors can look
it up, or cut it, in its own way.

    "Tercet is"  ->  T e r c e t _ i s   ->   words "Tercet", "is"

ELMo reads words as the codes of their characters (Peters et al., 2018, section 3.4). A character is a byte
of UTF-8. The codes, and the longest word, are those of the paper's implementation:

    0                what a position without a word consists of
    1 to 256         the bytes
    257, 258         the only character of the "word" that begins, or ends, a sequence
    259, 260         before and behind the characters of every word
    261              fills a word up to the longest

    cat  ->  259 100 98 117 260 261 261 ... 261

Shapes: B batch, T positions, M real tokens, N words, S sequences, W words of the longest, C channels, L codes
of a word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ..sequences import Sequences, find_sequences


@dataclass(frozen=True)
class Words:
    """The words of a batch.

    Args:
        shape: (B, T) of the tokens.
        tokens: Positions of the real tokens in the flattened batch, in the order of their sequences, (M,).
        word_of_token: Number of the word that each of them belongs to, (M,).
        first_tokens: Number, among the real tokens, of the first one of each word, (N,).
        sequence: Number of the sequence of each word, (N,).
        place: Number of words before it in its sequence, (N,).
        lengths: Words of each sequence, (S,).
        is_whole: Whether the word is a single token that does not continue another one, (N,).
    """

    shape: torch.Size
    tokens: Tensor
    word_of_token: Tensor
    first_tokens: Tensor
    sequence: Tensor
    place: Tensor
    lengths: Tensor
    is_whole: Tensor

    @property
    def positions(self) -> Tensor:
        """Where each word begins in the flattened batch, (N,)."""
        return self.tokens[self.first_tokens]

    def rows(self, x: Tensor, *, is_reversed: bool) -> Tensor:
        """Lay vectors (N, C) out in rows (S, W, C), each perhaps from its last word to its first."""
        rows = x.new_zeros(len(self.lengths), int(self.lengths.amax()), x.shape[-1])
        return rows.index_put(self.cells(is_reversed=is_reversed), x)

    def from_rows(self, rows: Tensor, *, is_reversed: bool) -> Tensor:
        """Take the vectors (N, C) of words out of rows (S, W, C): the inverse of `rows`."""
        return rows[self.cells(is_reversed=is_reversed)]

    def cells(self, *, is_reversed: bool) -> tuple[Tensor, Tensor]:
        """Row and column of each word, (N,) and (N,)."""
        column = self.lengths[self.sequence] - 1 - self.place if is_reversed else self.place
        return self.sequence, column

    def to_tokens(self, x: Tensor) -> Tensor:
        """Return the vector of its word for every token, and zeros at pads: (N, C) -> (B, T, C)."""
        flat = x.new_zeros(self.shape.numel(), x.shape[-1])
        return flat.index_copy(0, self.tokens, x[self.word_of_token]).unflatten(0, self.shape)

    def from_tokens(self, x: Tensor) -> Tensor:
        """Take the vectors (N, C) of words from where they begin, (B, T, C): the inverse of `to_tokens`."""
        return x.flatten(0, 1)[self.positions]

    def recorded(self, x: Tensor, record: list[Tensor] | None) -> Tensor:
        """Add vectors (N, C) to a record, if there is one, as those of tokens (B, T, C).

        What is returned comes from there, so that a gradient of what follows reaches what is recorded.
        """
        if record is None:
            return x
        record.append(self.to_tokens(x))
        return self.from_tokens(record[-1])

    def neighbours(self, values: Tensor, offset: int, fill: int) -> Tensor:
        """Return the value of the word `offset` words on where a word begins, else `fill`: (N,) -> (B, T)."""
        other = values.roll(-offset)
        place = self.place + offset
        has_neighbour = (place >= 0) & (place < self.lengths[self.sequence])
        flat = values.new_full((self.shape.numel(),), fill)
        flat[self.positions] = other.where(has_neighbour, fill)
        return flat.view(self.shape)


def find_words(
    sequences: Sequences, begins_word: Tensor | None = None, is_outside: Tensor | None = None
) -> Words:
    """Find the words of a batch.

    Tokens that continue the word before them have `begins_word` (B, T) false, but the first token of a
    sequence begins a word all the same. Tokens of no word, as pads are, have `is_outside` (B, T) true.
    """
    number = sequences.sequence_ids.flatten()
    if is_outside is not None:
        number = number.masked_fill(is_outside.flatten(), -1)
    tokens = (number >= 0).nonzero().squeeze(-1)
    if len(tokens) == 0:
        raise ValueError(f"a batch of {(*sequences.size,)} holds pads alone: give at least one word")
    sequence_of_token = number[tokens]
    is_new = sequence_of_token != sequence_of_token.roll(1)
    is_new[0] = True
    begins = torch.ones_like(is_new) if begins_word is None else begins_word.flatten()[tokens]
    first_tokens = (begins | is_new).nonzero().squeeze(-1)
    word_of_token = (begins | is_new).cumsum(0) - 1
    sequence = sequence_of_token[first_tokens]
    lengths = torch.bincount(sequence, minlength=sequences.count)
    place = torch.arange(len(sequence), device=sequence.device) - (lengths.cumsum(0) - lengths)[sequence]
    num_tokens = torch.bincount(word_of_token, minlength=len(first_tokens))
    return Words(
        shape=sequences.size,
        tokens=tokens,
        word_of_token=word_of_token,
        first_tokens=first_tokens,
        sequence=sequence,
        place=place,
        lengths=lengths,
        is_whole=(num_tokens == 1) & begins[first_tokens],
    )


PAD = 0
FIRST_BYTE = 1
"""Id of byte 0."""
NUM_IDS = FIRST_BYTE + 256
SPACE = FIRST_BYTE + ord(" ")
UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Stands for a word of which nothing is left, and for bytes that are no UTF-8."""


def read_words(
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
) -> tuple[Words, list[list[str]]]:
    """Find the words of a batch, and what they are: for each sentence a list.

    A space belongs to the word before it. Those at the beginning of a text belong to none, as pads do.

    Args:
        input_ids: Bytes (B, T), padded on either side, or packed (1, N).
        attention_mask: (B, T), 0 at pads.
        position_ids: (B, T). Those that restart in a single row tell of packed sentences.
        cu_seq_lens: Cumulative lengths (S+1,) of packed sentences.
    """
    if input_ids.numel() == 0:
        raise ValueError(f"input_ids has the shape {tuple(input_ids.shape)}: give at least one word")
    if int(input_ids.max()) >= NUM_IDS or int(input_ids.min()) < 0:
        raise ValueError(
            f"input_ids has ids from {int(input_ids.min())} to {int(input_ids.max())}, but bytes have those "
            f"below {NUM_IDS}: use the tokenizer that is saved with the model"
        )
    sequences = find_sequences(input_ids, attention_mask, position_ids, cu_seq_lens)
    sequences = sequences.with_pads(input_ids, PAD)
    is_outside = precedes_text(input_ids, sequences.sequence_ids)
    words = find_words(sequences, begins_word(input_ids), is_outside)
    return words, texts_of(input_ids, words)


def begins_word(input_ids: Tensor) -> Tensor:
    """Return which bytes (B, T) begin a word: those behind a space that are none themselves."""
    is_space = input_ids == SPACE
    return ~is_space & is_space.roll(1, dims=-1)


def precedes_text(input_ids: Tensor, numbers: Tensor) -> Tensor:
    """Return which bytes (B, T) are spaces before the first word of their sequence, if it has one.

    `numbers` (B, T) are those of the sequence of each byte, -1 at pads.
    """
    number = numbers.flatten() + 1
    is_text = ((input_ids != SPACE).flatten() & (number > 0)).long()
    seen = is_text.cumsum(0)
    totals = torch.zeros(int(number.max()) + 1, dtype=torch.long, device=number.device)
    totals = totals.index_add(0, number, is_text)
    before = totals.cumsum(0) - totals
    is_before = (seen == before[number]) & (totals[number] > 0) & (number > 0)
    return is_before.view(input_ids.shape)


def texts_of(input_ids: Tensor, words: Words) -> list[list[str]]:
    """Write the words of a batch, for each sentence a list."""
    values = (input_ids.flatten()[words.tokens] - FIRST_BYTE).clamp(min=0).to(torch.uint8)
    written = bytes(values.tolist())
    bounds = [*words.first_tokens.tolist(), len(written)]
    texts = [
        written[first:last].decode(errors="replace").strip(" ") or UNREADABLE
        for first, last in pairwise(bounds)
    ]
    ends = words.lengths.cumsum(0).tolist()
    return [texts[first:last] for first, last in pairwise([0, *ends])]


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

    Return `character_ids` (B, W, L), padded on the right, and `attention_mask` (B, W), for a model's
    `forward`. `longest` is L, `max_characters_per_word` of the model.
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
