"""The share of a device's peak that training reaches (MFU), by the width of the model: what was measured.

Wide models spend their time in large matrix products, which come near the peak. Narrow ones spend it between
products: on a GPU with starting kernels, in norms and in the optimizer. What other programs reach is no
measure of ours; docs/scaling.md lists some of it.
"""

from dataclasses import dataclass
from math import log

import numpy as np


@dataclass(frozen=True)
class PeakShare:
    """A share of peak that models of some width reach."""

    width: int
    """The models' hidden size."""
    share: float
    """Of the peak FLOPs in the precision of the products."""
    source: str
    """How it is known."""


ASSUMED = PeakShare(2048, 0.4, "assumed, since nothing of this width or device was measured")

PEAK_SHARES = {
    "cpu": (
        PeakShare(256, 0.43, "measured with an encoder of 4 layers on an AMD EPYC"),
        PeakShare(768, 0.65, "measured with an encoder of 12 layers on an AMD EPYC"),
    ),
    "cuda": (
        PeakShare(512, 0.06, "measured with 8 layers and NorMuon on one H200, not compiled"),
        PeakShare(768, 0.19, "measured with BERT-base and GPT-2 on one H200, not compiled"),
        ASSUMED,
    ),
}
"""Measured shares by type of device, narrow models first; the tables of docs/performance.md and of
docs/scaling.md have the runs."""


def expected_share(device_type: str, width: int) -> tuple[float, tuple[PeakShare, ...]]:
    """Return the share of peak to expect of a model, and the one or two known shares that it rests on.

    Between two widths it is interpolated along the logarithm of the width; outside it is the nearest one.

    >>> share, known = expected_share("cuda", 640)
    >>> round(share, 3), [each.width for each in known]
    (0.132, [512, 768])
    """
    known = PEAK_SHARES.get(device_type, (ASSUMED,))
    share = np.interp(log(width), [log(each.width) for each in known], [each.share for each in known])
    below = [each for each in known if each.width <= width] or known[:1]
    above = [each for each in known if each.width >= width] or known[-1:]
    return float(share), tuple(dict.fromkeys([below[-1], above[0]]))
