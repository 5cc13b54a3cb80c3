"""How much of a text its tokenizer does not know: what it cannot write is guessed right too easily.

A text of which every second token is unknown has a low perplexity, and says little of a model. So the share
is shown beside the scores, always.
"""

import sys
import warnings
from collections.abc import Iterable

import numpy as np
from transformers import PreTrainedTokenizerBase

LARGE = 0.01
"""Share from which on scores say little of the text; of English, WordPiece knows all but one in thousands."""


def share_of_unknown(tokens: Iterable[np.ndarray], tokenizer: PreTrainedTokenizerBase) -> float:
    """Give the share of tokens that stand for what a tokenizer does not know; not a number if there are none.

    A tokenizer of bytes knows everything: the unknown token that it may have by name has another use.
    """
    unknown, others = tokenizer.unk_token_id, (tokenizer.bos_token_id, tokenizer.eos_token_id)
    parts = list(tokens)
    total = sum(map(len, parts))
    if unknown is None or unknown in others:
        return 0.0 if total else float("nan")
    return sum(int((part == unknown).sum()) for part in parts) / total if total else float("nan")


def tell_of_unknown(share: float, text: str) -> None:
    """Show the share on the screen, and warn of a large one.

    Warns:
        UserWarning: It is large.
    """
    print(f"{text}: {share:.2%} of its tokens are unknown to the tokenizer", file=sys.stderr, flush=True)
    if share > LARGE:
        warnings.warn(
            f"{share:.1%} of the tokens of {text} are unknown to the tokenizer and therefore easy to "
            f"predict: losses and perplexities are not meaningful; choose a tokenizer for this language, or "
            f"a byte-level one",
            stacklevel=2,
        )
