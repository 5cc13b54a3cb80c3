"""Which ids of a tokenizer are text and which are signs: [MASK], [SEP], `<extra_id_0>`, ...

Legend: V ids of the tokenizer, K sentinels.
"""

import numpy as np
from transformers import PreTrainedTokenizerBase

SENTINEL = "<extra_id_{}>"
"""Name of the k-th sentinel, as T5's tokenizers spell it."""


def required_token_id(tokenizer: PreTrainedTokenizerBase, role: str, needed_by: str) -> int:
    """Give the id of a special token by its role (`mask`, `cls`, `sep`, `eos`, ...), or say who misses it."""
    token_id = getattr(tokenizer, f"{role}_token_id")
    if token_id is None:
        raise ValueError(
            f"{needed_by} needs the tokenizer's {role}_token, but it is None: "
            f"add one (tokenizer.add_special_tokens({{'{role}_token': ...}})) or train the tokenizer anew"
        )
    return token_id


def is_special(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Tell for every id (V,) whether it is no text: a special token of any role, a sentinel, an unused id."""
    vocabulary = np.fromiter(tokenizer.get_vocab().values(), dtype=np.int64)
    special = np.ones(vocabulary.max() + 1, dtype=bool)
    special[vocabulary] = False
    special[tokenizer.all_special_ids] = True
    special[[idx for idx, token in tokenizer.added_tokens_decoder.items() if token.special]] = True
    return special


def sentinel_ids(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """List the ids of `<extra_id_0>`, `<extra_id_1>`, ... (K,), whichever order their ids have."""
    vocabulary = tokenizer.get_vocab()
    ids = []
    while (name := SENTINEL.format(len(ids))) in vocabulary:
        ids.append(vocabulary[name])
    return np.array(ids, dtype=np.int64)
