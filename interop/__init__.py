"""In and out: stock checkpoints, certificates, examinations, the Hub."""

from .certificate import certify
from .conversion import from_stock, to_stock

__all__ = ["certify", "from_stock", "to_stock"]
