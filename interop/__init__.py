"""In and out: stock checkpoints, certificates, examinations, the Hub."""

from .certificate import certify
from .conversion import convert, from_stock, to_stock

__all__ = ["certify", "convert", "from_stock", "to_stock"]
