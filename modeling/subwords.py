"""The n-grams of characters of a word, and the rows of a table that they share (Bojanowski et al., 2017).

    where, n = 3   ->   <wh whe her ere re>

Each n-gram has one of B rows, found by a hash (section 3.2), so that a word that no text has shown has
vectors of its parts. The hash is that of fastText, so that vectors of that program, and of gensim, can be
used.
"""

OFFSET, PRIME = 2166136261, 16777619
"""Of the hash of Fowler, Noll and Vo, FNV-1a, with 32 bits."""


def ngrams_of(word: str, shortest: int, longest: int) -> list[str]:
    """List the n-grams of a word between < and >, the word itself included if it is short enough.

    >>> ngrams_of("her", 3, 4)
    ['<he', '<her', 'her', 'her>', 'er>']
    """
    framed = f"<{word}>"
    return [
        framed[first : first + length]
        for first in range(len(framed))
        for length in range(shortest, min(longest, len(framed) - first) + 1)
    ]


def hash_of(ngram: str) -> int:
    """Hash an n-gram to 32 bits. Bytes from 128 on are taken for negative numbers, as fastText does."""
    value = OFFSET
    for byte in ngram.encode(errors="surrogatepass"):
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * PRIME) & 0xFFFFFFFF
    return value


def rows_of(word: str, shortest: int, longest: int, num_rows: int) -> list[int]:
    """Give the row of each n-gram of a word in a table of `num_rows`."""
    return [hash_of(ngram) % num_rows for ngram in ngrams_of(word, shortest, longest)]
