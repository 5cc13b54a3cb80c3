"""What `gpu.py` has measured, as Markdown: laws, gates with their verdicts, and all sides."""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from gpu_cases import PARTS
from publishing import describe_run, lines_of

DATA_SHEETS = {"H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12}
"""Dense operations in bfloat16 per second, by what the name of a GPU contains."""

LAWS = ("law", "member", "relative difference", "limit")
GATES = ("work", "what", "gate", "measured", "verdict")
SIDES = ("work", "side", "tokens/s", "share of peak", "memory, GiB", "first step, s")


def render(result: Mapping[str, Any]) -> str:
    """Write a run's result as Markdown; parts that were not measured say so."""
    parts, peak = result["parts"], peak_of(result)
    peaks = f"peak {peak / 1e12:,.1f} TFLOP/s in bf16 (measured: {result['peaks']['bf16'] / 1e12:,.1f})"
    broken = [row[:-1] for row in law_rows(parts) if row[-1] != "holds"]
    gates = [*gate_rows(parts, peak)]
    shown = [row for row in gates if row[-1] not in ("goal reached", "met")]
    lines = [*describe_run(result, peaks), ""]
    lines += [
        f"Laws: {len([*law_rows(parts)]) - len(broken)} hold, {len(broken)} are broken. "
        f"Gates: {len(gates) - len(shown)} of {len(gates)} are met; the others are:"
    ]
    tables = {LAWS: broken, GATES: shown, SIDES: [*side_rows(result, peak)]}
    if result["is_smoke"]:
        lines += ["", "**Tiny shapes, only to see that everything runs: the figures mean nothing.**"]
    for head, rows in tables.items():
        lines += ["", *lines_of(head, rows, "l")] if rows else []
    return "\n".join([*lines, "", *remarks(parts)]).rstrip()


def remarks(parts: Mapping[str, Any]) -> Iterator[str]:
    """Say why a side was not compiled or recorded, or not measured to the end."""
    for name, part in parts.items():
        for side, found in part.get("sides", {}).items():
            late = [found["unobserved"]] if "unobserved" in found else []
            for remark in (*found.get("warnings", ()), *late):
                yield f"- {PARTS[name].case.name}, {side}: {remark}"


def peak_of(result: Mapping[str, Any]) -> float:
    """Return the data sheet's peak, or the measured one of a device that is not listed."""
    gpu = result["machine"]["gpu"] or ""
    return next((peak for name, peak in DATA_SHEETS.items() if name in gpu), result["peaks"]["bf16"])


def law_rows(parts: Mapping[str, Any]) -> Iterator[list[str]]:
    """Judge each law for each member."""
    for name, part in parts.items():
        for law, found in part.get("sides", {}).get("laws", {}).get("laws", {}).items():
            verdict = "holds" if found["difference"] <= found["limit"] else "**broken**"
            numbers = (f"{found[key]:.1e}" for key in ("difference", "limit"))
            yield [law, name.removeprefix("laws-"), *numbers, verdict]


def gate_rows(parts: Mapping[str, Any], peak: float) -> Iterator[list[str]]:
    """Judge what each part had to reach."""
    for name in parts:
        found = metrics(name, parts, peak)
        for gate in PARTS[name].gates:
            value = found.get(gate.metric)
            numbers = ("" if each is None else f"{each:,.3g}" for each in (gate.gate, value))
            yield [PARTS[name].case.name, gate.metric, *numbers, gate.verdict(value)]


def metrics(name: str, parts: Mapping[str, Any], peak: float) -> dict[str, float | None]:
    """Relate ours to the other sides, and to the peak."""
    part, sides = parts[name], parts[name].get("sides", {})
    if "tokens_per_second" in part:
        collated = speeds_of(parts.get("8x512", {}), "tercet")
        return {"speed / 8x512": median(part["tokens_per_second"]) / median(collated)} if collated else {}
    speeds = {side: median(found) for side in sides if (found := speeds_of(part, side))}
    if not (speed := speeds.get("tercet")):
        return {}
    return {
        "tokens/s": speed,
        "share of peak": speed * part.get("flops_per_token", 0) / peak,
        "recompilations": sides["tercet"].get("recompilations"),
        "optimizer's share of a step": sides["tercet"].get("optimizer_share"),
        "seconds to the first step": sides["tercet"]["seconds_to_first_step"],
        **{f"speed / {peer}": speed / own for peer, own in speeds.items()},
        **{
            f"memory / {peer}": sides["tercet"]["memory_mib"] / sides[peer]["memory_mib"]
            for peer in speeds
            if all("memory_mib" in sides[side] for side in (peer, "tercet"))
        },
    }


def speeds_of(part: Mapping[str, Any], side: str) -> list[float]:
    """Return a side's tokens per second in each turn; none if it was not measured."""
    found = part.get("sides", {}).get(side, {"failure": ""})
    return [] if "failure" in found else [part["tokens"] / seconds for seconds in found["seconds"]]


def side_rows(result: Mapping[str, Any], peak: float) -> Iterator[list[str]]:
    """Show all sides of all parts, and why some were not measured."""
    for name, part in result["parts"].items():
        work, flops = PARTS[name].case.name, part.get("flops_per_token")
        for side, found in part.get("sides", {"tercet": part}).items():
            if "failure" in found:
                failure = f"not measured: {found['failure']}".replace("|", "/")
                yield [work, side, failure, *[""] * (len(SIDES) - 3)]
            elif side != "laws":
                speeds = found.get("tokens_per_second") or speeds_of(part, side)
                yield [
                    work,
                    side,
                    f"{median(speeds):,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f})",
                    f"{median(speeds) * flops / peak:.1%}" if flops else "",
                    f"{found['memory_mib'] / 1024:.1f}" if "memory_mib" in found else "",
                    f"{found['seconds_to_first_step']:,.0f}" if "seconds_to_first_step" in found else "",
                ]
