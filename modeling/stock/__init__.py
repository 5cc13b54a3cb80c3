"""Stock architectures, in and out: tables of options and weights, and certificates of equal logits."""

from .certificate import certify
from .models import from_stock, to_stock

__all__ = ["certify", "from_stock", "to_stock"]
