"""Stock architectures, in and out: tables of options and weights, and certificates of equal logits."""

from typing import TYPE_CHECKING, Any

from .models import from_stock, to_stock

if TYPE_CHECKING:
    from .certificate import certify as certify

__all__ = ["certify", "from_stock", "to_stock"]


def __getattr__(name: str) -> Any:
    """Import the certificate when it is asked for: runs on a stock model do without."""
    if name == "certify":
        from .certificate import certify

        return certify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
