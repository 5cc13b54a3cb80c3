"""The configuration of static word vectors: one vector for each word, whatever stands around it."""

from huggingface_hub.dataclasses import strict

from ..configuration_neural import NeuralConfig, require_at_least
from .word_bytes import NUM_IDS, PAD


@strict
class TercetWordVectorsConfig(NeuralConfig):
    """Words that have a vector, and perhaps n-grams of characters that give others one.

    Example:
        >>> from tercet import TercetWordVectorsConfig
        >>> TercetWordVectorsConfig(hidden_size=300).num_ngram_rows
        0
    """

    model_type = "tercet_word_vectors"
    reads_any_ids = False

    vocab_size: int = NUM_IDS
    """Bytes, as which words are read; see `recurrent/word_bytes.py`."""
    hidden_size: int = 100
    """Width of a vector."""
    num_words: int = 1
    """Words that have a vector of their own."""
    num_word_bytes: int = 1
    """Bytes of all of these words."""
    num_ngram_rows: int = 0
    """Vectors that the n-grams of other words share; 0: other words are looked up in lower case."""
    shortest_ngram: int = 3
    """Characters of the shortest n-gram."""
    longest_ngram: int = 6
    """Characters of the longest one."""
    max_position_embeddings: int = 2**16
    """Bytes to which a text is cut."""
    tie_word_embeddings: bool = False
    pad_token_id: int | None = PAD

    def require_own_fields(self) -> None:
        """Raise a `ValueError` unless the fields describe vectors of words."""
        require_at_least(NUM_IDS, "vocab_size", self.vocab_size)
        for name in ("num_words", "num_word_bytes", "shortest_ngram"):
            require_at_least(1, name, getattr(self, name))
        require_at_least(0, "num_ngram_rows", self.num_ngram_rows)
        require_at_least(self.shortest_ngram, "longest_ngram", self.longest_ngram)
