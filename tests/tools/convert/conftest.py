"""Stock models and a tokenizer, which are imported before they are read as another member."""

from ...modeling.stock.conftest import stock, tokenizer  # noqa: F401
