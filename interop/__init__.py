"""In and out: stock checkpoints, certificates, examinations, the Hub."""

from ..conversion.members import convert
from ..stock.certificate import certify
from ..stock.models import from_stock, to_stock

__all__ = ["certify", "convert", "from_stock", "to_stock"]
