"""Train side by side with the stock models: real tokens per second, their ratio, and peak memory.

`cases.py` lists what is trained, `sides.py` by whom, and proves that the models are the same.
"""

import torch

from tercet.data.steps.packing import sequence_lengths
from tercet.training.devices.precision import choose_precision

from ..publishing import Result, spread
from .benchmark import Benchmark, side_by_side
from .cases import CASES
from .measuring import find_peaks, present_device
from .sides import SIDES, compare

PEERS = {"stock": ("stock",), "best_stock": ("stock-tuned", "stock-compiled")}


def share_of_peak(name: str, side: Result, case: Result, result: Result) -> Result:
    """Relate a side to the machine. Wasted work is no achievement: what a real token needs counts."""
    precision = choose_precision(SIDES[name].precision, present_device())
    flops = side["tokens_per_second"] * case["parity"]["flops_per_token"]
    return {"precision": precision, "utilization": flops / result["peaks"][precision]}


def largest_products(result: Result) -> list[str]:
    """Describe how fast the machine is at best."""
    fp32, bf16 = (result["peaks"][precision] / 1e9 for precision in ("fp32", "bf16"))
    return [f"largest product {fp32:,.0f} GFLOP/s in fp32 and {bf16:,.0f} in bf16"]


def parities(result: Result) -> list[str]:
    """Describe how equal the models of all cases are."""
    loss, gradient = (
        max(case["parity"][f"{what}_difference"] for case in result["cases"].values())
        for what in ("loss", "gradient")
    )
    return [
        f"Parameters are equal on both sides; relative differences of losses {loss:.0e} and of gradients "
        f"{gradient:.0e} at most."
    ]


BENCHMARK = Benchmark(
    __doc__,
    CASES,
    side_by_side(
        # On a CPU the compiled stock model takes minutes, and was never faster.
        {name: SIDES[name] for name in SIDES if name != "stock-compiled" or torch.cuda.is_available()},
        compare,
        lambda case: int(sequence_lengths(case.pool()).sum()),
        PEERS,
        describe=share_of_peak,
    ),
    {
        "case": "{case}",
        "stock, tokens/s": "{stock[tokens_per_second]:,.0f}",
        "stock-tuned": spread("stock-tuned", "tokens_per_second"),
        "tercet-float32": "{tercet-float32[tokens_per_second]:,.0f}",
        "tercet": spread("tercet", "tokens_per_second"),
        "over best stock": "{tercet[ratio_to_best_stock]:.2f}x",
        "over stock": "{tercet[ratio_to_stock]:.2f}x",
        "share of peak": "{tercet[utilization]:.0%}",
        "MiB, stock-tuned": "{stock-tuned[memory_mib]:,.0f}",
        "MiB, tercet": "{tercet[memory_mib]:,.0f}",
    },
    has_row_per_case=True,
    begin=find_peaks,
    remarks=largest_products,
    facts=parities,
)
