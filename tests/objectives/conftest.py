"""A tokenizer of pairs, as in pretraining."""

from ..pretraining.conftest import pair_tokenizer  # noqa: F401
