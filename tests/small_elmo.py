"""A small ELMo, and texts whose words it knows or has never seen."""

from tercet import TercetElmoConfig

TEXTS = ["the old house is near the bank of the river", "the bank lends money to the house"]
SENTENCES = [["the", "bank", "lends", "unheard", "of", "sums"], ["caf\u00e9"], ["money", "x" * 60, "!"]]
SMALL = {
    "hidden_size": 12,
    "lstm_cell_size": 9,
    "character_filters": [[1, 4], [2, 3], [3, 5]],
    "dropout": 0.0,
}


def small_config(**fields) -> TercetElmoConfig:
    """Describe a small model for a vocabulary of at most 540 tokens."""
    return TercetElmoConfig(**({"vocab_size": 540, "pad_token_id": 0} | SMALL | fields))
