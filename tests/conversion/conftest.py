"""Stock models, which are imported before they are read as another member."""

from ..stock.conftest import stock  # noqa: F401
