"""What was measured, as a Markdown table, and where a page keeps it."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

PEERS = {"stock": ("stock",), "best_stock": ("stock-tuned", "stock-compiled")}
"""What speeds are related to: the fastest of the sides that are named."""

HEAD = """\
| case | side | tokens/s | slowest to fastest | over stock | over best stock | share of peak | memory, MiB |
|---|---|--:|--:|--:|--:|--:|--:|"""


def summarize(
    sides: dict[str, dict[str, Any]], tokens: int, flops_per_token: float, peaks: dict[str, float]
) -> None:
    """Add to each side's `seconds` its speed, its ratio to the stock sides, and its share of the peak.

    Args:
        sides: What `measure` returned, and each side's `precision`.
        tokens: Real tokens of a pass, of encoder and decoder together.
        flops_per_token: What a real token needs, the same for all sides: wasted work is no achievement.
        peaks: Of the machine, by precision, in floating-point operations per second.
    """
    for side in sides.values():
        speeds = [tokens / seconds for seconds in side["seconds"]]
        side["tokens_per_second"] = median(speeds)
        side["slowest"], side["fastest"] = min(speeds), max(speeds)
        side["utilization"] = median(speeds) * flops_per_token / peaks[side["precision"]]
    for side in sides.values():
        for name, peers in PEERS.items():
            side[f"ratio_to_{name}"] = side["tokens_per_second"] / max(
                sides[peer]["tokens_per_second"] for peer in peers if peer in sides
            )


def render(result: dict[str, Any]) -> str:
    """Write a run's result as Markdown: the machine, the parity of the models, the table."""
    peaks = result["peaks"]
    largest = (
        f"largest product {peaks['fp32'] / 1e9:,.0f} GFLOP/s in fp32 and {peaks['bf16'] / 1e9:,.0f} in bf16"
    )
    return "\n".join(
        [
            *describe_run(result, largest),
            "",
            *(_parity(name, case) for name, case in result["cases"].items()),
            "",
            HEAD,
            *(
                _row(case_name, side_name, side)
                for case_name, case in result["cases"].items()
                for side_name, side in case["sides"].items()
            ),
        ]
    )


def keep(path: Path, result: dict[str, Any]) -> None:
    """Write all numbers down, after every case: what comes later may fail."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def publish(text: str, page: Path | None, script: str) -> None:
    """Print a script's table, and put it into its place on a page, if one is named.

    Raises:
        ValueError: The page has no place for it.
    """
    print(text)
    if page:
        write_between_marks(page, text, script)


def marks_of(script: str) -> tuple[str, str]:
    """Return the lines of a page between which a script's table stands."""
    begin, end = (f"<!-- benchmarks/{Path(script).name}: {which} -->" for which in ("begin", "end"))
    return begin, end


def write_between_marks(page: Path, text: str, script: str) -> None:
    """Replace what stands between a script's two marks on a page.

    Raises:
        ValueError: The page has no such marks.
    """
    first, last = marks_of(script)
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not end:
        raise ValueError(f"{page} has no place for the table: add the lines {first} and {last}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def describe_run(result: Mapping[str, Any], *more: str) -> list[str]:
    """Say when, where and with what was measured, and what `more` there is to know of the machine.

    A busy machine is of no account where no times are told (`is_timed` is false).
    """
    machine, conditions = result["machine"], result["conditions"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    remarks = [
        f"load average {machine['load_average']:.2f} at the start",
        *more,
        f"heap: {conditions['heap']}",
    ]
    lines = [
        f"{result['date']}: {machine['gpu'] or machine['processor']} ({machine['instructions']}), "
        f"threads: {conditions['threads']}; Python {machine['python']}, {versions}.",
        f"Rounds: {result['rounds']}; {'; '.join(remarks)}.",
    ]
    if result["is_noisy"] and result.get("is_timed", True):
        lines += ["", "**The machine was busy when this began: measure again at rest.**"]
    return lines


def _parity(name: str, case: dict[str, Any]) -> str:
    parity = case["parity"]
    return (
        f"- {name}: {parity['parameters']:,} parameters on both sides; "
        f"loss {parity['stock_loss']:.6f} (stock) and {parity['tercet_loss']:.6f} (Tercet), "
        f"relative difference {parity['loss_difference']:.0e}, of all gradients "
        f"{parity['gradient_difference']:.0e}"
    )


def _row(case: str, name: str, side: dict[str, Any]) -> str:
    cells = [
        case,
        f"{name} ({side['precision']})",
        f"{side['tokens_per_second']:,.0f}",
        f"{side['slowest']:,.0f} to {side['fastest']:,.0f}",
        f"{side['ratio_to_stock']:.2f}x",
        f"{side['ratio_to_best_stock']:.2f}x",
        f"{side['utilization']:.0%}",
        f"{side['memory_mib']:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"
